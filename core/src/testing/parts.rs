//! Drafter and verifier of the scripted engine.

use super::tiny::Tiny;
use crate::batch::{Batch, Seq};
use crate::draft::{Ask, Candidate, Conditional, DraftView, Draw, Drawn, Lattice, NodeRef, draw_row, top_ranks};
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::{Law, Rows, Scratch, Step, judge, settle};
use crate::log::RoundLog;
use crate::seams::{Drafter, Verifier};
use crate::stream::{Key, Purpose, philox4x32};

/// What the scripted engine is and what goes wrong in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// The target.
    pub target: Tiny,
    /// How far the drafter's logits lie from the target's; 0 = it knows them.
    pub noise: f32,
    /// Whether drafts depend on the path.
    pub conditional: bool,
    /// Seed of drawn candidates; the law's.
    pub seed: u64,
    /// Sequences at once.
    pub slots: u32,
    /// Positions per sequence.
    pub context: u32,
    /// Levels of the drafter: block − 1.
    pub depth: u32,
    /// Ranks per row.
    pub width: u32,
    /// Prompt tokens per call of `admit`.
    pub chunk: usize,
    /// The target's logits for this (request, absolute position) are NaN.
    pub nan_target: Option<(u64, u32)>,
    /// The drafter's row for this (request, absolute position) is NaN.
    pub nan_draft: Option<(u64, u32)>,
    /// Seeded fault: the accepted path is not gathered, its KV rows stay where the tree put them.
    pub scattered: bool,
}

impl Script {
    /// A block drafter of 7 levels that is right about half the time, four slots, room for 4096 positions.
    #[must_use]
    pub fn new(vocab: u32) -> Self {
        Self {
            target: Tiny { vocab, seed: 11, order: 3, spread: 3.0 },
            noise: 2.0,
            conditional: false,
            seed: 0,
            slots: 4,
            context: 4096,
            depth: 7,
            width: vocab.min(8),
            chunk: 5,
            nan_target: None,
            nan_draft: None,
            scattered: false,
        }
    }

    /// The target's logits of the token at `position` (behind `tokens`).
    pub(super) fn logits(&self, request: u64, tokens: &[u32]) -> Vec<f32> {
        if self.nan_target == Some((request, tokens.len() as u32)) {
            return vec![f32::NAN; self.target.vocab as usize];
        }
        self.target.logits(tokens)
    }

    /// The drafter's log-probabilities of the token behind `tokens`, `salt` apart from other levels.
    fn draft(&self, request: u64, tokens: &[u32], salt: u32) -> Vec<f32> {
        if self.nan_draft == Some((request, tokens.len() as u32)) {
            return vec![f32::NAN; self.target.vocab as usize];
        }
        let mut x = self.target.logits(tokens);
        for (token, x) in (0..).zip(&mut x) {
            let bits = philox4x32([token, tokens.len() as u32, salt, 0], [5, self.target.seed])[0];
            *x += ((f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0) as f32) * self.noise;
        }
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = x.iter().map(|x| (x - max).exp()).sum();
        x.iter_mut().for_each(|x| *x -= max + sum.ln());
        x
    }
}

/// The drafter: a noisy copy of the target. As a block drafter, level `d` sees the target's own greedy guess of the levels
/// before.
#[derive(Debug)]
pub struct MockDrafter {
    pub(super) script: Script,
    /// Forward passes so far.
    pub(super) calls: u64,
}

/// What a drafter hands out.
#[derive(Debug)]
pub enum MockDrafts {
    /// Ranked rows by level.
    Ranked(Lattice),
    /// Draws by node.
    Drawn(Drawn<Lattice>),
    /// Rows by node; per sequence what was asked, and the tokens up to the root.
    Conditional(Conditional, Vec<(Ask, Vec<u32>)>),
}

impl MockDrafts {
    fn view(&self) -> &dyn DraftView {
        match self {
            Self::Ranked(d) => d,
            Self::Drawn(d) => d,
            Self::Conditional(d, _) => d,
        }
    }
}

impl DraftView for MockDrafts {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.view().children(at)
    }
    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.view().level(seq, depth)
    }
    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        self.view().dist(at)
    }
    fn depth(&self, seq: u32) -> u32 {
        self.view().depth(seq)
    }
    fn fault(&self, seq: u32) -> Option<Fault> {
        self.view().fault(seq)
    }
}

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

/// The verifier: a KV cache of tokens, read through each tree's ancestor mask.
#[derive(Debug)]
pub struct MockVerifier {
    pub(super) script: Script,
    /// Token in each KV slot, by sequence slot.
    pub(super) kv: Vec<Vec<u32>>,
    /// Target forwards so far.
    pub(super) calls: u64,
}

struct TreeRows(Vec<Vec<f32>>);

impl Rows for TreeRows {
    fn logits(&self, row: u32) -> &[f32] {
        &self.0[row as usize]
    }
}

impl Verifier for MockVerifier {
    type Features = Vec<Vec<u32>>;
    type Verdict = Vec<Result<Step, Fault>>;

    fn verify(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        drafts: &dyn DraftView,
        law: &Law<'_>,
    ) -> Result<Self::Verdict, Error> {
        self.calls += 1;
        let mut scratch = Scratch::default();
        let verdicts = batch.iter().enumerate().map(|(at, seq)| {
            if let Some(fault) = forest.fault(at) {
                return Err(fault.clone());
            }
            let (tree, kv, start) = (forest.tree(at), &mut self.kv[seq.slot as usize], seq.start as usize);
            kv.truncate(start);
            kv.extend(tree.tokens());
            let mask = tree.mask();
            let rows = (0..tree.rows() as usize).map(|row| {
                let seen = mask.columns(row).map(|column| kv[start + column]);
                let tokens: Vec<u32> = kv[..start].iter().copied().chain(seen).collect();
                self.script.logits(seq.request, &tokens)
            });
            let rows = TreeRows(rows.collect());
            let walk = judge(law, at as u32, seq, tree, &rows, drafts, &mut scratch)?;
            Ok(settle(seq, tree, &walk))
        });
        Ok(verdicts.collect())
    }

    fn commit(
        &mut self,
        batch: &Batch,
        forest: &Forest,
        verdict: Self::Verdict,
        features: &mut Vec<Vec<u32>>,
        log: &mut RoundLog,
    ) -> Result<(), Error> {
        for (at, (seq, result)) in batch.iter().zip(verdict).enumerate() {
            if let Ok(step) = &result {
                let kv = &mut self.kv[seq.slot as usize];
                if !self.script.scattered {
                    let tree = forest.tree(at);
                    kv.truncate(seq.start as usize + 1);
                    kv.extend(step.path.iter().map(|&node| tree.tokens()[node as usize]));
                }
                kv.truncate(seq.start as usize + 1 + step.path.len());
                features[seq.slot as usize].clone_from(kv);
            }
            log.results.push(result);
        }
        Ok(())
    }
}
