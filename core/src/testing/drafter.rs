//! The scripted engine's drafter.

use super::script::Script;
use crate::batch::{Batch, Seq};
use crate::draft::{Ask, Conditional, Drafts, Draw, Drawn, Lattice, NodeRef, draw_row, top_ranks};
use crate::error::Error;
use crate::forest::Forest;
use crate::seams::Drafter;
use crate::stream::{Key, Purpose};

/// The drafter: a noisy copy of the target. As a block drafter, level `d` sees the target's own greedy guess of the levels
/// before.
#[derive(Debug)]
pub struct MockDrafter {
    pub(super) script: Script,
    /// Forward passes so far.
    pub(super) calls: u64,
}

/// What a drafter hands out; conditional drafts with, per sequence, what was asked and the tokens up to the root.
pub type MockDrafts = Drafts<Vec<(Ask, Vec<u32>)>>;

impl MockDrafter {
    fn block(&self, batch: &Batch, committed: &[Vec<u32>], ask: &[Ask]) -> Lattice {
        let mut lattice = Lattice::new(self.script.target.vocab as usize);
        let mut row = Vec::new();
        for (seq, ask) in batch.iter().zip(ask) {
            lattice.begin_seq();
            let mut tokens = committed[seq.slot as usize].clone();
            tokens.push(seq.root);
            for level in 0..ask.depth {
                let logp = self.script.draft(seq.request, &tokens, level);
                match top_ranks(&logp, ask.width as usize, level + 1, &mut row) {
                    Ok(()) => lattice.push_row(&row, true, true),
                    Err(fault) => lattice.fail(fault),
                }
                let dist: Vec<f32> = logp.iter().map(|x| x.exp()).collect();
                lattice.push_dist(&dist);
                tokens.push(self.script.target.best(&tokens));
            }
        }
        lattice
    }

    fn expand_node(&self, drafts: &mut Conditional, seq: &Seq, tokens: &[u32], at: NodeRef, ask: &Ask) {
        let logp = self.script.draft(seq.request, tokens, 0);
        let dist: Vec<f32> = logp.iter().map(|x| x.exp()).collect();
        let mut row = Vec::new();
        let (depth, width) = (at.depth + 1, ask.width as usize);
        let made = match ask.draw {
            Draw::Ranked => top_ranks(&logp, width, depth, &mut row),
            Draw::Sampled { replace } => {
                let key = Key {
                    seed: self.script.seed,
                    purpose: Purpose::DraftDraw,
                    request: seq.request,
                    position: seq.start + depth,
                    round: seq.round,
                    node: at.node,
                };
                draw_row(&dist, key, width, replace, depth, &mut row)
            }
        };
        match made {
            Ok(()) => {
                let ranked = ask.draw == Draw::Ranked;
                drafts.expand(at, &row, Some(&dist), ranked, ask.draw != Draw::Sampled { replace: true });
            }
            Err(fault) => drafts.fail(at.seq, fault),
        }
    }
}

impl Drafter for MockDrafter {
    /// Committed tokens by slot, the root left out.
    type Features = Vec<Vec<u32>>;
    type Drafts = MockDrafts;

    fn draft(&mut self, batch: &Batch, committed: &Vec<Vec<u32>>, ask: &[Ask]) -> Result<MockDrafts, Error> {
        self.calls += 1;
        if self.script.conditional {
            let mut drafts = Conditional::new(batch.len(), self.script.target.vocab as usize);
            let mut roots = Vec::new();
            for (at, (seq, ask)) in (0..).zip(batch.iter().zip(ask)) {
                drafts.set_depth(at, ask.depth);
                let tokens = [committed[seq.slot as usize].as_slice(), &[seq.root]].concat();
                if ask.depth > 0 {
                    self.expand_node(&mut drafts, seq, &tokens, NodeRef { seq: at, node: 0, depth: 0 }, ask);
                }
                roots.push((*ask, tokens));
            }
            return Ok(MockDrafts::Conditional(drafts, roots));
        }
        let lattice = self.block(batch, committed, ask);
        Ok(match ask.first().map(|a| a.draw) {
            Some(Draw::Sampled { .. }) => MockDrafts::Drawn(Drawn::new(lattice, batch, ask, self.script.seed)),
            _ => MockDrafts::Ranked(lattice),
        })
    }

    fn expand(
        &mut self,
        drafts: &mut MockDrafts,
        batch: &Batch,
        forest: &Forest,
        wave: &[NodeRef],
    ) -> Result<(), Error> {
        let MockDrafts::Conditional(drafts, roots) = drafts else { return Ok(()) };
        self.calls += 1;
        for at in wave {
            let (ask, root) = &roots[at.seq as usize];
            if at.depth < ask.depth {
                let tree = forest.tree(at.seq as usize);
                let path = tree.path(at.node).into_iter().map(|n| tree.tokens()[n as usize]);
                let tokens: Vec<u32> = root.iter().copied().chain(path).collect();
                self.expand_node(drafts, &batch.seqs[at.seq as usize], &tokens, *at, ask);
            }
        }
        Ok(())
    }
}
