//! Parameters that `cost-aware`, `batch-wide` and `adaptive` share: their values unless given, and what they may be. What each is
//! for stands at the key of the policy that reads it.

use crate::best_first::check_beam;
use crate::registry::BuildError;

/// Relative gain below which a choice stays.
pub(crate) fn margin() -> f64 {
    0.02
}

/// Share of rounds that look what else would pay.
pub(crate) fn probe() -> f64 {
    0.01
}

/// Rounds or observations that an average remembers.
pub(crate) fn memory() -> f64 {
    256.0
}

/// Weight of the drafter's own claim, in pseudo-hits.
pub(crate) fn prior() -> f64 {
    8.0
}

/// Ranks with a posterior of their own.
pub(crate) fn ranks() -> u32 {
    8
}

/// The shared parameters of one policy as they were given.
pub(crate) struct Knobs {
    pub latency_ms: Option<f64>,
    pub margin: f64,
    pub probe: f64,
    pub memory: f64,
    pub prior: f64,
    pub ranks: u32,
    pub beam: u32,
}

impl Knobs {
    /// Refuses what no policy can work with, under the policy's `kind`.
    pub fn check(&self, kind: &str) -> Result<(), BuildError> {
        let bad = |key: &str, why: &str| Err(BuildError::value(kind, key, why));
        check_latency(kind, self.latency_ms)?;
        if !(self.margin >= 0.0 && self.margin < 1.0) {
            return bad("margin", "must be at least 0 and below 1");
        }
        if !(self.probe >= 0.01 && self.probe <= 1.0) {
            return bad("probe", "must be from 0.01 to 1: without probes a choice would last for ever");
        }
        if !(self.memory > 1.0 && self.memory.is_finite()) {
            return bad("memory", "must be more than 1 observation");
        }
        if !(self.prior > 0.0 && self.prior.is_finite()) {
            return bad("prior", "must be more than 0 pseudo-hits");
        }
        if self.ranks == 0 || self.ranks > 1024 {
            return bad("ranks", "must be from 1 to 1024");
        }
        check_beam(kind, self.beam)
    }
}

/// Refuses a latency limit that no step can respect.
pub(crate) fn check_latency(kind: &str, limit: Option<f64>) -> Result<(), BuildError> {
    match limit {
        Some(ms) if !(ms > 0.0 && ms.is_finite()) => {
            Err(BuildError::value(kind, "latency_ms", "must be a positive number of ms; leave it out for no limit"))
        }
        _ => Ok(()),
    }
}
