//! What a cell drew: the difference of two readings of the machine's energy counter.

use std::time::Instant;

/// Shorter cells are not told: a GPU's counter moves about ten times a second.
const SHORTEST_S: f64 = 1.0;

/// A reading of the counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    joules: f64,
    at: Instant,
}

/// Energy of a cell, prefill included: the counter knows no phases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Energy {
    /// Joules.
    pub joules: f64,
    /// Seconds in which they were drawn.
    pub seconds: f64,
}

impl Reading {
    /// What the counter shows now; `None` where there is none.
    pub fn now(joules: Option<f64>) -> Option<Self> {
        joules.map(|joules| Self { joules, at: Instant::now() })
    }

    /// What was drawn from this reading to `end`; `None` where that is too little to be told.
    pub fn until(self, end: Self) -> Option<Energy> {
        let (joules, seconds) = (end.joules - self.joules, (end.at - self.at).as_secs_f64());
        (joules > 0.0 && seconds >= SHORTEST_S).then_some(Energy { joules, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn short_and_backward_readings_are_not_told() {
        let at = Instant::now();
        let reading = |joules, ms| Reading { joules, at: at + Duration::from_millis(ms) };
        let begin = reading(100.0, 0);
        assert_eq!(begin.until(reading(900.0, 2000)), Some(Energy { joules: 800.0, seconds: 2.0 }));
        assert_eq!(begin.until(reading(500.0, 900)), None, "below the counter's resolution");
        assert_eq!(begin.until(reading(50.0, 2000)), None, "the driver was loaded anew");
        assert!(Reading::now(None).is_none());
    }
}
