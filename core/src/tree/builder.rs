//! Trees from ranked candidates.

use super::{NodeId, Tree, TreeError};
use crate::draft::Candidate;

/// What a policy's author draws a tree with: pushes ranked candidates and keeps the score for them.
#[derive(Debug)]
pub struct TreeBuilder<'t> {
    tree: &'t mut Tree,
}

impl<'t> TreeBuilder<'t> {
    /// Builds on `tree`, which keeps its root and limits.
    pub fn new(tree: &'t mut Tree) -> Self {
        Self { tree }
    }

    /// Adds candidate number `rank` under `parent`; its score is the parent's plus `candidate.logp`.
    ///
    /// # Errors
    /// As [`Tree::push`].
    pub fn add(&mut self, parent: NodeId, rank: u32, candidate: Candidate) -> Result<NodeId, TreeError> {
        let above = self.tree.scores.get(parent as usize).copied().unwrap_or(0.0);
        self.tree.push(parent, candidate.token, rank, above + f64::from(candidate.logp))
    }

    /// Nodes that may still be added.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.tree.capacity - self.tree.nodes()
    }

    /// The tree so far.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        self.tree
    }
}
