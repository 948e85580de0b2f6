//! What batching asks of a cost model.

use crate::cost::{StepPrice, StepQuery};
use treeline_core::Tree;

/// A cost model as the priced engine and the steady-state loop use it. Pure: the same question has the same answer.
pub trait Pricing: Send + Sync {
    /// Price of one step; bytes, power and energy are those of one GPU.
    fn price(&self, query: &StepQuery) -> StepPrice;

    /// Total ms of the step for each row count in `rows`, the rest of `query` unchanged and its effective rows left to the
    /// model. `ms` has the length of `rows`.
    fn curve(&self, query: &StepQuery, rows: &[u32], ms: &mut [f64]) {
        for (&rows, ms) in rows.iter().zip(ms) {
            *ms = self.price(&StepQuery { rows, effective_rows: None, ..*query }).ms();
        }
    }

    /// Ends of the graph buckets in rows over the whole batch, ascending; empty where steps are not padded.
    fn buckets(&self) -> &[u32] {
        &[]
    }

    /// Time in ms of one chunk of `tokens` prompt tokens behind `cached` ones of the same request.
    fn prefill_ms(&self, tokens: u32, cached: u32) -> f64;

    /// GPUs that work together.
    fn ranks(&self) -> u32;

    /// Rows of independent text that would touch as many experts as this tree does, its root included; `None` for a
    /// target without experts.
    fn effective_rows(&self, tree: &Tree) -> Option<f64>;

    /// The same for one node more: the node with this rank among its siblings at this depth (1 = under the root).
    fn novelty(&self, rank: u32, depth: u32) -> f64;
}
