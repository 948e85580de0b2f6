//! Requests, the sequences of a running batch, and their limits.

use serde::{Deserialize, Serialize};

/// How the target's next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 = argmax (ties to the smaller token id).
    pub temperature: f32,
    /// Keep the `top_k` most probable tokens; 0 = off.
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probability reaches `top_p`; 1 = off.
    pub top_p: f32,
}

impl Sampling {
    /// Argmax.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0 };

    /// Plain sampling at `temperature`, nothing filtered.
    #[must_use]
    pub fn at(temperature: f32) -> Self {
        Self { temperature, top_k: 0, top_p: 1.0 }
    }
}

/// What a user asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Unique within a run; keys the random stream.
    pub id: u64,
    /// Prompt tokens, at least one.
    pub prompt: Vec<u32>,
    /// The most tokens to emit, the first one included.
    pub max_new: u32,
    /// Tokens that end the response; empty = run to `max_new` (`ignore_eos`).
    pub eos: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// One running sequence. The root token is emitted already, its KV is not in the cache; KV covers `[0, start)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Seq {
    /// The engine's slot (its KV rows, its features).
    pub slot: u32,
    /// The request's id.
    pub request: u64,
    /// Index of the request in the run's list.
    pub index: usize,
    /// Absolute position of the root.
    pub start: u32,
    /// The root token.
    pub root: u32,
    /// Tokens that may still be emitted.
    pub left: u32,
    /// Tokens that end the response.
    pub eos: std::sync::Arc<[u32]>,
    /// How the target's token is chosen.
    pub sampling: Sampling,
    /// Verify steps of this request so far; keys draws and coins.
    pub round: u32,
}

/// The sequences that decode together, in slot order of admission.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// The sequences.
    pub seqs: Vec<Seq>,
}

impl Batch {
    /// Number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// The sequences in batch order.
    pub fn iter(&self) -> std::slice::Iter<'_, Seq> {
        self.seqs.iter()
    }
}

/// What one sequence's tree may be in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// The most nodes: the budget, cut to the KV rows that are left.
    pub nodes: u32,
    /// The deepest level: the drafter's depth, cut so that accepted tokens and the bonus fit what may still be emitted.
    pub depth: u32,
}

/// What holds for a whole run; a policy sees it before the first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most nodes per request and round.
    pub budget: u32,
    /// The deepest level that the drafter can reach (block − 1 for a block drafter).
    pub depth: u32,
    /// The most ranks per row that the drafter can list.
    pub width: u32,
    /// Sequences that may run at once.
    pub concurrency: u32,
}
