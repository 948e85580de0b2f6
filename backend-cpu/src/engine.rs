//! The engine: slots, admission in prompt chunks, and the parts that the round protocol drives.

use crate::draft::{CpuDrafter, Kind};
use crate::error::{CpuError, Result};
use crate::features::CpuFeatures;
use crate::model::Model;
use crate::seeded::{Seeded, seeded};
use crate::verifier::CpuVerifier;
use std::sync::Arc;
use treeline_core::{Admit, Engine, EngineInfo, Fault, Law, Phase, PhaseTimes, Request, Slots};

/// Sizes of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSettings {
    /// Sequences at once.
    pub slots: u32,
    /// Positions per sequence, prompt and tree rows included.
    pub context: u32,
    /// Prompt tokens per call of `admit`; any size gives the same bits.
    pub chunk: u32,
}

impl EngineSettings {
    /// Refuses sizes that cannot work with models of at most `most` positions; called before anything is allocated.
    pub(crate) fn check(&self, most: usize) -> Result<()> {
        let refuse = |key, problem: String| Err(CpuError::Setting { key, problem });
        if self.slots == 0 || self.slots > 4096 {
            return refuse("slots", format!("is {}; it must be from 1 to 4096", self.slots));
        }
        if self.chunk == 0 {
            return refuse("chunk", "is 0: a prompt would never be processed".into());
        }
        if self.context < 2 || self.context as usize > most {
            return refuse("context", format!("is {}; this pair takes from 2 to {most} positions", self.context));
        }
        Ok(())
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { slots: 1, context: 2048, chunk: 64 }
    }
}

/// A target and a drafter on the CPU. Single-threaded; models are shared, so any number of engines may run side by side.
#[derive(Debug)]
pub struct CpuEngine {
    info: EngineInfo,
    chunk: usize,
    verifier: CpuVerifier,
    drafter: CpuDrafter,
    features: CpuFeatures,
    slots: Slots,
}

/// What a drafter brings to an engine.
pub(crate) struct Draft {
    pub kind: Kind,
    pub taps: Vec<usize>,
    pub depth: u32,
    pub conditional: bool,
    pub draws: bool,
}

impl CpuEngine {
    pub(crate) fn new(target: Arc<Model>, draft: Draft, settings: EngineSettings) -> Self {
        let slots = settings.slots as usize;
        let vocab = target.config().vocab as u32;
        let features = CpuFeatures::new(slots, draft.taps.len() * target.config().hidden);
        Self {
            info: EngineInfo {
                slots: settings.slots,
                context: settings.context,
                vocab,
                depth: draft.depth,
                width: vocab,
                conditional: draft.conditional,
                draws: draft.draws,
            },
            chunk: settings.chunk as usize,
            verifier: CpuVerifier::new(target, slots, draft.taps),
            drafter: CpuDrafter { kind: draft.kind, seed: 0 },
            features,
            slots: Slots::new(settings.slots),
        }
    }

    /// Slots that no request holds; all of them after a run.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.slots.free()
    }
}

impl Engine for CpuEngine {
    type V = CpuVerifier;
    type D = CpuDrafter;

    fn info(&self) -> EngineInfo {
        self.info
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> std::result::Result<Admit, Fault> {
        let at = slot as usize;
        let done = match self.slots.begin(&self.info, slot, request) {
            Ok(done) => done,
            Err(fault) => {
                // A request whose prompt is on its way gives its slot back; one that asked for another's leaves it alone.
                if self.slots.filling(slot, request) {
                    self.release(slot);
                }
                return Err(fault);
            }
        };
        self.drafter.seed = law.seed();
        let end = (done + self.chunk).min(request.prompt.len());
        self.verifier.plan.clear(true);
        self.verifier.plan.chunk(at, done, &request.prompt[done..end]);
        self.verifier.forward();
        for (row, &token) in request.prompt[done..end].iter().enumerate() {
            self.features.slots[at].push(token, self.verifier.row_taps(row));
        }
        self.drafter.absorb(at, &self.features.slots[at]);
        let last = end == request.prompt.len();
        self.slots.advance(slot, request, end);
        if !last {
            return Ok(Admit::More);
        }
        let root = self.verifier.first_token(end - done - 1, law, request);
        root.map(|root| Admit::Done { root, start: end as u32 }).inspect_err(|_| self.release(slot))
    }

    fn release(&mut self, slot: u32) {
        if seeded(Seeded::SlotLeak) {
            return;
        }
        if self.slots.release(slot) {
            self.features.slots[slot as usize].clear();
            self.drafter.release(slot as usize);
        }
    }

    fn parts(&mut self) -> (&mut CpuDrafter, &mut CpuVerifier, &mut CpuFeatures) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }

    fn mark(&mut self, phase: Phase) {
        self.verifier.clock.mark(phase);
    }

    fn take_times(&mut self) -> Option<PhaseTimes> {
        Some(self.verifier.clock.take())
    }
}
