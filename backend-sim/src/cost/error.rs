//! What a cost model refuses.

use super::line::Tier;
use thiserror::Error;

/// Why a deployment cannot be priced, or a step lies outside what was measured.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CostError {
    /// Two profiles contradict each other.
    #[error("{what}\n  help: {help}")]
    Profile {
        /// What does not fit.
        what: String,
        /// What to change.
        help: String,
    },
    /// No table holds an op that the deployment needs.
    #[error("op `{op}`: {why}\n  help: {help}")]
    Table {
        /// Name of the op.
        op: String,
        /// The table's own message.
        why: String,
        /// What to change.
        help: String,
    },
    /// The tier needs something that was not given.
    #[error("tier `{tier}` needs {what}\n  help: {help}")]
    Needs {
        /// The tier asked for.
        tier: Tier,
        /// What is missing.
        what: String,
        /// What to change.
        help: String,
    },
    /// A plain number outside its range.
    #[error("`{key}` = {value}: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it holds.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The step lies outside the domain of an op's source.
    #[error(
        "{query}: {ops} lie outside of what was measured ({domain})\n  help: set `allow_extrapolation = true` to price it all the same (the rows are flagged), or stay within the domain"
    )]
    Domain {
        /// The step in words.
        query: String,
        /// The ops, comma-separated.
        ops: String,
        /// The domain in words.
        domain: String,
    },
    /// A calibration file is wrong.
    #[error("calibration {file}: {why}\n  help: {help}")]
    Calibration {
        /// The file, or what stands for it.
        file: String,
        /// What is wrong, with key and value.
        why: String,
        /// What to change.
        help: String,
    },
}
