//! Which end of a step: every end is compared, by ratio or by renewal reward, under an optional limit on the step time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a choice maximises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Expected tokens over ms of the step: the published form (CaDDTree arXiv 2606.01813, BASTION arXiv 2605.29727).
    Ratio,
    /// Σ(1 + Φ) − g·C with g = the running throughput: the long-run optimum of steps that differ (renewal reward,
    /// Dinkelbach's form).
    Renewal,
}

/// What a step is chosen for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// What is maximised.
    pub objective: Objective,
    /// Goodput: the most ms that a step may take for its tokens to count, `None` = no limit. A step is what a user waits
    /// for between two deliveries, so the limit is one on every user's latency.
    pub latency_ms: Option<f64>,
}

/// A choice among ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the end.
    pub end: usize,
    /// Whether its step time respects the limit. `false`: none does, and the end is the one of the shortest step.
    pub within: bool,
}

/// Chooses among ends, given as (expected tokens of the step, ms of the step), ascending in nodes: all of them are
/// compared, since a cost may be concave or stepped and the first end that does not improve says nothing about later
/// ones. `g` = the throughput in tokens/ms that [`Objective::Renewal`] weighs time with; without one (before the first
/// step) the ratio decides. Tokens and g must be of the same scope: those of the whole batch, or of one request with g
/// divided by the requests. Ends whose ms is no positive number are passed over. Ties go to the first. `None` without a
/// usable end.
#[inline]
pub fn choose(goal: &Goal, g: Option<f64>, ends: impl IntoIterator<Item = (f64, f64)>) -> Option<Chosen> {
    let limit = goal.latency_ms.unwrap_or(f64::INFINITY);
    let g = if goal.objective == Objective::Renewal { g } else { None };
    let (mut best, mut fastest) = (None::<(usize, f64)>, None::<(usize, f64)>);
    for (i, (tokens, ms)) in ends.into_iter().enumerate() {
        // Written so that NaN is passed over too.
        if !(ms > 0.0 && ms < f64::INFINITY) {
            continue;
        }
        if ms <= limit {
            let value = g.map_or(tokens / ms, |g| tokens - g * ms);
            if best.is_none_or(|(_, b)| value > b) {
                best = Some((i, value));
            }
        } else if fastest.is_none_or(|(_, f)| ms < f) {
            fastest = Some((i, ms));
        }
    }
    let within = best.is_some();
    best.or(fastest).map(|(end, _)| Chosen { end, within })
}

/// Running throughput g in tokens/ms, with decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    keep: f64,
    tokens: f64,
    ms: f64,
}

impl Throughput {
    /// An empty average over about `memory` steps (more than 1).
    #[must_use]
    pub fn new(memory: f64) -> Self {
        Self { keep: 1.0 - 1.0 / memory, tokens: 0.0, ms: 0.0 }
    }

    /// Takes in a step.
    pub fn push(&mut self, tokens: f64, ms: f64) {
        self.tokens = self.tokens * self.keep + tokens;
        self.ms = self.ms * self.keep + ms;
    }

    /// Tokens per ms; `None` before the first step.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        (self.ms > 0.0).then(|| self.tokens / self.ms)
    }
}
