//! Wall-clock time by phase.

use std::time::{Duration, Instant};
use treeline_core::{Phase, PhaseTimes};

/// Charges the time between marks to the phase of the earlier mark.
#[derive(Debug)]
pub(crate) struct Clock {
    since: Instant,
    phase: Phase,
    spent: [Duration; Phase::ALL.len()],
}

impl Clock {
    pub fn new() -> Self {
        Self { since: Instant::now(), phase: Phase::Host, spent: Default::default() }
    }

    /// `phase` begins.
    pub fn mark(&mut self, phase: Phase) {
        let now = Instant::now();
        self.spent[self.phase as usize] += now - self.since;
        self.since = now;
        self.phase = phase;
    }

    /// Moves time that was or will be charged to `from` over to `to`.
    pub fn shift(&mut self, from: Phase, to: Phase, time: Duration) {
        // The running phase is charged at its next mark: until then its entry may not go below zero.
        self.mark(self.phase);
        let time = time.min(self.spent[from as usize]);
        self.spent[from as usize] -= time;
        self.spent[to as usize] += time;
    }

    /// Times since the last call.
    pub fn take(&mut self) -> PhaseTimes {
        self.mark(self.phase);
        let spent = std::mem::take(&mut self.spent);
        PhaseTimes { ms: spent.map(|t| t.as_secs_f64() * 1e3) }
    }
}
