//! What a batched run refuses before it begins.

use crate::memory::DoesNotFit;
use crate::validate::TraceFault;
use thiserror::Error;

/// Why a load cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BatchError {
    /// The trace contradicts itself.
    #[error(transparent)]
    Trace(#[from] TraceFault),
    /// The trace was recorded with other models than those that are priced.
    #[error("the trace does not fit the deployment: {what}\n  help: {help}")]
    OtherModel {
        /// What differs.
        what: String,
        /// What to change.
        help: &'static str,
    },
    /// A key of the load outside its range.
    #[error("`{key}` = {value}: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it holds.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The cap of concurrent requests can never be reached: their KV does not fit beside the weights.
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
}
