//! Best-first by look-up: per request and root position the order in which the policy takes its nodes.
//!
//! On a block drafter the trees of all budgets are nested, and the trajectory does not depend on the policy. So one pass
//! over a trace answers every budget: [`Nested::accepted`] equals what the replay of the real policy accepts at that root.
//! Near the end of a response trees are shallower, near the end of the context smaller; both caps are those of the decode
//! loop and are in the tables.

mod build;
mod look;
mod parts;
mod weight;

pub use look::{Node, Roots};

use thiserror::Error;

/// Why a trace has no tables.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NestedError {
    /// Rows depend on the path.
    #[error(
        "nested tables need a block drafter's trace: this one's drafter is conditional, replay it policy by policy"
    )]
    Conditional,
    /// A path probability of so many nodes or levels has no place in the tables.
    #[error("nested tables hold up to {most} {what}, not {asked}: {advice}")]
    Size {
        /// What was too much.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The most.
        most: u64,
        /// What to change.
        advice: &'static str,
    },
    /// Tables that are not of one trace.
    #[error("these are no parts of one trace's tables: nodes, spine, levels and ranks are {here:?} and {there:?}")]
    Parts {
        /// Nodes, spine, levels and ranks of the first part.
        here: (u32, u32, u32, u32),
        /// Of the other.
        there: (u32, u32, u32, u32),
    },
    /// The trace contradicts itself.
    #[error(transparent)]
    Trace(#[from] crate::TraceFault),
}

/// The tables of one trace and one spine length. Positions of a request are counted as in its trace: index *i* is the root
/// at emitted token *i*, from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    max_nodes: u32,
    spine: u32,
    depth: u32,
    width: u32,
    /// Ids of the requests, in recorded order.
    ids: Vec<u64>,
    /// Their prompt tokens.
    prompts: Vec<u32>,
    /// First position of each request, and the end of the last.
    starts: Vec<u32>,
    /// End of each position's nodes in the three lists by node.
    ends: Vec<u32>,
    /// Path probability by node, in order of selection.
    weights: Vec<f32>,
    /// Depth (high 5 bits) and rank (low 11) by node.
    places: Vec<u16>,
    /// Per position and depth: how many nodes the tree needs to hold the true path down to there; [`build::NEVER`] when no
    /// listed tree does.
    rises: Vec<u16>,
    /// Per position: the largest budget whose tree is certain although the rows were cut.
    certain: Vec<u16>,
    /// Per position: levels whose best candidate was right, from the root on.
    chains: Vec<u8>,
    /// Per position: the deepest level that a tree may have.
    levels: Vec<u8>,
    /// Per position: tokens of the response behind the root.
    behind: Vec<u32>,
}
