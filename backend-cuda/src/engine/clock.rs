//! Time by phase. The device works behind the host, so a phase's time counts from and to a point where both have met.

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

    /// Moves `ms` that were charged to `from` over to `to`: what events measured inside one stretch of device work.
    pub fn shift(&mut self, from: Phase, to: Phase, ms: f32) {
        self.mark(self.phase);
        let time = Duration::from_secs_f64(f64::from(ms.max(0.0)) * 1e-3).min(self.spent[from as usize]);
        self.spent[from as usize] -= time;
        self.spent[to as usize] += time;
    }

    /// Leaves out time that belongs to no phase of a round.
    pub fn skip(&mut self, time: Duration) {
        self.since += time.min(self.since.elapsed());
    }

    /// Times since the last call.
    pub fn take(&mut self) -> PhaseTimes {
        self.mark(self.phase);
        let spent = std::mem::take(&mut self.spent);
        PhaseTimes { ms: spent.map(|t| t.as_secs_f64() * 1e3) }
    }
}
