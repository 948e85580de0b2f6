//! Measured steps, by requests and rows.

use super::super::source::{Capped, Source};
use crate::config::Experiment;
use std::collections::BTreeMap;
use std::io::Write as _;
use treeline_core::{Engine as _, Limits, Phase, Request, RoundLog, RunSetup, run};
use treeline_policies::Registry;

/// Budgets that are measured, as far as the experiment's largest goes.
const BUDGETS: [u32; 13] = [0, 1, 3, 5, 7, 11, 15, 23, 31, 47, 63, 95, 127];
/// The first rounds of a response are cold.
const COLD: u32 = 2;
/// Verify steps of a live response: enough that most are warm.
const ROUNDS: u32 = 12;
/// Rounds of one kind that are needed.
const REPEATS: u32 = 6;

/// Means over the rounds with the same requests and rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timed {
    /// Requests that decoded together.
    pub requests: u32,
    /// Rows of the target's pass.
    pub rows: u32,
    /// Σ of context lengths.
    pub context_sum: f64,
    /// Least and most of a round's mean context.
    pub context: [f64; 2],
    /// Rows of the draft pass; 0 = no draft.
    pub draft_rows: u32,
    /// Distinct experts, mean over layers.
    pub experts: Option<f64>,
    /// ms by phase.
    pub ms: [f64; Phase::ALL.len()],
    /// Rounds behind the means.
    pub repeats: u32,
}

impl Timed {
    /// ms of one phase.
    pub fn of(&self, phase: Phase) -> f64 {
        self.ms[phase as usize]
    }

    /// ms of the round.
    pub fn round(&self) -> f64 {
        self.ms.iter().sum::<f64>() - self.of(Phase::Prefill)
    }
}

/// Runs best-first at every budget and concurrency.
pub(super) fn measure<S: Source>(source: &S, e: &Experiment, quiet: bool) -> anyhow::Result<Vec<Timed>> {
    let facts = source.facts();
    anyhow::ensure!(facts.clock, "this backend has no clock");
    let temperature = facts.temperatures.first().copied().unwrap_or(0.0);
    let most = e.policies.iter().flat_map(|p| p.budgets.iter().copied()).max().unwrap_or(0);
    let mut out = Vec::new();
    for &concurrency in &e.concurrency {
        let mut engine = Capped { inner: source.engine(concurrency, most)?, width: facts.width, depth: facts.depth };
        let info = engine.info();
        anyhow::ensure!(
            !info.conditional,
            "a calibration file describes one draft pass a round: this drafter is conditional, measure it with the [cost.curve] of `treeline calibrate`"
        );
        let mut requests: Vec<Request> = source.requests(temperature);
        requests.truncate(2 * concurrency as usize);
        if !facts.knows_truth {
            // Responses of models may be cut short; recorded ones have the length that they have.
            for r in &mut requests {
                r.max_new = r.max_new.min(ROUNDS * (info.depth + 1)).max(2);
                r.eos.clear();
            }
        }
        let mut groups: BTreeMap<(u32, bool), Vec<RoundLog>> = BTreeMap::new();
        let mut contexts: BTreeMap<(u32, bool), Vec<f64>> = BTreeMap::new();
        for budget in BUDGETS.into_iter().filter(|b| *b <= most) {
            let limits = Limits { budget, depth: info.depth, width: info.width, concurrency };
            let mut policy = Registry::builtin().build("best-first", &serde_json::json!({}), &limits)?;
            let law = source.law(temperature);
            let setup = RunSetup { budget, concurrency, law: &law, cost: None };
            let _ = engine.take_times();
            run(&mut engine, &mut *policy, &requests, &setup, &mut |view| {
                let log = view.log;
                let full = log.entries.len() as u32 == concurrency;
                let warm = log.entries.iter().all(|e| e.step >= COLD && e.result.is_ok());
                if full && warm && log.times.is_some() {
                    let key = (log.rows(), budget > 0);
                    contexts.entry(key).or_default().push(view.batch.iter().map(|s| f64::from(s.start)).sum());
                    groups.entry(key).or_default().push(RoundLog { entries: Vec::new(), ..log.clone() });
                }
            })?;
        }
        for ((rows, drafted), logs) in groups {
            let n = logs.len() as u32;
            if n < REPEATS {
                continue;
            }
            let mean = |f: &dyn Fn(&RoundLog) -> f64| logs.iter().map(f).sum::<f64>() / f64::from(n);
            let mut ms = [0.0; Phase::ALL.len()];
            for phase in Phase::ALL {
                ms[phase as usize] = mean(&|l| l.times.map_or(0.0, |t| t.of(phase)));
            }
            let counted: Vec<f64> = logs.iter().filter_map(RoundLog::experts_mean).collect();
            let sums = &contexts[&(rows, drafted)];
            let timed = Timed {
                requests: concurrency,
                rows,
                context_sum: sums.iter().sum::<f64>() / f64::from(n),
                context: [
                    sums.iter().copied().fold(f64::INFINITY, f64::min) / f64::from(concurrency),
                    sums.iter().copied().fold(0.0, f64::max) / f64::from(concurrency),
                ],
                draft_rows: if drafted { concurrency * (info.depth + 1) } else { 0 },
                experts: (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64),
                ms,
                repeats: n,
            };
            if !quiet {
                let (ms, draft) = (timed.round(), if drafted { "" } else { ", plain" });
                // A message that cannot be shown is no reason to stop.
                let _ =
                    writeln!(std::io::stderr(), "{concurrency} requests, {rows} rows{draft}: {ms:.2} ms ({n} rounds)");
            }
            out.push(timed);
        }
    }
    Ok(out)
}
