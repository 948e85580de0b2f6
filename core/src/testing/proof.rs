//! Exact output distributions by enumeration of every draw, coin and sample.

use super::branches::Branches;
use super::enumerated::Drafts;
use super::tiny::Tiny;
use crate::batch::{Batch, Caps, Limits, Sampling, Seq};
use crate::draft::Draw;
use crate::error::{Error, Fault};
use crate::forest::Forest;
use crate::law::chance::Chance;
use crate::law::{Case, Law, Rows, Scratch, Walk, judge_by, traversal};
use crate::sampling::target_dist;
use crate::seams::{Grow, Round, TreePolicy};
use std::cell::RefCell;

/// What judges the trees of a proof.
#[derive(Clone, Copy)]
pub enum Rule<'t> {
    /// A law.
    Law(Law<'t>),
    /// Traversal with Σr/Σq_left for a rejected subtree's share: known to be biased, so a proof must fail it.
    BiasedTraversal,
    /// Traversal that does not refuse draws shared by the nodes of a level ([`Proof::shared_draws`]).
    UncheckedTraversal,
    /// Traversal over candidates drawn with replacement.
    TraversalReplaced,
}

impl Rule<'_> {
    fn draw(&self) -> Draw {
        match self {
            Self::Law(law) => law.draw(),
            Self::BiasedTraversal | Self::UncheckedTraversal => Draw::Sampled { replace: false },
            Self::TraversalReplaced => Draw::Sampled { replace: true },
        }
    }

    fn judge(&self, chance: &mut dyn Chance, case: &Case<'_>) -> Result<Walk, Fault> {
        let rule = match self {
            Self::Law(law) => return judge_by(law, chance, case, &mut Scratch::default()),
            Self::UncheckedTraversal => traversal::EXACT,
            Self::TraversalReplaced => traversal::Rule { replace: true, ..traversal::EXACT },
            Self::BiasedTraversal => {
                traversal::Rule { update: |sum, _, left| sum / left.max(1e-300), ..traversal::EXACT }
            }
        };
        traversal::walk(rule, chance, case)
    }
}

/// One round of one request over tiny models, enumerated. Vocabularies of 2 to 4, depths up to 3: the branches multiply.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The target.
    pub target: Tiny,
    /// The drafter: of the path so far when `conditional`, else of the root and the depth.
    pub draft: Tiny,
    /// Whether drafts depend on the path.
    pub conditional: bool,
    /// Whether the drafter excludes some tokens altogether.
    pub holes: bool,
    /// Whether all nodes of a level share one row of draws, as a lattice of drawn rows would.
    pub shared_draws: bool,
    /// Temperature and filters of the target.
    pub sampling: Sampling,
    /// Prompt and root.
    pub context: Vec<u32>,
    /// The deepest level.
    pub depth: u32,
    /// The most nodes.
    pub budget: u32,
}

impl Proof {
    /// Plain sampling at temperature 1 over a block drafter's draws.
    #[must_use]
    pub fn new(vocab: u32, seed: u32, depth: u32, budget: u32) -> Self {
        let tiny = |seed| Tiny { vocab, seed, order: 4, spread: 1.5 };
        Self {
            target: tiny(seed),
            draft: tiny(seed ^ 0xD4AF),
            conditional: false,
            holes: false,
            shared_draws: false,
            sampling: Sampling::at(1.0),
            context: vec![0],
            depth,
            budget,
        }
    }

    /// The largest difference between a probability of the output and the target's own, over all sequences of
    /// `depth + 1` tokens (what the round does not emit, the target adds). 0 up to rounding = lossless. `make` gives a
    /// fresh policy for every branch.
    ///
    /// # Errors
    /// What the round refuses ([`Error::Refused`] holds a request's fault), or a policy that differs from branch to branch.
    pub fn bias(&self, rule: &Rule<'_>, make: &dyn Fn() -> Box<dyn TreePolicy>) -> Result<f64, Error> {
        let output = self.output(rule, make)?.0;
        let target = self.own();
        Ok(output.iter().zip(&target).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max))
    }

    /// E[accepted drafts] under `rule`.
    ///
    /// # Errors
    /// As [`Proof::bias`].
    pub fn accepted(&self, rule: &Rule<'_>, make: &dyn Fn() -> Box<dyn TreePolicy>) -> Result<f64, Error> {
        Ok(self.output(rule, make)?.1)
    }

    /// The target's distribution over the next `depth + 1` tokens.
    fn own(&self) -> Vec<f64> {
        let mut all = self.empty();
        self.extend(&mut Vec::new(), 1.0, &mut all);
        all
    }

    fn empty(&self) -> Vec<f64> {
        vec![0.0; (self.target.vocab as usize).pow(self.depth + 1)]
    }

    /// Adds `weight`, spread by the target over every continuation of `tokens`.
    fn extend(&self, tokens: &mut Vec<u32>, weight: f64, all: &mut [f64]) {
        if tokens.len() as u32 > self.depth {
            let index = tokens.iter().fold(0, |i, &t| i * self.target.vocab as usize + t as usize);
            all[index] += weight;
            return;
        }
        for (token, p) in (0..).zip(self.p(tokens)) {
            if p > 0.0 {
                tokens.push(token);
                self.extend(tokens, weight * p, all);
                tokens.pop();
            }
        }
    }

    /// The target's distribution behind context and `tokens`.
    fn p(&self, tokens: &[u32]) -> Vec<f64> {
        let mut p = Vec::new();
        // Tiny logits are finite, so there is no fault.
        let _ = target_dist(&self.logits(tokens), &self.sampling, 0, &mut p);
        p
    }

    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        self.target.logits(&[&self.context, tokens].concat())
    }

    /// The output's distribution, and E[accepted].
    fn output(&self, rule: &Rule<'_>, make: &dyn Fn() -> Box<dyn TreePolicy>) -> Result<(Vec<f64>, f64), Error> {
        let branches = RefCell::new(Branches::default());
        let (mut all, mut accepted) = (self.empty(), 0.0);
        loop {
            branches.borrow_mut().begin();
            let (mut tokens, path) = self.round(rule, &mut *make(), &branches)?;
            let weight = branches.borrow().weight;
            if branches.borrow().strayed {
                return Err(Error::Refused("the policy's trees differ between branches with the same drafts".into()));
            }
            accepted += weight * path as f64;
            self.extend(&mut tokens, weight, &mut all);
            if !branches.borrow_mut().advance() {
                return Ok((all, accepted));
            }
        }
    }

    /// One branch: emitted tokens and the number of accepted ones.
    fn round(
        &self,
        rule: &Rule<'_>,
        policy: &mut dyn TreePolicy,
        branches: &RefCell<Branches>,
    ) -> Result<(Vec<u32>, usize), Error> {
        let (root, start) = (self.context.last().copied().unwrap_or(0), self.context.len() as u32 - 1);
        let seq = Seq {
            slot: 0,
            request: 0,
            index: 0,
            start,
            root,
            left: u32::MAX,
            eos: [].as_slice().into(),
            sampling: self.sampling,
            round: 0,
        };
        let batch = Batch { seqs: vec![seq] };
        let limits = Limits { budget: self.budget, depth: self.depth, width: self.target.vocab, concurrency: 1 };
        let caps = [Caps { nodes: self.budget, depth: self.depth.min(self.budget) }];
        let round = Round { index: 0, batch: &batch, caps: &caps, limits: &limits, draw: rule.draw(), cost: None };
        let mut forest = Forest::default();
        forest.reset(&batch, &caps);
        let mut ask = Vec::new();
        policy.ask(&round, &mut ask);
        let ask = ask.pop().unwrap_or_default();
        let mut drafts = Drafts::new(self, ask, rule.draw(), branches);
        let mut wave = Vec::new();
        while policy.grow(&round, &drafts, &mut forest, &mut wave) == Grow::Expand {
            drafts.expand(&forest, &wave);
            wave.clear();
        }
        let duplicates = rule.draw() == Draw::Sampled { replace: true };
        let refuse = |why: String| Error::Refused(why);
        if let Some(fault) = forest.fault(0) {
            return Err(refuse(fault.to_string()));
        }
        let tree = forest.tree(0);
        tree.check(duplicates).map_err(|e| refuse(e.to_string()))?;
        let tokens_of = |node| -> Vec<u32> { tree.path(node).iter().map(|&n| tree.tokens()[n as usize]).collect() };
        let rows = AllRows((0..tree.rows()).map(|node| self.logits(&tokens_of(node))).collect());
        let case = Case { at: 0, seq: &batch.seqs[0], tree, rows: &rows, drafts: &drafts };
        let walk = rule.judge(&mut *branches.borrow_mut(), &case).map_err(|f| refuse(f.to_string()))?;
        let mut tokens = walk.path.last().map_or(Vec::new(), |&node| tokens_of(node));
        tokens.push(walk.bonus);
        Ok((tokens, walk.path.len()))
    }
}

struct AllRows(Vec<Vec<f32>>);

impl Rows for AllRows {
    fn logits(&self, row: u32) -> &[f32] {
        &self.0[row as usize]
    }
}
