//! The answer of a run in one sentence, built from its figures only.

use super::domains::LOOPS;
use super::fmt::{self, finite, fixed, interval, plural, temperature};
use super::model::{Entry, Group, Line, groups};
use super::{grid, stats};
use crate::results::{Cell, CellDetail, Priced, Summary};

/// Budgets named in the sentence; more would bury the answer.
const NAMED: usize = 4;

/// What the run found, in one sentence: τ by budget of the policy that was tried at most budgets, its 95 % interval, the
/// chain beside it with the difference paired by request, and how far it carries. Without a usable cell it says so. A priced run answers with
/// budgets and gains by concurrency instead.
#[must_use]
pub fn answer(summary: &Summary, details: &[CellDetail], priced: Option<&Priced>) -> String {
    if let Some(priced) = priced {
        return grid::answer(&grid::View::new(summary, priced));
    }
    let groups = groups(summary, details);
    let Some((group, main)) = headline(&groups) else {
        return "No cell of this run finished with a measured τ, so there is nothing to conclude yet.".to_owned();
    };
    let entries: Vec<Entry<'_>> =
        main.entries.iter().filter(|e| !e.is_plain() && finite(e.cell.tau).is_some()).copied().collect();
    let best = entries.iter().copied().reduce(|a, b| if finite(b.cell.tau) > finite(a.cell.tau) { b } else { a });
    let Some(best) = best else {
        return "No policy with drafts finished with a measured τ, so there is nothing to conclude yet.".to_owned();
    };
    let mut text = format!("{}, {} {}", scope(group, &entries), subject(&main.label), by_budget(&entries));
    if let Some((_, chain)) = group.chain()
        && main.entries.iter().all(|e| e.cell.policy != "chain")
    {
        text.push_str(&against(chain, best));
    }
    if let Some((line, entry)) = rival(group, main, best) {
        let tau = fixed(finite(entry.cell.tau).unwrap_or_default(), 2);
        text.push_str(&format!("; {} with {} reaches {tau}", line.label, entry.size()));
    }
    text.push_str(&closing(summary, best));
    text.push('.');
    text
}

/// The panel and line that the answer is about: sampled text before greedy, low concurrency before high.
pub(super) fn headline<'g, 'a>(groups: &'g [Group<'a>]) -> Option<(&'g Group<'a>, &'g Line<'a>)> {
    let candidates: Vec<_> = groups.iter().filter_map(|g| g.main().map(|line| (g, line))).collect();
    candidates.into_iter().min_by_key(|(g, _)| (g.temperature == 0.0, g.concurrency))
}

/// "At T = 0.7 over 16 prompts".
fn scope(group: &Group<'_>, entries: &[Entry<'_>]) -> String {
    let least = entries.iter().map(|e| e.cell.requests).min().unwrap_or(0);
    let most = entries.iter().map(|e| e.cell.requests).max().unwrap_or(0);
    let prompts = if least == most { plural(u64::from(most), "prompt") } else { format!("{least} to {most} prompts") };
    let users = if group.concurrency > 1 { format!(", {} at a time", group.concurrency) } else { String::new() };
    format!("At T = {} over {prompts}{users}", temperature(group.temperature))
}

/// The policy as the subject of the sentence.
fn subject(label: &str) -> String {
    match label {
        "chain" => "the chain commits".to_owned(),
        "plain" => "plain decoding commits".to_owned(),
        "best-first" | "spine-first" | "top-k" => format!("{label} trees commit"),
        other => format!("the policy {other} commits"),
    }
}

/// "2.47 tokens a step with 8 nodes (95 % 2.21–2.75), 2.86 with 16 (2.55–3.18) and …".
fn by_budget(entries: &[Entry<'_>]) -> String {
    let last = entries.len() - 1;
    let shown: Vec<&Entry<'_>> = if entries.len() <= NAMED {
        entries.iter().collect()
    } else {
        (0..NAMED).map(|i| &entries[i * last / (NAMED - 1)]).collect()
    };
    let mut marked = false;
    let parts: Vec<String> = shown
        .iter()
        .enumerate()
        .map(|(i, e)| {
            let tau = fixed(finite(e.cell.tau).unwrap_or_default(), 2);
            let unit = if i == 0 { " tokens a step" } else { "" };
            let size = if i == 0 || e.below_cap() { e.size() } else { e.cell.budget.to_string() };
            let ends = interval(e.cell.tau_lo, e.cell.tau_hi, 2).map_or_else(String::new, |ends| {
                let level = if marked { "" } else { "95 % " };
                marked = true;
                format!(" ({level}{ends})")
            });
            format!("{tau}{unit} with {size}{ends}")
        })
        .collect();
    fmt::listed(&parts)
}

/// The chain's τ, and the paired difference where the same requests ran in both.
fn against(chain: Entry<'_>, best: Entry<'_>) -> String {
    let Some(tau) = finite(chain.cell.tau) else { return String::new() };
    let ends = interval(chain.cell.tau_lo, chain.cell.tau_hi, 2).map_or_else(String::new, |e| format!(" ({e})"));
    let mut text = format!(", against {} for the {}-node chain{ends}", fixed(tau, 2), chain.cell.budget);
    let paired = chain.detail.zip(best.detail).and_then(|(a, b)| stats::difference(a, b));
    if let Some(d) = paired {
        let (size, s) = (best.size(), if best.cell.budget == 1 { "s" } else { "" });
        let [mid, lo, hi] = [d.mid, d.lo, d.hi].map(|v| fixed(v.abs(), 2));
        text.push_str(&if d.lo > 0.0 {
            format!("; on the same prompts, {size} commit{s} {mid} tokens more than the chain (95 % {lo} to {hi})")
        } else if d.hi < 0.0 {
            format!("; on the same prompts, {size} commit{s} {mid} tokens fewer than the chain (95 % {hi} to {lo})")
        } else {
            let [mid, lo, hi] = [d.mid, d.lo, d.hi].map(|v| fmt::signed(v, 2));
            format!("; on the same prompts, the difference of {mid} ({size}, 95 % {lo} to {hi}) may be chance")
        });
    }
    text
}

/// A line of the same panel with a higher τ than the headline's best.
fn rival<'g, 'a>(group: &'g Group<'a>, main: &Line<'a>, best: Entry<'a>) -> Option<(&'g Line<'a>, Entry<'a>)> {
    let mut top: Option<(&Line<'a>, Entry<'a>)> = None;
    for (line, entry) in group.drafting().filter(|(l, _)| l.label != main.label) {
        let bar = finite(top.map_or(best.cell.tau, |(_, e)| e.cell.tau));
        if finite(entry.cell.tau) > bar {
            top = Some((line, entry));
        }
    }
    top
}

/// The fastest cell at the headline's temperature and concurrency, where it is another one: the most tokens a step are not
/// always the most tokens a second.
fn fastest_beside<'a>(summary: &'a Summary, cell: &Cell) -> Option<(&'a Cell, f64)> {
    let same = |c: &&Cell| c.temperature == cell.temperature && c.concurrency == cell.concurrency && c.budget > 0;
    let speeds = summary.cells.iter().filter(same).filter_map(|c| Some((c, finite(c.speedup)?)));
    let (fastest, speed) = speeds.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (speed > finite(cell.speedup)? + 0.005).then_some((fastest, speed))
}

/// How far the figures carry: replays and synthetic sources are named, and a CPU's clock is no GPU's.
fn closing(summary: &Summary, best: Entry<'_>) -> String {
    let cell = best.cell;
    let mut text = String::new();
    if let Some(share) = finite(cell.loop_share).filter(|share| *share >= LOOPS) {
        let rows: Vec<_> = best.detail.map_or(&[][..], |d| &d.per_request).iter().collect();
        let without = stats::without_loops(&rows)
            .map_or_else(String::new, |t| format!(", and without them {} commit {}", best.size(), fixed(t.mid, 2)));
        text.push_str(&format!("; {} of the responses end in a loop{without}", fmt::percent(share)));
    }
    if cell.notes.iter().any(|n| n.starts_with("synthetic weights")) {
        text.push_str("; weights are synthetic");
    }
    if cell.source.tau != "measured" {
        text.push_str(&format!("; τ is {}, not measured", cell.source.tau));
    }
    if summary.cells.iter().any(|c| c.backend == "cpu") {
        text.push_str("; a CPU's time is no prediction of a GPU's");
    } else if let Some(speedup) = finite(cell.speedup) {
        let size = best.size();
        text.push_str(&format!("; {size} run at {} times the speed of plain decoding", fixed(speedup, 2)));
        if let Some((fastest, speed)) = fastest_beside(summary, cell) {
            let nodes = plural(u64::from(fastest.budget), "node");
            text.push_str(&format!(", {} with {nodes} at {}", fastest.policy, fixed(speed, 2)));
        }
        if cell.in_domain == Some(false) {
            text.push_str(", outside the cost model's domain");
        }
    }
    text
}
