//! The engine's drafters behind one type.

mod autoregressive;
mod dflash;
mod ngram;

pub(crate) use autoregressive::Autoregressive;
pub(crate) use dflash::{Dflash, DflashModel};
pub(crate) use ngram::{MAX_ORDER, NGram};

use crate::features::{CpuFeatures, SlotFeatures};
use treeline_core::draft::{Drafts, Drawn, draw_row, top_ranks};
use treeline_core::stream::{Key, Purpose};
use treeline_core::{Ask, Batch, Candidate, Conditional, Drafter, Draw, Error, Forest, Lattice, NodeRef, Seq};

/// The drafter of an engine, with its caches of all slots.
#[derive(Debug)]
pub struct CpuDrafter {
    pub(crate) kind: Kind,
    /// Seed of drawn candidates: the law's.
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Plain decoding only.
    None,
    Dflash(Box<Dflash>),
    Autoregressive(Box<Autoregressive>),
    NGram(NGram),
}

/// A round's drafts; conditional ones with what was asked for.
pub type CpuDrafts = Drafts<Vec<Ask>>;

impl CpuDrafter {
    /// Takes in what is committed of a slot; the engine calls it with the prompt, so that its time counts as prefill.
    pub(crate) fn absorb(&mut self, slot: usize, features: &SlotFeatures) {
        match &mut self.kind {
            Kind::None => features.take_to(features.end()),
            Kind::Dflash(drafter) => drafter.absorb(&[(slot, features)]),
            Kind::Autoregressive(drafter) => drafter.absorb(slot, features),
            Kind::NGram(drafter) => drafter.absorb(slot, features),
        }
    }

    /// Forgets a slot.
    pub(crate) fn release(&mut self, slot: usize) {
        match &mut self.kind {
            Kind::None => {}
            Kind::Dflash(drafter) => drafter.release(slot),
            Kind::Autoregressive(drafter) => drafter.release(slot),
            Kind::NGram(drafter) => drafter.release(slot),
        }
    }
}

impl Drafter for CpuDrafter {
    type Features = CpuFeatures;
    type Drafts = CpuDrafts;

    fn draft(&mut self, batch: &Batch, features: &CpuFeatures, ask: &[Ask]) -> Result<CpuDrafts, Error> {
        let draws = ask.iter().any(|a| a.draw != Draw::Ranked);
        match &mut self.kind {
            Kind::None => {
                let mut lattice = Lattice::new(0);
                for _ in batch.iter() {
                    lattice.begin_seq();
                }
                Ok(CpuDrafts::Ranked(lattice))
            }
            Kind::Dflash(drafter) => {
                let lattice = drafter.draft(batch, features, ask, draws);
                Ok(match draws {
                    true => CpuDrafts::Drawn(Drawn::new(lattice, batch, ask, self.seed)),
                    false => CpuDrafts::Ranked(lattice),
                })
            }
            Kind::Autoregressive(drafter) => {
                let mut out = Rows::new(batch, ask, drafter.vocab(), self.seed);
                drafter.draft(batch, features, &mut out);
                Ok(CpuDrafts::Conditional(out.drafts, ask.to_vec()))
            }
            Kind::NGram(drafter) => {
                let mut out = Rows::new(batch, ask, drafter.vocab(), self.seed);
                drafter.draft(batch, features, &mut out);
                Ok(CpuDrafts::Conditional(out.drafts, ask.to_vec()))
            }
        }
    }

    fn expand(
        &mut self,
        drafts: &mut CpuDrafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        let CpuDrafts::Conditional(drafts, ask) = drafts else { return Ok(()) };
        let vocab = match &self.kind {
            Kind::Autoregressive(drafter) => drafter.vocab(),
            Kind::NGram(drafter) => drafter.vocab(),
            Kind::None | Kind::Dflash(_) => return Ok(()),
        };
        // Levels beyond what was asked for, and nodes that are expanded already, cost nothing.
        let wanted = |at: &&NodeRef| at.depth < ask[at.seq as usize].depth && !drafts.expanded(**at);
        let mut wave: Vec<NodeRef> = wave.iter().filter(wanted).copied().collect();
        wave.sort_unstable();
        wave.dedup();
        let mut out = Rows {
            drafts: std::mem::take(drafts),
            batch,
            ask,
            vocab,
            seed: self.seed,
            logp: Vec::new(),
            row: Vec::new(),
        };
        match &mut self.kind {
            Kind::Autoregressive(drafter) => drafter.expand(batch, forest, &wave, &mut out),
            Kind::NGram(drafter) => drafter.expand(batch, forest, &wave, &mut out),
            Kind::None | Kind::Dflash(_) => {}
        }
        *drafts = out.drafts;
        Ok(())
    }
}

/// Where a conditional drafter writes the children of nodes.
pub(crate) struct Rows<'a> {
    drafts: Conditional,
    batch: &'a Batch,
    ask: &'a [Ask],
    vocab: usize,
    seed: u64,
    logp: Vec<f32>,
    row: Vec<Candidate>,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a Batch, ask: &'a [Ask], vocab: usize, seed: u64) -> Self {
        let mut drafts = Conditional::new(batch.len(), vocab);
        for (seq, ask) in (0..).zip(ask) {
            drafts.set_depth(seq, ask.depth);
        }
        Self { drafts, batch, ask, vocab, seed, logp: Vec::new(), row: Vec::new() }
    }

    /// What was asked for sequence `seq`.
    pub fn ask(&self, seq: usize) -> Ask {
        self.ask[seq]
    }

    /// Stores the children of `at` from the log-probabilities that `fill` writes (vocabulary long).
    pub fn put(&mut self, at: NodeRef, fill: impl FnOnce(&mut [f32])) {
        self.logp.resize(self.vocab, 0.0);
        fill(&mut self.logp);
        let (ask, depth) = (self.ask[at.seq as usize], at.depth + 1);
        let made = match ask.draw {
            Draw::Ranked => {
                let made = top_ranks(&self.logp, ask.width as usize, depth, &mut self.row);
                made.map(|()| self.drafts.expand(at, &self.row, None, true, true))
            }
            Draw::Sampled { replace } => {
                self.logp.iter_mut().for_each(|p| *p = p.exp());
                let key = draw_key(self.seed, &self.batch.seqs[at.seq as usize], at);
                let made = draw_row(&self.logp, key, ask.width as usize, replace, depth, &mut self.row);
                made.map(|()| self.drafts.expand(at, &self.row, Some(&self.logp), false, !replace))
            }
        };
        if let Err(fault) = made {
            self.drafts.fail(at.seq, fault);
        }
    }
}

/// Key of the draws of one node's children.
fn draw_key(seed: u64, seq: &Seq, at: NodeRef) -> Key {
    let position = seq.start + at.depth + 1;
    Key { seed, purpose: Purpose::DraftDraw, request: seq.request, position, round: seq.round, node: at.node }
}
