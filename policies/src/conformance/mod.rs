//! The suite that every policy must pass: `conformance::check(factory)`.
//!
//! It plays the policy against scenes (block and conditional drafts, batches of requests of different lengths, broken
//! rows, extreme limits) through the real round protocol and reports every violation by the name of its check:
//!
//! | check | holds when |
//! | --- | --- |
//! | `determinism` | two instances give the same trees over rounds with outcomes |
//! | `needs` | it asks for no more than it declared |
//! | `budget` | node and depth caps are kept, parents come first, siblings differ |
//! | `candidates` | every node is the candidate that the draft lists at its parent and rank, none is −∞ or NaN |
//! | `survival` | −∞, NaN, duplicate and short rows end that request alone, or not at all; no panic |
//! | `width-1` | with one candidate per row the tree is the chain's first nodes, bit for bit |
//! | `relabelling` | permuted token ids give the same parents, ranks and scores |
//! | `edges` | budgets 0, 1 and huge, depth 0, a draft without rows |
//! | `draws` | a policy that accepts drawn candidates has a shape that does not depend on them |
//! | `work` | reads of the draft and waves are bounded (counted, not timed) |
//! | `idle` | somewhere it proposes something |

mod checks;
pub mod scene;
pub mod stage;

use crate::registry::BuildError;
use treeline_core::{Limits, TreePolicy};

/// Makes a fresh policy for a run with the given limits.
pub type Factory<'a> = &'a dyn Fn(&Limits) -> Result<Box<dyn TreePolicy>, BuildError>;

/// Runs every check.
///
/// # Errors
/// One line per violation, each beginning with its check's name.
pub fn check(factory: Factory<'_>) -> Result<(), Vec<String>> {
    let mut report = checks::Report::new(factory);
    report.validity();
    report.determinism();
    report.survival();
    report.width_one();
    report.relabelling();
    report.edges();
    report.draws();
    report.finish()
}
