//! What can go wrong: a [`Fault`] ends one request, an [`enum@Error`] ends the run.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why one request ended early. Its neighbours in the batch go on.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Fault {
    /// The drafter produced a row that no tree can be built from.
    #[error("the drafter's row at depth {depth} is unusable: {why}")]
    Draft {
        /// Depth of the row, 1 = the root's children.
        depth: u32,
        /// What is wrong with it.
        why: String,
    },
    /// The target's logits of a row that the walk reached are NaN, or none is finite.
    #[error("the target's logits at tree row {row} have no usable maximum (NaN or all -inf)")]
    TargetLogits {
        /// Row of the tree, 0 = root.
        row: u32,
    },
    /// The policy built, or asked for, something that its limits forbid.
    #[error("the policy broke its contract: {0}")]
    Policy(String),
    /// The prompt does not fit the engine's context.
    #[error("the prompt has {tokens} tokens, the context holds {context}: shorten the prompt or raise `context`")]
    PromptTooLong {
        /// Prompt length in tokens.
        tokens: u32,
        /// Context length in tokens.
        context: u32,
    },
    /// A request that the engine cannot serve at all (an empty prompt, a token outside the vocabulary).
    #[error("bad request: {0}")]
    Request(String),
    /// The trace that forces the verdict has no entry for this position.
    #[error("the trace has no truth for position {position}")]
    TraceEnd {
        /// Absolute position of the missing token.
        position: u32,
    },
}

/// What ends a whole run: nothing in it belongs to one request alone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// Policy, law and drafter cannot work together; found before the run.
    #[error("{0}")]
    Refused(String),
    /// The engine failed as a whole.
    #[error("engine: {0}")]
    Engine(String),
    /// Nothing runs, and the engine does not become ready for the next request however long it idles.
    #[error("request {request} is never ready to be admitted, though nothing runs: the run cannot go on")]
    Stalled {
        /// Id of the request.
        request: u64,
    },
    /// The policy asked for more waves of expansion than a tree can be deep.
    #[error("policy `{policy}` did not finish its trees after {waves} waves")]
    Waves {
        /// The policy's kind.
        policy: String,
        /// Waves run so far.
        waves: u32,
    },
}
