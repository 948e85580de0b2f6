//! Policies calibrated on one half of the requests and scored on the other.

use super::Choice;
use serde::{Deserialize, Serialize};

/// One acceptance, context and concurrency: every policy that chooses its size, against the best fixed budget.
///
/// Halves are every second request of each domain. On half A everything that is chosen is chosen: the best fixed budget,
/// what the drafter's claims are worth, the running throughput, whether plain decoding is faster. On half B the same
/// requests are served by every candidate, and quotients are paired by request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitScore {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request; 0 = as the trace has them.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// Requests of half A.
    pub calibrated: u32,
    /// Requests of half B.
    pub scored: u32,
    /// The best fixed budget of half A, plain decoding among them: what one would have configured.
    pub fixed: Choice,
    /// Its throughput on half B over plain decoding.
    pub fixed_speedup: Option<f64>,
    /// The best fixed budget of half B, known only afterwards.
    pub hindsight: Choice,
    /// The policies that choose.
    pub policies: Vec<SplitPolicy>,
}

/// One policy that chooses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPolicy {
    /// Its kind and cap.
    pub choice: Choice,
    /// Whether half A said not to draft at all.
    pub off: bool,
    /// Mean nodes per request and step on half B.
    pub nodes: f64,
    /// Tokens per verify step on half B.
    pub tau: f64,
    /// Its throughput over that of `fixed`, both on half B.
    pub gain: Quotient,
    /// Its throughput over that of `hindsight`.
    pub over_hindsight: Quotient,
    /// Share of resamples of half B in which nothing else that ran is faster.
    pub p_best: f64,
}

/// A quotient paired by request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quotient {
    /// On the requests themselves.
    pub mid: f64,
    /// Lower end of the central 95 % of resamples.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Standard deviation of the resamples.
    pub se: f64,
}
