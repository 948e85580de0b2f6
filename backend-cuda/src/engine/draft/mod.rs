//! The engine's drafters behind one type.

mod autoregressive;
mod block;
mod rows;

pub(crate) use autoregressive::Autoregressive;
pub(crate) use block::{Block, stride};

use super::features::CudaFeatures;
use super::verifier::broken;
use rows::Rows;
use std::time::Duration;
use treeline_core::draft::{Drafts, Drawn};
use treeline_core::{Ask, Batch, Drafter, Draw, Error, Forest, Lattice, NodeRef};

/// The drafter of an engine, with its caches of all slots.
#[derive(Debug)]
pub struct CudaDrafter {
    pub(super) kind: Kind,
    /// Seed of drawn candidates: the law's.
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Plain decoding only.
    None,
    Block(Box<Block>),
    Autoregressive(Box<Autoregressive>),
}

/// A round's drafts; conditional ones with what was asked for.
pub type CudaDrafts = Drafts<Vec<Ask>>;

impl CudaDrafter {
    /// Forgets a slot.
    pub(super) fn release(&mut self, slot: u32) {
        if let Kind::Autoregressive(drafter) = &mut self.kind {
            drafter.release(slot as usize);
        }
    }

    pub(super) fn graphs(&self) -> usize {
        match &self.kind {
            Kind::Block(drafter) => drafter.graphs.len(),
            Kind::None | Kind::Autoregressive(_) => 0,
        }
    }

    pub(super) fn forget_graphs(&mut self) {
        if let Kind::Block(drafter) = &mut self.kind {
            drafter.graphs.forget();
        }
    }

    /// Time that captures have taken since the last call.
    pub(super) fn take_spent(&mut self) -> Duration {
        match &mut self.kind {
            Kind::Block(drafter) => drafter.graphs.take_spent(),
            Kind::None | Kind::Autoregressive(_) => Duration::ZERO,
        }
    }
}

impl Drafter for CudaDrafter {
    type Features = CudaFeatures;
    type Drafts = CudaDrafts;

    fn draft(&mut self, batch: &Batch, features: &CudaFeatures, ask: &[Ask]) -> Result<CudaDrafts, Error> {
        let draws = ask.iter().any(|a| a.draw != Draw::Ranked);
        match &mut self.kind {
            Kind::None => {
                let mut lattice = Lattice::new(0);
                for _ in batch.iter() {
                    lattice.begin_seq();
                }
                Ok(CudaDrafts::Ranked(lattice))
            }
            Kind::Block(drafter) => {
                let lattice = drafter.draft(batch, features, ask, draws).map_err(broken)?;
                Ok(match draws {
                    true => CudaDrafts::Drawn(Drawn::new(lattice, batch, ask, self.seed)),
                    false => CudaDrafts::Ranked(lattice),
                })
            }
            Kind::Autoregressive(drafter) => {
                let mut out = Rows::new(batch, ask, drafter.vocab(), self.seed);
                drafter.draft(batch, features, &mut out).map_err(broken)?;
                Ok(CudaDrafts::Conditional(out.finish(), ask.to_vec()))
            }
        }
    }

    fn expand(
        &mut self,
        drafts: &mut CudaDrafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        let CudaDrafts::Conditional(drafts, ask) = drafts else { return Ok(()) };
        let Kind::Autoregressive(drafter) = &mut self.kind else { return Ok(()) };
        // Levels beyond what was asked for, and nodes that are expanded already, cost nothing.
        let wanted = |at: &&NodeRef| at.depth < ask[at.seq as usize].depth && !drafts.expanded(**at);
        let mut wave: Vec<NodeRef> = wave.iter().filter(wanted).copied().collect();
        wave.sort_unstable();
        wave.dedup();
        let mut out = Rows::continued(std::mem::take(drafts), batch, ask, drafter.vocab(), self.seed);
        let done = drafter.expand(batch, forest, &wave, &mut out);
        *drafts = out.finish();
        done.map_err(broken)
    }
}
