//! From a walk to what a request really gets: end-of-sequence tokens and the length limit cut it.

use super::Walk;
use crate::batch::Seq;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};

/// Why a response ended in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// An end-of-sequence token was emitted.
    Eos,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
}

/// What one verify step gave one request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Tokens emitted: accepted ones, then the bonus unless the response ended before it. Their number is this step's τ.
    pub emitted: Vec<u32>,
    /// Accepted nodes, cut to what was emitted.
    pub path: Vec<u32>,
    /// Set when the response ends with this step.
    pub end: Option<End>,
    /// Per depth 1, 2, … along the emitted tokens: the rank of the true token in the drafter's row, `None` when the row
    /// does not list it. The round protocol fills it in; empty when nothing was drafted.
    pub truth_ranks: Vec<Option<u32>>,
}

impl Step {
    /// Accepted drafts: τ of the step without the bonus.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.path.len() as u32
    }

    /// The last emitted token: the next round's root.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.emitted.last().copied()
    }
}

/// Applies end-of-sequence tokens and the number of tokens left to a walk.
#[must_use]
pub fn settle(seq: &Seq, tree: &Tree, walk: &Walk) -> Step {
    let mut step = Step::default();
    let tokens = walk.path.iter().map(|&n| (Some(n), tree.tokens()[n as usize])).chain([(None, walk.bonus)]);
    for (node, token) in tokens {
        step.emitted.push(token);
        step.path.extend(node);
        if seq.eos.contains(&token) {
            step.end = Some(End::Eos);
        } else if step.emitted.len() as u32 >= seq.left {
            step.end = Some(End::Length);
        }
        if step.end.is_some() {
            break;
        }
    }
    step
}
