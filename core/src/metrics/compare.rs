//! Speed-up of one cell over another, and when there is none to state.

use thiserror::Error;

/// Time per output token of one user: over all rounds, the round's time once per request that decoded in it, divided by
/// the tokens that these requests got. Prefill is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tpot {
    /// Milliseconds spent in rounds, summed over requests.
    pub user_ms: f64,
    /// Tokens that these rounds emitted.
    pub tokens: u64,
    /// The cap on requests that decode together.
    pub concurrency: u32,
}

impl Tpot {
    /// Milliseconds per token; `None` without tokens or time.
    #[must_use]
    pub fn ms(&self) -> Option<f64> {
        (self.tokens > 0 && self.user_ms > 0.0).then(|| self.user_ms / self.tokens as f64)
    }
}

/// Why two cells must not be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Incomparable {
    /// The concurrency caps differ, so most of a difference is batching (a public "5.6×" was 1.4×).
    #[error("concurrency caps differ ({base} against {other}): measure both cells at the same cap")]
    Concurrency {
        /// Cap of the baseline.
        base: u32,
        /// Cap of the other cell.
        other: u32,
    },
    /// One of the cells has no tokens, or no clock.
    #[error("a cell has no timed tokens: run it on an engine with a clock")]
    NoTime,
}

/// Baseline time per token over `other`'s, at the same concurrency cap.
///
/// # Errors
/// [`Incomparable`] when the caps differ or a cell was not timed.
pub fn speedup(base: &Tpot, other: &Tpot) -> Result<f64, Incomparable> {
    if base.concurrency != other.concurrency {
        return Err(Incomparable::Concurrency { base: base.concurrency, other: other.concurrency });
    }
    match (base.ms(), other.ms()) {
        (Some(base), Some(other)) => Ok(base / other),
        _ => Err(Incomparable::NoTime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Public fault 49: a speed-up that was a changed concurrency cap.
    #[test]
    fn fault_49_different_caps_are_refused() {
        let tpot = |user_ms, concurrency| Tpot { user_ms, tokens: 100, concurrency };
        assert_eq!(speedup(&tpot(1400.0, 4), &tpot(1000.0, 4)), Ok(1.4));
        let changed = (tpot(5600.0, 16), tpot(1000.0, 4));
        assert_eq!(speedup(&changed.0, &changed.1), Err(Incomparable::Concurrency { base: 16, other: 4 }));
        // Negative control: the plain quotient of the times claims 5.6.
        assert_eq!(changed.0.ms().unwrap() / changed.1.ms().unwrap(), 5.6);
        assert_eq!(speedup(&tpot(0.0, 4), &tpot(1.0, 4)), Err(Incomparable::NoTime));
    }
}
