//! An engine that keeps the logits of every pass, so that a token can be held against the row that it came from.

use std::cell::RefCell;
use std::rc::Rc;
use treeline_core::{
    Admit, Engine, EngineInfo, Error, Fault, Forest, Law, Phase, PhaseTimes, Program, Request, Round, RoundLog,
    RoundView,
};
use treeline_cuda::engine::{CudaDrafter, CudaDrafts, CudaEngine, CudaFeatures, CudaVerifier};

/// Logits of the rows of a pass, sequence after sequence.
pub type Pass = Rc<RefCell<Vec<Vec<f32>>>>;

pub struct Tap {
    engine: CudaEngine,
    /// Rows that are read of each pass.
    rows: u32,
    ran: bool,
    pub pass: Pass,
}

impl Tap {
    /// Keeps the first `rows` rows.
    pub fn new(engine: CudaEngine, rows: u32) -> Self {
        Self { engine, rows, ran: false, pass: Pass::default() }
    }
}

impl Engine for Tap {
    type V = CudaVerifier;
    type D = CudaDrafter;

    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault> {
        self.engine.admit(slot, request, law)
    }

    fn release(&mut self, slot: u32) {
        self.engine.release(slot);
    }

    fn parts(&mut self) -> (&mut CudaDrafter, &mut CudaVerifier, &mut CudaFeatures) {
        self.engine.parts()
    }

    fn fused(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        law: &Law<'_>,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> Result<Option<CudaDrafts>, Error> {
        let drafts = self.engine.fused(round, program, law, forest, log)?;
        self.ran |= drafts.is_some();
        Ok(drafts)
    }

    fn mark(&mut self, phase: Phase) {
        self.ran |= phase == Phase::Verify;
        if phase == Phase::Host && std::mem::take(&mut self.ran) {
            let verifier = self.engine.parts().1;
            *self.pass.borrow_mut() = (0..self.rows).map(|row| verifier.logits(row).unwrap()).collect();
        }
        self.engine.mark(phase);
    }

    fn take_times(&mut self) -> Option<PhaseTimes> {
        self.engine.take_times()
    }
}

/// Every emitted token of a round: index of its request, its absolute position, the token, and its row of the pass.
pub fn emitted(view: &RoundView<'_>) -> Vec<(usize, u32, u32, usize)> {
    let (mut out, mut first) = (Vec::new(), 0);
    for (at, entry) in view.log.entries.iter().enumerate() {
        let step = entry.result.as_ref().unwrap();
        for (i, &token) in step.emitted.iter().enumerate() {
            let node = if i == 0 { 0 } else { step.path[i - 1] };
            out.push((entry.index, entry.start + 1 + i as u32, token, first + node as usize));
        }
        first += view.forest.tree(at).rows() as usize;
    }
    out
}
