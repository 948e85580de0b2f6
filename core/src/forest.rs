//! One tree per sequence of a batch.

use crate::batch::{Batch, Caps};
use crate::error::Fault;
use crate::tree::Tree;

/// The trees of one round, in batch order. Reused from round to round: steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Forest {
    trees: Vec<Tree>,
    faults: Vec<Option<Fault>>,
    len: usize,
}

impl Forest {
    /// Bare roots for every sequence of `batch`, limited by `caps` (one entry a sequence).
    pub fn reset(&mut self, batch: &Batch, caps: &[Caps]) {
        self.len = batch.len();
        while self.trees.len() < self.len {
            self.trees.push(Tree::default());
        }
        self.faults.clear();
        self.faults.resize(self.len, None);
        for ((tree, seq), cap) in self.trees.iter_mut().zip(batch.iter()).zip(caps) {
            tree.reset(seq.root, cap.nodes, cap.depth);
        }
    }

    /// Number of trees.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no tree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tree of sequence `seq` (its index in the batch).
    #[must_use]
    pub fn tree(&self, seq: usize) -> &Tree {
        &self.trees[..self.len][seq]
    }

    /// The same, to grow it.
    pub fn tree_mut(&mut self, seq: usize) -> &mut Tree {
        &mut self.trees[..self.len][seq]
    }

    /// All trees in batch order.
    #[must_use]
    pub fn trees(&self) -> &[Tree] {
        &self.trees[..self.len]
    }

    /// Ends one request: its tree is cut to the root, it gets no verdict, its neighbours go on. The first fault stays.
    pub fn fail(&mut self, seq: usize, fault: Fault) {
        self.tree_mut(seq).truncate(1);
        self.faults[seq].get_or_insert(fault);
    }

    /// The fault of a sequence, if it has one.
    #[must_use]
    pub fn fault(&self, seq: usize) -> Option<&Fault> {
        self.faults[seq].as_ref()
    }

    /// Rows of the whole verify pass: Σ (1 + nodes).
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.trees().iter().map(Tree::rows).sum()
    }
}
