//! What a priced run answers: the choice that pays, its interval and what that is made of, what would change it, and the
//! cells that have no figures.

use serde::{Deserialize, Serialize};

/// The best policy at one acceptance, context and concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// The policy with the highest throughput.
    pub best: Choice,
    /// τ of the best.
    pub tau: f64,
    /// Mean rows per request of the best, root included.
    pub rows: f64,
    /// Requests that the candidates share: what sampling is judged on.
    pub requests: u32,
    /// Throughput of the best over plain decoding at the same cap, both while the engine works (an open loop's idle time is
    /// nobody's gain).
    pub speedup: f64,
    /// Interval of the speed-up: sampling, model and transfer together, as far as they were computed; `null` = none was.
    pub lo: Option<f64>,
    /// Its upper end.
    pub hi: Option<f64>,
    /// What the interval is made of.
    pub parts: ErrorParts,
    /// What the interval leaves out, a line each with the reason. Where there is one, the interval is a lower bound of the
    /// uncertainty.
    pub left_out: Vec<String>,
    /// Throughput of the best over the reference budget, today's practice; `null` where the reference was not run.
    pub over_reference: Option<f64>,
    /// The reference that `over_reference` is of.
    pub reference: Option<Choice>,
    /// The best policy whose tree size does not depend on the step, where `best` is another.
    pub best_fixed: Option<CandidateGain>,
    /// Share of the bootstrap in which `best` is best; `null` with too few requests for one.
    pub p_best: Option<f64>,
    /// The next best.
    pub runner_up: Option<Choice>,
    /// Throughput of the best over that of the runner-up.
    pub over_runner_up: Option<f64>,
    /// Inputs that, moved by their stated error, change the best fixed budget.
    pub flips: Vec<Flip>,
    /// Throughput of every candidate over plain decoding, in file order.
    pub candidates: Vec<CandidateGain>,
}

impl Answer {
    /// Whether the interval leaves something out, so that the uncertainty is at least that wide.
    #[must_use]
    pub fn at_least(&self) -> bool {
        !self.left_out.is_empty()
    }
}

/// A policy at a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The policy's kind; `plain` for plain decoding.
    pub policy: String,
    /// Nodes without the root.
    pub budget: u32,
}

/// One candidate's gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateGain {
    /// Which.
    pub choice: Choice,
    /// Throughput over plain decoding.
    pub speedup: f64,
}

/// Half-widths of a speed-up's interval as shares of it (0.02 = ±2 %), by what they come from. `null` = not computed: never
/// the same as 0, [`Answer::left_out`] has the reason.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ErrorParts {
    /// Over requests, by bootstrap.
    pub sampling: Option<f64>,
    /// Uncertain parameters of the acceptance process at their low and high values; 0 for a trace.
    pub model: Option<f64>,
    /// The op tables' stated error on a machine that they were not measured on, or of their fit.
    pub transfer: Option<f64>,
}

/// One input that changes the best choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flip {
    /// Short name of the input, the same for its low and high end.
    pub key: String,
    /// The input, as `sibling independence` or `all-reduce time`.
    pub input: String,
    /// By how much it was moved, in words.
    pub change: String,
    /// The best choice then.
    pub best_after: Choice,
    /// Throughput lost then by keeping the first choice, as a share.
    pub loss: f64,
}

/// A cell that was not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedCell {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// Policy and budget.
    pub choice: Choice,
    /// Why, with what to change.
    pub reason: String,
    /// Bytes of KV per GPU that are missing, where that is the reason.
    pub missing_bytes: Option<f64>,
    /// The largest concurrency cap that fits.
    pub largest_cap: Option<u32>,
}

/// A cell that failed: it has no figures and is in no answer. The others of its setting are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedCell {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// Policy and budget; `null` = every candidate of the setting.
    pub choice: Option<Choice>,
    /// Why.
    pub reason: String,
}
