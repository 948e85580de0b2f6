//! Drafts whose draws are decisions of a branch.

use super::branches::Branches;
use super::proof::Proof;
use crate::draft::{Ask, Candidate, DraftView, Draw, NodeRef, top_ranks};
use crate::forest::Forest;
use crate::law::chance::{Chance, Site};
use crate::stream::Purpose;
use std::cell::{OnceCell, RefCell};

/// Drafts whose draws are decisions of the branch. A node's row is made when it is first asked for.
pub(super) struct Drafts<'a> {
    proof: &'a Proof,
    ask: Ask,
    draw: Draw,
    branches: &'a RefCell<Branches>,
    /// By depth for block drafters, by node for conditional ones.
    dists: Vec<Option<Vec<f32>>>,
    /// By node; by depth where a level shares its row.
    rows: Vec<OnceCell<Vec<Candidate>>>,
}

impl<'a> Drafts<'a> {
    pub(super) fn new(proof: &'a Proof, ask: Ask, draw: Draw, branches: &'a RefCell<Branches>) -> Self {
        // A policy may grow beyond the budget and keep the best; conditional drafts make room as they are expanded.
        let count = (4 * proof.budget.max(proof.depth) + 64) as usize;
        let mut dists = vec![None; count];
        let context = &proof.context;
        let depth = ask.depth.min(proof.depth);
        if proof.conditional {
            dists[0] = (depth > 0).then(|| proof.draft.dist(context, proof.holes));
        } else {
            for (level, dist) in dists.iter_mut().enumerate().take(depth as usize) {
                // The level stands where a path would: one more "token" that no vocabulary has.
                let at = [context.as_slice(), &[1000 + level as u32]].concat();
                *dist = Some(proof.draft.dist(&at, proof.holes));
            }
        }
        Self { proof, ask, draw, branches, dists, rows: vec![OnceCell::new(); count] }
    }

    /// One forward of a conditional drafter.
    pub(super) fn expand(&mut self, forest: &Forest, wave: &[NodeRef]) {
        if !self.proof.conditional {
            return;
        }
        let tree = forest.tree(0);
        for at in wave.iter().filter(|at| at.depth < self.ask.depth) {
            let path = tree.path(at.node);
            let tokens: Vec<u32> = path.iter().map(|&n| tree.tokens()[n as usize]).collect();
            let context = [self.proof.context.as_slice(), &tokens].concat();
            // A policy may expand more nodes than its final tree holds.
            let count = self.dists.len().max(at.node as usize + 1);
            self.dists.resize(count, None);
            self.rows.resize(count, OnceCell::new());
            let node = at.node as usize;
            if self.dists.len() <= node {
                self.dists.resize(node + 1, None);
                self.rows.resize(node + 1, OnceCell::new());
            }
            self.dists[node] = Some(self.proof.draft.dist(&context, self.proof.holes));
        }
    }

    /// Whether all nodes of a level have the same row.
    fn whole_levels(&self) -> bool {
        !self.proof.conditional && (self.draw == Draw::Ranked || self.proof.shared_draws)
    }

    fn row(&self, dist: &[f32], at: NodeRef) -> Vec<Candidate> {
        let width = self.ask.width as usize;
        let mut out = Vec::new();
        match self.draw {
            Draw::Ranked => {
                let logp: Vec<f32> = dist.iter().map(|p| p.ln()).collect();
                // Tiny probabilities are never NaN, so there is no fault.
                let _ = top_ranks(&logp, width, at.depth + 1, &mut out);
            }
            Draw::Sampled { replace } => {
                let site = Site { purpose: Purpose::DraftDraw, position: 0, node: at.node };
                let mut scores: Vec<f64> = dist.iter().map(|&p| f64::from(p).ln()).collect();
                for _ in 0..width {
                    let Some(token) = self.branches.borrow_mut().pick(site, &scores) else { break };
                    out.push(Candidate { token, logp: dist[token as usize].ln() });
                    if !replace {
                        scores[token as usize] = f64::NEG_INFINITY;
                    }
                }
            }
        }
        out
    }
}

impl DraftView for Drafts<'_> {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        let Some(dist) = self.dist(at) else { return &[] };
        let cell = if self.whole_levels() { at.depth } else { at.node };
        self.rows.get(cell as usize).map_or(&[], |cell| cell.get_or_init(|| self.row(dist, at)))
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        let at = NodeRef { seq, node: 0, depth: depth.checked_sub(1)? };
        (self.whole_levels() && depth <= self.depth(seq)).then(|| self.children(at))
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        let index = if self.proof.conditional { at.node } else { at.depth };
        self.dists.get(index as usize)?.as_deref()
    }

    fn depth(&self, _seq: u32) -> u32 {
        self.ask.depth.min(self.proof.depth)
    }
}
