//! A cost model under observation: a simulation of hours has to show that it moves.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use treeline_core::{StepCost, StepShape, StepTime};
use treeline_sim::batch::Pricing;
use treeline_sim::cost::{CostModel, PromptPrice, StepPrice, StepQuery};
use treeline_sim::experts::Experts;

/// Request-rounds between two calls of the listener.
const EVERY: u64 = 1 << 16;

/// Prices as the model does, and tells how many request-rounds it has priced.
pub(super) struct Watched<'w> {
    cost: &'w CostModel,
    seen: &'w (dyn Fn(u64) + Sync),
    untold: AtomicU64,
}

impl<'w> Watched<'w> {
    /// Watches `cost`.
    pub fn new(cost: &'w CostModel, seen: &'w (dyn Fn(u64) + Sync)) -> Self {
        Self { cost, seen, untold: AtomicU64::new(0) }
    }
}

impl StepCost for Watched<'_> {
    fn step(&self, shape: &StepShape) -> StepTime {
        self.cost.step(shape)
    }

    fn curve(&self, shape: &StepShape, rows: &[u32], ms: &mut [f64]) {
        StepCost::curve(self.cost, shape, rows, ms);
    }

    fn bucket_ends(&self) -> &[u32] {
        self.cost.bucket_ends()
    }
}

impl Pricing for Watched<'_> {
    fn price(&self, query: &StepQuery) -> StepPrice {
        let rounds = u64::from(query.requests);
        if self.untold.fetch_add(rounds, Relaxed) + rounds >= EVERY {
            (self.seen)(self.untold.swap(0, Relaxed));
        }
        self.cost.price(query)
    }

    fn prefill(&self, tokens: u32, cached: u32) -> PromptPrice {
        self.cost.prefill(tokens, cached)
    }

    fn ranks(&self) -> u32 {
        self.cost.ranks()
    }

    fn experts(&self) -> Option<&Experts> {
        self.cost.experts()
    }
}
