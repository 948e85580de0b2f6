//! Verification laws: which tree path is accepted and which token follows it.
//!
//! * [`Law::Greedy`] and [`Law::SampleMatch`] take one target token per visited node and descend while a child carries it.
//!   For deterministic candidates this accepts Σ_{u∈T} p_target(u) in expectation, the most that any law can.
//! * [`Law::Residual`] and [`Law::Traversal`] judge candidates *drawn* from the drafter by its full distribution.
//! * [`Law::Forced`] takes the truth from a trace; the pass is run all the same.

mod residual;
mod settle;
mod traversal;

pub use settle::{End, Step, settle};

use crate::batch::Seq;
use crate::draft::{DraftView, Draw};
use crate::error::Fault;
use crate::sampling;
use crate::stream::Key;
use crate::tree::{NodeId, ROOT, Tree};

/// Where a forced verdict comes from.
pub trait Truth {
    /// The token at depth `depth` (1-based) behind the root at absolute position `root` of `request`; `None` when the
    /// trace ends before it.
    fn token(&self, request: u64, root: u32, depth: u32) -> Option<u32>;
}

/// How a tree is judged.
#[derive(Clone, Copy)]
pub enum Law<'t> {
    /// Argmax at every node, whatever the requests' temperature.
    Greedy,
    /// One sample of the target per visited node (argmax where a request's temperature is 0).
    SampleMatch {
        /// Seed of the stream.
        seed: u64,
    },
    /// Multi-round residual rejection over drawn candidates: with replacement as in SpecInfer, without as in Sequoia.
    Residual {
        /// Whether the candidates were drawn with replacement.
        replace: bool,
        /// Seed of coins, residual and bonus draws.
        seed: u64,
    },
    /// Traversal verification, leaf to root (arXiv 2505.12398), over candidates drawn with replacement.
    Traversal {
        /// Seed of coins, residual and bonus draws.
        seed: u64,
    },
    /// The truth comes from a trace.
    Forced(&'t dyn Truth),
}

impl Law<'_> {
    /// How candidates must have been chosen for this law to be lossless.
    #[must_use]
    pub fn draw(&self) -> Draw {
        match self {
            Self::Residual { replace, .. } => Draw::Sampled { replace: *replace },
            Self::Traversal { .. } => Draw::Sampled { replace: true },
            Self::Greedy | Self::SampleMatch { .. } | Self::Forced(_) => Draw::Ranked,
        }
    }

    /// Seed of every random number of the law.
    #[must_use]
    pub fn seed(&self) -> u64 {
        match self {
            Self::SampleMatch { seed } | Self::Residual { seed, .. } | Self::Traversal { seed } => *seed,
            Self::Greedy | Self::Forced(_) => 0,
        }
    }

    /// The name used in files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::SampleMatch { .. } => "sample-match",
            Self::Residual { .. } => "residual",
            Self::Traversal { .. } => "traversal",
            Self::Forced(_) => "forced",
        }
    }
}

/// The target's logits by tree row.
pub trait Rows {
    /// Logits (vocabulary long) of row `row` of the tree that is judged.
    fn logits(&self, row: u32) -> &[f32];
}

/// What a law decides for one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Accepted nodes from the root's child downwards.
    pub path: Vec<NodeId>,
    /// The token behind them.
    pub bonus: u32,
}

/// Working memory of [`judge`], reused from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) scores: Vec<f64>,
}

/// Judges one tree. `at` is the sequence's index in the batch (for `q`), `rows` gives the target's logits by tree row.
///
/// # Errors
/// [`Fault::TargetLogits`] when a row that the walk needs is unusable, [`Fault::TraceEnd`] under a forced law,
/// [`Fault::Draft`] when the law needs the drafter's distribution and there is none.
pub fn judge(
    law: &Law<'_>,
    at: u32,
    seq: &Seq,
    tree: &Tree,
    rows: &dyn Rows,
    q: &dyn DraftView,
    scratch: &mut Scratch,
) -> Result<Walk, Fault> {
    match law {
        Law::Greedy => descend(tree, |node, _| sampling::argmax(rows.logits(node), node)),
        Law::SampleMatch { seed } => descend(tree, |node, depth| {
            let key = Key::target(*seed, seq.request, seq.start + depth + 1);
            sampling::target_token(rows.logits(node), &seq.sampling, key, node, &mut scratch.scores)
        }),
        Law::Forced(truth) => descend(tree, |_, depth| {
            truth.token(seq.request, seq.start, depth + 1).ok_or(Fault::TraceEnd { position: seq.start + depth + 1 })
        }),
        Law::Residual { replace, seed } => residual::walk(*replace, *seed, at, seq, tree, rows, q),
        Law::Traversal { seed } => traversal::walk(*seed, at, seq, tree, rows, q),
    }
}

/// Follows the tokens that `next(node, depth)` gives for as long as a child carries them.
fn descend(tree: &Tree, mut next: impl FnMut(NodeId, u32) -> Result<u32, Fault>) -> Result<Walk, Fault> {
    let mut path = Vec::new();
    let mut node = ROOT;
    loop {
        let token = next(node, path.len() as u32)?;
        match tree.child(node, token) {
            Some(child) => {
                path.push(child);
                node = child;
            }
            None => return Ok(Walk { path, bonus: token }),
        }
    }
}
