//! The questions that the project began with, answered from the run's own cells.

use super::eager;
use crate::config::AcceptanceKind;
use crate::priced::Prepared;
use crate::results::{Cell, Scenario};
use treeline_sim::accept::{self, Sample};

/// Walks that the consistency of two published figures is judged on.
const SAMPLE: Sample = Sample { requests: 64, tokens: 64, seed: 1 };

/// Every scenario that the run has the cells for.
pub(super) fn scenarios(p: &Prepared<'_>, cells: &[Cell]) -> Vec<Scenario> {
    let view = View { p, cells, context: headline(cells) };
    [eager::scenario(&view), view.memory(), view.power(), view.consistency()].into_iter().flatten().collect()
}

/// The context that scenarios are told at: the one nearest to 8192.
fn headline(cells: &[Cell]) -> u32 {
    cells.iter().map(|c| c.context).min_by_key(|c| c.abs_diff(8192)).unwrap_or(0)
}

/// What scenarios look at.
pub(super) struct View<'v> {
    /// The experiment.
    pub p: &'v Prepared<'v>,
    /// All cells.
    pub cells: &'v [Cell],
    /// The context that they are told at.
    pub context: u32,
}

/// A time or rate with three figures; a dash where there is none.
pub(super) fn three(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite()).map_or_else(
        || "–".to_owned(),
        |x| match x.abs() {
            100.0.. => format!("{x:.0}"),
            10.0.. => format!("{x:.1}"),
            _ => format!("{x:.2}"),
        },
    )
}

/// A number with two digits behind the point; a dash where there is none.
pub(super) fn two(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite()).map_or_else(|| "–".to_owned(), |x| format!("{x:.2}"))
}

fn gb(bytes: f64) -> String {
    format!("{:.1} GB", bytes / 1e9)
}

impl View<'_> {
    /// The cell of a policy at the headline context.
    pub fn cell(&self, acceptance: &str, policy: &str, budget: u32, concurrency: u32) -> Option<&Cell> {
        self.cells.iter().find(|c| {
            c.acceptance.as_deref() == Some(acceptance)
                && (c.policy.as_str(), c.budget, c.concurrency, c.context)
                    == (policy, budget, concurrency, self.context)
        })
    }

    /// The τ of a policy at any context and concurrency: it depends on neither.
    fn tau(&self, acceptance: &str, policy: &str, budget: u32) -> Option<f64> {
        let of = |c: &&Cell| c.acceptance.as_deref() == Some(acceptance) && c.policy == policy && c.budget == budget;
        self.cells.iter().find(of)?.tau
    }

    /// How large the cap of concurrent requests may be.
    fn memory(&self) -> Option<Scenario> {
        let room = self.p.profiles.room().ok()?;
        let response = self.p.sources.iter().map(|s| s.response).max().unwrap_or(0);
        let rows = self.p.candidates.iter().map(|c| c.budget + 1).max().unwrap_or(1);
        let mut contexts: Vec<u32> = self.cells.iter().map(|c| c.context).collect();
        contexts.extend(&self.p.run.context);
        contexts.sort_unstable();
        contexts.dedup();
        let line = |&context: &u32| {
            let longest = context.saturating_add(response);
            let fits = |cap: u32| match room.fit(cap, longest, rows) {
                Ok(()) => "fits".to_owned(),
                Err(e) => format!("{} missing", gb(e.missing_bytes() as f64)),
            };
            let each = format!("{:.2} GB", room.request_bytes(longest, rows) / 1e9);
            vec![context.to_string(), each, fits(128), fits(256), room.largest_cap(longest, rows).to_string()]
        };
        let table: Vec<Vec<String>> = contexts.iter().map(line).collect();
        let longest = contexts.iter().max().map(|c| c.saturating_add(response))?;
        let largest = room.largest_cap(longest, rows);
        let verdict = match room.fit(256, longest, rows) {
            Ok(()) => {
                "a cap of 256 fits at every context of this run, so memory for the cache is not what ends it".to_owned()
            }
            Err(_) => format!(
                "at the longest context the largest cap that fits is {largest}: a service that is set to 256 and meets such requests runs out of memory"
            ),
        };
        Some(Scenario {
            title: "Raising the cap from 128 to 256".to_owned(),
            text: format!(
                "Beside weights and drafter a GPU has {} for the cache. With responses of {response} tokens and trees of {rows} rows, {verdict}.",
                gb(room.kv_room_bytes)
            ),
            columns: ["context", "cache of a request, per GPU", "cap 128", "cap 256", "largest cap"]
                .map(str::to_owned)
                .into(),
            rows: table,
        })
    }

    /// What power trees take.
    fn power(&self) -> Option<Scenario> {
        let name = self.p.sources.first()?.name.as_str();
        let limit = self.p.profiles.hardware.board_w;
        let budgets: Vec<(&str, u32)> =
            [("plain", 0), ("chain", 7), ("best-first", 8), ("best-first", 16), ("best-first", 64)]
                .into_iter()
                .filter(|(policy, budget)| self.tau(name, policy, *budget).is_some())
                .collect();
        let watts = |c: &Cell| c.power_w.map_or_else(|| "–".to_owned(), |w| format!("{w:.0} W"));
        let joules = |c: &Cell| c.joules_per_token.map_or_else(|| "–".to_owned(), |j| format!("{j:.2} J"));
        let line = |&concurrency: &u32| {
            let shown = |(policy, budget): &(&str, u32)| {
                let cell = self.cell(name, policy, *budget, concurrency);
                cell.map_or_else(|| "–".to_owned(), |c| format!("{}, {}", watts(c), joules(c)))
            };
            std::iter::once(concurrency.to_string()).chain(budgets.iter().map(shown)).collect()
        };
        let rows: Vec<Vec<String>> = self.p.experiment.concurrency.iter().map(line).collect();
        let plain = budgets.iter().any(|b| b.0 == "plain");
        (plain && budgets.len() > 1).then(|| Scenario {
            title: "Power and energy".to_owned(),
            text: format!(
                "Power of one GPU (limit {limit:.0} W) and energy per token over all {} of them, for {name} behind {} tokens: idle power plus energy per byte and per operation. A tree saves energy per token as long as the energy of its step grows by less than its τ. Not validated on this machine; whole steps that were measured on an H200 took a fifth to a third more than such a model says.",
                self.p.profiles.deployment.ranks, self.context
            ),
            columns: std::iter::once("concurrency".to_owned())
                .chain(budgets.iter().map(|(policy, budget)| if *budget == 0 { (*policy).to_owned() } else { format!("{policy} {budget}") }))
                .collect(),
            rows,
        })
    }

    /// Whether 3.5–4.1 at 8 nodes and 5.3–6.4 at 16 can come from the same prompts.
    fn consistency(&self) -> Option<Scenario> {
        let named = self.p.run.acceptance.iter().find_map(|a| match &a.source {
            AcceptanceKind::Process { process, .. } => Some(process.as_str()),
            AcceptanceKind::Trace { .. } => None,
        })?;
        let process = accept::process(named, &self.p.experiment.folder).ok()?;
        // The two figures are of a drafter of block 8.
        if process.depth() != 7 {
            return None;
        }
        let remark = accept::remark::remark(&process, SAMPLE).ok()?;
        let row = |r: &accept::remark::Reading| {
            let reach = if r.out_of_reach { "out of reach" } else { "within reach" };
            let band = format!("{:.2}–{:.2}", r.tau_16_low, r.tau_16_high);
            vec![
                r.eight.clone(),
                two(Some(r.tau_8)),
                two(Some(r.tau_16)),
                band,
                two(Some(r.reported_16)),
                reach.to_owned(),
            ]
        };
        Some(Scenario {
            title: remark.title,
            text: remark.text,
            columns: [
                "budget 8 was",
                "its τ",
                "16 nodes then",
                "over the parameters' ranges",
                "reported at 16",
                "verdict",
            ]
            .map(str::to_owned)
            .into(),
            rows: remark.readings.iter().map(row).collect(),
        })
    }
}
