//! Verification laws: which tree path is accepted and which token follows it.
//!
//! * [`Law::Greedy`] and [`Law::SampleMatch`] take one target token per visited node and descend while a child carries it.
//!   For deterministic candidates this accepts Σ_{u∈T} p_target(u) in expectation, the most that any law can.
//! * [`Law::Residual`] and [`Law::Traversal`] judge candidates *drawn* from the drafter by its full distribution.
//! * [`Law::Forced`] takes the truth from a trace; the pass is run all the same.

pub(crate) mod chance;
mod residual;
mod settle;
pub(crate) mod traversal;

pub use settle::{End, Step, settle};

use crate::batch::{Request, Seq};
use crate::draft::{DraftView, Draw, NodeRef};
use crate::error::Fault;
use crate::sampling;
use crate::stream::{Key, Purpose};
use crate::tree::{NodeId, ROOT, Tree};
use chance::{Chance, Keyed, Site};

/// Where a forced verdict comes from.
pub trait Truth: Sync {
    /// The token at depth `depth` (1-based) behind the root at absolute position `root` of `request`; `None` when the
    /// trace ends before it. Depth 0 is the root itself.
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
    /// Traversal verification, leaf to root (arXiv 2505.12398), over candidates drawn without replacement, each node's
    /// on their own ([`crate::draft::Drawn`]).
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
            // With replacement is lossless as well, but wastes rows on tokens that were rejected already.
            Self::Traversal { .. } => Draw::Sampled { replace: false },
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

/// One tree to be judged.
pub(crate) struct Case<'a> {
    /// Index of the sequence in the batch.
    pub at: u32,
    pub seq: &'a Seq,
    pub tree: &'a Tree,
    /// The target's logits.
    pub rows: &'a dyn Rows,
    /// What was drafted.
    pub drafts: &'a dyn DraftView,
}

/// Judges one tree. `at` is the sequence's index in the batch (for `q`), `rows` gives the target's logits by tree row.
///
/// # Errors
/// [`Fault::TargetLogits`] when a row that the walk needs is unusable, [`Fault::TraceEnd`] under a forced law,
/// [`Fault::Draft`] when the law needs the drafter's distribution and there is none, or the drafts were drawn in a way
/// that would bias the law.
pub fn judge(
    law: &Law<'_>,
    at: u32,
    seq: &Seq,
    tree: &Tree,
    rows: &dyn Rows,
    q: &dyn DraftView,
    scratch: &mut Scratch,
) -> Result<Walk, Fault> {
    let mut chance = Keyed { seed: law.seed(), request: seq.request, round: seq.round };
    judge_by(law, &mut chance, &Case { at, seq, tree, rows, drafts: q }, scratch)
}

/// The first token of a response, from the logits behind the prompt: the root at position `request.prompt.len()`. Every
/// law draws it from the target alone, so that engines agree on it.
///
/// # Errors
/// [`Fault::TargetLogits`] with row 0, or [`Fault::TraceEnd`] under a forced law.
pub fn first_token(law: &Law<'_>, request: &Request, logits: &[f32], scratch: &mut Scratch) -> Result<u32, Fault> {
    let position = request.prompt.len() as u32;
    match law {
        Law::Greedy => sampling::argmax(logits, 0),
        Law::Forced(truth) => truth.token(request.id, position, 0).ok_or(Fault::TraceEnd { position }),
        Law::SampleMatch { .. } | Law::Residual { .. } | Law::Traversal { .. } => {
            let key = Key::target(law.seed(), request.id, position);
            sampling::target_token(logits, &request.sampling, key, 0, &mut scratch.scores)
        }
    }
}

/// [`judge`] with any source of decisions.
pub(crate) fn judge_by(
    law: &Law<'_>,
    chance: &mut dyn Chance,
    case: &Case<'_>,
    scratch: &mut Scratch,
) -> Result<Walk, Fault> {
    let Case { seq, tree, rows, .. } = case;
    match law {
        Law::Greedy => descend(tree, |node, _| sampling::argmax(rows.logits(node), node)),
        Law::SampleMatch { .. } => descend(tree, |node, depth| {
            let best = sampling::target_scores(rows.logits(node), &seq.sampling, node, &mut scratch.scores)?;
            if seq.sampling.temperature <= 0.0 {
                return Ok(best);
            }
            let site = Site { purpose: Purpose::TargetSample, position: seq.start + depth + 1, node };
            Ok(chance.pick(site, &scratch.scores).unwrap_or(best))
        }),
        Law::Forced(truth) => descend(tree, |_, depth| {
            truth.token(seq.request, seq.start, depth + 1).ok_or(Fault::TraceEnd { position: seq.start + depth + 1 })
        }),
        Law::Residual { replace, .. } => residual::walk(*replace, chance, case),
        Law::Traversal { .. } => {
            own_draws(case)?;
            traversal::walk(traversal::EXACT, chance, case)
        }
    }
}

/// The drafter's distribution over the children of `node`, normalised, into `q`.
fn drafted(case: &Case<'_>, node: NodeId, depth: u32, q: &mut Vec<f64>) -> Result<(), Fault> {
    // Conditional drafts know a node by the index that it was expanded under.
    let at = NodeRef { seq: case.at, node: case.tree.origin(node), depth };
    let dist = case.drafts.dist(at).ok_or_else(|| Fault::Draft {
        depth: depth + 1,
        why: "the law needs the drafter's full distribution and there is none".into(),
    })?;
    q.clear();
    q.extend(dist.iter().map(|&x| f64::from(x)));
    let sum: f64 = q.iter().sum();
    if !(sum.is_finite() && sum > 0.0) || q.iter().any(|&x| x < 0.0) {
        return Err(Fault::Draft { depth: depth + 1, why: format!("the distribution sums to {sum}") });
    }
    residual::normalise(q);
    Ok(())
}

/// Traversal judges one subtree's deeper draws before it comes to the next subtree. If both share those draws (one row
/// per level), the first verdict says something about the second's candidates and the output is biased: by 0.0007 to
/// 0.0087 in one sequence's probability over eight models of 3 tokens, by enumeration (`tests/laws.rs` shows one). So
/// nodes of a level need draws of their own.
fn own_draws(case: &Case<'_>) -> Result<(), Fault> {
    let tree = case.tree;
    let mut parent_at: Vec<Option<NodeId>> = vec![None; tree.depth() as usize + 1];
    for (&parent, &depth) in tree.parents().iter().zip(tree.depths()).skip(1) {
        let first = *parent_at[depth as usize].get_or_insert(parent);
        if first != parent && case.drafts.level(case.at, depth).is_some() {
            let why = "nodes of one level share their draws, which biases traversal verification: draw per node";
            return Err(Fault::Draft { depth, why: why.into() });
        }
    }
    Ok(())
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
