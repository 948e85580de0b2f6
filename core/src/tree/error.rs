//! Why something is no tree.

use thiserror::Error;

/// Why a node was not added, or why a tree read from elsewhere is not one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// The parent is not in the tree (yet).
    #[error("node {node}: parent {parent} is not before it in the tree")]
    Parent {
        /// The node that was to be added.
        node: u32,
        /// The parent it named.
        parent: u32,
    },
    /// The tree holds as many nodes as it may.
    #[error("the tree is full: its budget is {budget} nodes")]
    Full {
        /// The most nodes allowed, the root left out.
        budget: u32,
    },
    /// The node would lie deeper than allowed.
    #[error("depth {depth} is beyond the limit of {limit}")]
    TooDeep {
        /// Depth that the node would have.
        depth: u32,
        /// Deepest allowed.
        limit: u32,
    },
    /// Two siblings carry the same token, so the walk could not tell them apart.
    #[error("node {parent} has two children with token {token}")]
    Duplicate {
        /// The parent.
        parent: u32,
        /// The token that occurs twice.
        token: u32,
    },
}
