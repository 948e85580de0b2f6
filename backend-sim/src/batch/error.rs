//! What a batched run refuses before it begins.

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
    #[error(
        "{concurrency} requests of {tokens} tokens each (context, response and tree rows) need {missing_bytes} bytes more for their KV on each GPU than are left beside the weights\n  help: the largest cap that fits is {largest_cap}; or shorten the context, take a smaller KV type, or more GPUs"
    )]
    DoesNotFit {
        /// The cap asked for.
        concurrency: u32,
        /// Tokens of a request at its longest, mean of those that would run.
        tokens: u64,
        /// Bytes missing on each GPU.
        missing_bytes: u64,
        /// The largest cap that fits; 0 = not even one request.
        largest_cap: u32,
    },
}
