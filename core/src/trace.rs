//! Traces: what a drafter proposed at every position of a trajectory, and where the truth ranked.
//!
//! On a block drafter the trajectory does not depend on the policy (greedy and sample-and-match targets), so a trace of
//! *plain decoding* replays every policy exactly. A rank trace holds no text and no token ids: replay gives the candidate
//! of rank r the id r. Files live elsewhere; these are the types.

use crate::law::{End, Truth};
use serde::{Deserialize, Serialize};

/// What holds for a whole trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// Levels per position (block − 1 for a block drafter).
    pub depth: u32,
    /// Ranks per row.
    pub width: u32,
    /// Whether rows depend on the path (then `expansions` hold the off-path rows).
    pub conditional: bool,
    /// Whether token ids are kept.
    pub ids: bool,
    /// Vocabulary of the models.
    pub vocab: u32,
    /// Positions per request of the engine that recorded it: the last ones cut a tree's size.
    pub context: u32,
    /// Temperature of the trajectory.
    pub temperature: f32,
    /// Seed of the trajectory's samples.
    pub seed: u64,
    /// Free text: models, engine, date.
    pub source: String,
}

/// One node of a conditional drafter's recorded expansions at a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expansion {
    /// Index of the parent expansion at this position; the first (the root) names itself.
    pub parent: u32,
    /// Rank of this node in its parent's row.
    pub rank: u32,
    /// Log-probabilities of its children, best first.
    pub logp: Vec<f32>,
    /// Their token ids, where kept.
    pub ids: Vec<u32>,
}

/// What was drafted behind one root.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Ends of the rows in `logp` (a row may list fewer than `width` ranks), one per depth. Empty for conditional traces.
    pub ends: Vec<u32>,
    /// Log-probabilities, row after row, best first.
    pub logp: Vec<f32>,
    /// Token ids in the same order, where kept.
    pub ids: Vec<u32>,
    /// Per depth 1, 2, …: the rank of the true token in its row, `None` when the row does not list it. Ends where the
    /// response ends. For a conditional drafter the row is that of the true path, and the list also ends where that path
    /// leaves the recorded expansions.
    pub truth: Vec<Option<u32>>,
    /// Rows of a conditional drafter; parents before children. Empty for block drafters.
    pub expansions: Vec<Expansion>,
}

impl Position {
    /// Log-probabilities of the row at `depth` (1-based); empty beyond the last.
    #[inline]
    #[must_use]
    pub fn row(&self, depth: u32) -> &[f32] {
        let range = self.row_range(depth);
        self.logp.get(range).unwrap_or(&[])
    }

    /// Token ids of the row at `depth`, where kept.
    #[must_use]
    pub fn row_ids(&self, depth: u32) -> &[u32] {
        let range = self.row_range(depth);
        self.ids.get(range).unwrap_or(&[])
    }

    #[inline]
    fn row_range(&self, depth: u32) -> std::ops::Range<usize> {
        let at = |i: usize| self.ends.get(i).map_or(0, |&e| e as usize);
        match depth as usize {
            0 => 0..0,
            1 => 0..at(0),
            d if d <= self.ends.len() => at(d - 2)..at(d - 1),
            _ => 0..0,
        }
    }
}

/// One request's trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// Request id.
    pub id: u64,
    /// Domain of the prompt.
    pub domain: String,
    /// Prompt tokens: the absolute position of the first root.
    pub prompt_tokens: u32,
    /// The most tokens that the request might emit, the first one included: near it trees become shallower.
    pub max_new: u32,
    /// Emitted tokens, the first one included; empty in a rank trace. Their number is `positions.len() + 1` at the most
    /// when nothing was cut.
    pub tokens: Vec<u32>,
    /// Number of emitted tokens, the first one included.
    pub emitted: u32,
    /// One entry per emitted token that was a root, in order.
    pub positions: Vec<Position>,
    /// How the response ended.
    pub end: End,
}

/// A recorded trajectory of every request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What holds for all of it.
    pub meta: TraceMeta,
    /// The requests.
    pub requests: Vec<TraceRequest>,
}

impl Trace {
    /// The request with this id.
    #[must_use]
    pub fn request(&self, id: u64) -> Option<&TraceRequest> {
        self.requests.iter().find(|r| r.id == id)
    }
}

/// A full trace (token ids kept) is a source of forced verdicts.
impl Truth for Trace {
    fn token(&self, request: u64, root: u32, depth: u32) -> Option<u32> {
        let request = self.request(request)?;
        let first = root.checked_sub(request.prompt_tokens)?;
        request.tokens.get((first + depth) as usize).copied()
    }
}
