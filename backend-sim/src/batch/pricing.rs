//! What batching asks of a cost model.

use crate::cost::{CostModel, StepPrice, StepQuery};
use crate::experts::Experts;
use treeline_core::StepCost;

/// A cost model as the priced engine and the steady-state loop use it: what policies ask ([`StepCost`]), and the full price
/// of a step. Pure: the same question has the same answer.
pub trait Pricing: StepCost {
    /// Price of one step; bytes, power and energy are those of one GPU.
    fn price(&self, query: &StepQuery) -> StepPrice;

    /// Time in ms of one chunk of `tokens` prompt tokens behind `cached` ones of the same request.
    fn prefill_ms(&self, tokens: u32, cached: u32) -> f64;

    /// GPUs that work together.
    fn ranks(&self) -> u32;

    /// How rows share experts; `None` for a target without experts.
    fn experts(&self) -> Option<&Experts>;
}

impl Pricing for CostModel {
    fn price(&self, query: &StepQuery) -> StepPrice {
        Self::price(self, query)
    }

    fn prefill_ms(&self, tokens: u32, cached: u32) -> f64 {
        Self::prefill_ms(self, tokens, cached)
    }

    fn ranks(&self) -> u32 {
        Self::ranks(self)
    }

    fn experts(&self) -> Option<&Experts> {
        Self::experts(self)
    }
}
