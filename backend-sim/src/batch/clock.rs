//! The clock of a priced run, and who waited how long.

use super::latency::Visit;
use crate::cost::PromptPrice;
use treeline_core::log::PhaseTimes;
use treeline_core::{Fault, Step};

/// Simulated time and what it was spent on.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// Since the start of the run, in ms.
    pub now_ms: f64,
    /// Prefill since the last round: its time, and its energy on one GPU.
    pub charged: PromptPrice,
    /// Of the round that was priced last.
    pub times: Option<PhaseTimes>,
    /// Everyone who was admitted, in order of admission.
    pub visits: Vec<Visit>,
    /// Index in `visits` by slot.
    running: Vec<Option<usize>>,
}

impl Clock {
    /// A request enters `slot`; its prompt takes `prefill`.
    pub fn enter(&mut self, slot: u32, request: u64, arrival_ms: f64, prefill: PromptPrice) {
        let admitted_ms = self.now_ms;
        self.now_ms += prefill.ms;
        self.charged.ms += prefill.ms;
        self.charged.joules += prefill.joules;
        let slot = slot as usize;
        if self.running.len() <= slot {
            self.running.resize(slot + 1, None);
        }
        self.running[slot] = Some(self.visits.len());
        let first_ms = self.now_ms;
        // The prefill chooses the first token.
        self.visits.push(Visit { request, arrival_ms, admitted_ms, first_ms, end_ms: None, tokens: 1 });
    }

    /// A round went by: `times` without prefill, which is added here, and what it gave the sequences in `slots`.
    pub fn round<'r>(
        &mut self,
        mut times: PhaseTimes,
        slots: impl Iterator<Item = u32>,
        results: impl Iterator<Item = &'r Result<Step, Fault>>,
    ) -> PromptPrice {
        self.now_ms += times.round();
        let charged = std::mem::take(&mut self.charged);
        times.ms[treeline_core::Phase::Prefill as usize] = charged.ms;
        self.times = Some(times);
        for (slot, result) in slots.zip(results) {
            let visit = self.running.get(slot as usize).copied().flatten();
            if let (Some(visit), Ok(step)) = (visit, result) {
                self.visits[visit].tokens += step.emitted.len() as u32;
            }
        }
        charged
    }

    /// The sequence in `slot` leaves.
    pub fn leave(&mut self, slot: u32) {
        if let Some(visit) = self.running.get_mut(slot as usize).and_then(Option::take) {
            self.visits[visit].end_ms = Some(self.now_ms);
        }
    }
}
