//! What batching asks of a cost model.

use crate::cost::{CostModel, PromptPrice, StepPrice, StepQuery};
use crate::experts::Experts;
use treeline_core::StepCost;

/// A cost model as the priced engine and the steady-state loop use it: what policies ask ([`StepCost`]), and the full price
/// of a step. Pure: the same question has the same answer.
pub trait Pricing: StepCost {
    /// Price of one step; bytes, power and energy are those of one GPU.
    fn price(&self, query: &StepQuery) -> StepPrice;

    /// Price of one chunk of `tokens` prompt tokens behind `cached` ones of the same request, on one GPU.
    fn prefill(&self, tokens: u32, cached: u32) -> PromptPrice;

    /// GPUs that work together.
    fn ranks(&self) -> u32;

    /// How rows share experts; `None` for a target without experts.
    fn experts(&self) -> Option<&Experts>;
}

impl Pricing for CostModel {
    fn price(&self, query: &StepQuery) -> StepPrice {
        Self::price(self, query)
    }

    fn prefill(&self, tokens: u32, cached: u32) -> PromptPrice {
        Self::prefill(self, tokens, cached)
    }

    fn ranks(&self) -> u32 {
        Self::ranks(self)
    }

    fn experts(&self) -> Option<&Experts> {
        Self::experts(self)
    }
}
