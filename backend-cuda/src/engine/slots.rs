//! The engine: slots, admission in prompt chunks, and the parts that the round protocol drives.

use super::draft::{CudaDrafter, CudaDrafts, Kind};
use super::features::{CudaFeatures, Taps};
use super::fused::Fused;
use super::pair::StandIn;
use super::settings::CudaSettings;
use super::verifier::CudaVerifier;
use crate::device::{Arch, Gpu};
use crate::error::Result;
use crate::model::Target;
use std::cell::RefCell;
use std::sync::Arc;
use treeline_core::law::{Scratch, first_token};
use treeline_core::{
    Admit, Engine, EngineInfo, Error, Fault, Forest, Law, Phase, PhaseTimes, Program, Request, Round, RoundLog, Slots,
};

/// A target and a drafter on one device, with caches for a fixed number of sequences.
#[derive(Debug)]
pub struct CudaEngine {
    info: EngineInfo,
    chunk: usize,
    /// Whether prompts are not computed, since the caches hold numbers without meaning.
    filled: bool,
    pub(super) verifier: CudaVerifier,
    pub(super) drafter: CudaDrafter,
    pub(super) features: CudaFeatures,
    pub(super) fused: Option<Fused>,
    slots: Slots,
}

/// What a drafter brings to an engine.
pub(super) struct Draft {
    pub kind: Kind,
    pub taps: Vec<usize>,
    pub depth: u32,
    pub conditional: bool,
    /// Rows of a block behind the last position; 0 = none.
    pub block: u32,
}

impl CudaEngine {
    pub(super) fn new(gpu: &Gpu, target: Arc<Target>, draft: Draft, settings: CudaSettings) -> Result<Self> {
        let (slots, vocab) = (settings.slots, target.config().vocab as u32);
        let (path, stride) = (draft.depth + 1, super::draft::stride(&settings, draft.block));
        let (hidden, dtype) = (target.config().hidden, target.dtype());
        let taps = match draft.block {
            0 => None,
            _ => Some(Taps::new(gpu, dtype, draft.taps.len() * hidden, path, &settings)?),
        };
        let tokens = draft.conditional.then(|| RefCell::new(vec![Vec::new(); slots as usize]));
        let fused = match &draft.kind {
            Kind::Block(_) if settings.nodes > 0 => Some(Fused::new(gpu, &settings, draft.depth)?),
            _ => None,
        };
        // A conditional drafter's rows are ranked on the host, so it can list every token.
        let width = if draft.conditional || draft.block == 0 { vocab } else { settings.width.min(vocab) };
        Ok(Self {
            info: EngineInfo {
                slots,
                context: settings.context,
                vocab,
                depth: draft.depth,
                width,
                conditional: draft.conditional,
                draws: draft.depth > 0,
            },
            chunk: settings.chunk as usize,
            filled: false,
            verifier: CudaVerifier::new(gpu, target, &settings, &draft.taps, (stride, path))?,
            drafter: CudaDrafter { kind: draft.kind, seed: 0 },
            features: CudaFeatures { tokens, taps },
            fused,
            slots: Slots::new(slots),
        })
    }

    /// Drafts from a trace and routing from a model, before anything is captured.
    pub(super) fn stand_in(&mut self, what: &StandIn) -> Result<()> {
        let gpu = self.verifier.gpu.clone();
        if let Kind::Block(drafter) = &mut self.drafter.kind {
            drafter.follow(what.recorded.clone())?;
            if what.filled {
                drafter.cache().fill(&gpu, what.routing.seed ^ 1)?;
            }
        }
        if what.filled {
            self.verifier.cache().fill(&gpu, what.routing.seed)?;
            self.filled = true;
        }
        self.verifier.route(what.routing)
    }

    /// Slots that no request holds; all of them after a run.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.slots.free()
    }

    /// Rounds that ran on the device from draft to commit.
    #[must_use]
    pub fn device_rounds(&self) -> u64 {
        self.fused.as_ref().map_or(0, |fused| fused.rounds)
    }

    /// Captured graphs of all kinds of work.
    #[must_use]
    pub fn graphs(&self) -> usize {
        self.verifier.graphs() + self.drafter.graphs() + self.fused.as_ref().map_or(0, Fused::graphs)
    }

    /// Drops every captured graph: each is captured anew at its next use.
    pub fn forget_graphs(&mut self) {
        self.verifier.forget_graphs();
        self.drafter.forget_graphs();
        if let Some(fused) = &mut self.fused {
            fused.forget_graphs();
        }
    }

    /// One chunk through target and drafter; returns when the device has done it.
    fn prefill(&mut self, slot: u32, start: usize, tokens: &[u32], last: bool) -> Result<()> {
        self.verifier.chunk(slot, start as u32, tokens, last)?;
        match &mut self.drafter.kind {
            Kind::None => {}
            Kind::Block(drafter) => drafter.absorb(self.verifier.chunk_taps())?,
            Kind::Autoregressive(drafter) => {
                if let Some(committed) = &self.features.tokens {
                    committed.borrow_mut()[slot as usize].extend_from_slice(tokens);
                }
                drafter.absorb(slot as usize, &self.features, 0)?;
            }
        }
        self.verifier.gpu.sync()
    }
}

impl Engine for CudaEngine {
    type V = CudaVerifier;
    type D = CudaDrafter;

    fn info(&self) -> EngineInfo {
        self.info
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> std::result::Result<Admit, Fault> {
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
        if self.filled {
            let root = first_token(law, request, &[], &mut Scratch::default())?;
            let done = request.prompt.len();
            self.slots.advance(slot, request, done);
            return Ok(Admit::Done { root, start: done as u32 });
        }
        let end = (done + self.chunk).min(request.prompt.len());
        let last = end == request.prompt.len();
        self.slots.advance(slot, request, end);
        let root = self.prefill(slot, done, &request.prompt[done..end], last);
        let root = root.map_err(|e| Fault::Request(e.to_string()));
        if !last {
            return root.map(|()| Admit::More).inspect_err(|_| self.release(slot));
        }
        let root = root.and_then(|()| self.verifier.first_token(law, request));
        root.map(|root| Admit::Done { root, start: end as u32 }).inspect_err(|_| self.release(slot))
    }

    fn release(&mut self, slot: u32) {
        if self.slots.release(slot) {
            self.features.release(slot);
            self.drafter.release(slot);
        }
    }

    fn parts(&mut self) -> (&mut CudaDrafter, &mut CudaVerifier, &mut CudaFeatures) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }

    fn fused(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        law: &Law<'_>,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> std::result::Result<Option<CudaDrafts>, Error> {
        self.fused_round(round, program, law, forest, log)
    }

    fn mark(&mut self, phase: Phase) {
        let spent = self.drafter.take_spent();
        self.verifier.clock.skip(spent);
        self.verifier.clock.mark(phase);
    }

    /// None on the emulator, whose time says nothing about a GPU's.
    fn take_times(&mut self) -> Option<PhaseTimes> {
        let times = self.verifier.clock.take();
        (self.verifier.gpu.info().arch != Arch::Host).then_some(times)
    }
}
