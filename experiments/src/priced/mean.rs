//! Mean shapes: what one request's round is like whatever its company, and what such rounds cost together.

use super::Candidate;
use std::sync::{Mutex, PoisonError};
use treeline_core::log::{Phase, PhaseTimes};
use treeline_core::{StepCost, StepShape, StepTime};
use treeline_sim::batch::Pricing;
use treeline_sim::batch::fast::{Load, Tables, simulate};
use treeline_sim::cost::{CostModel, PromptPrice, StepPrice, StepQuery};
use treeline_sim::experts::Experts;

/// One request's round on average.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shape {
    /// Tokens that it emits.
    pub tau: f64,
    /// Rows verified, root included.
    pub rows: f64,
    /// Rows of independent text that would touch as many experts; `None` where the cost model is to say.
    pub effective: Option<f64>,
    /// Share of rounds that draft.
    pub drafted: f64,
    /// Tokens of the response before the root.
    pub index: f64,
}

/// The shape of every candidate on `tables`; `None` for those whose trees depend on the step, and for those that the grid
/// cannot simulate. `spine` is that of the tables, `draft_rows` the rows of one request's draft pass.
#[must_use]
pub fn shapes(
    tables: &Tables<'_>,
    candidates: &[Candidate],
    experts: Option<&Experts>,
    load: &Load<'_>,
    seed: u64,
) -> Vec<Option<Shape>> {
    let one = |c: &Candidate| {
        let policy = c.fast.as_ref().filter(|_| c.fixed())?;
        if c.spine().is_some_and(|s| s != tables.nested().spine()) {
            return None;
        }
        let probe = Probe { experts, sums: Mutex::default() };
        let load = Load { concurrency: 1, context: Some(0), ..*load };
        let result = simulate(tables, &probe, policy, &load, seed).ok()?;
        let s = *probe.sums.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Shape {
            tau: result.tau,
            rows: result.rows_mean,
            effective: experts.map(|_| s.effective / s.steps),
            drafted: s.drafted / s.steps,
            index: s.context / s.steps,
        })
    };
    candidates.iter().map(one).collect()
}

/// Tokens per ms and user when `concurrency` requests of this shape decode together behind `context` tokens each.
#[must_use]
pub fn rate(cost: &CostModel, shape: &Shape, draft_rows: u32, context: f64, concurrency: u32) -> f64 {
    let all = f64::from(concurrency);
    let whole = |x: f64| (x * all).round() as u32;
    let draft_requests = whole(shape.drafted);
    let query = StepQuery {
        requests: concurrency,
        rows: whole(shape.rows).max(concurrency),
        context_sum: ((context + shape.index) * all).round() as u64,
        draft_requests,
        draft_rows: draft_requests.saturating_mul(draft_rows),
        effective_rows: shape.effective.map(|e| e * all),
        expand_waves: 0,
    };
    shape.tau / cost.price(&query).ms()
}

/// A cost model that only listens: every step takes 1 ms, and what was asked is added up.
struct Probe<'e> {
    experts: Option<&'e Experts>,
    sums: Mutex<Sums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    steps: f64,
    context: f64,
    drafted: f64,
    effective: f64,
}

impl StepCost for Probe<'_> {
    fn step(&self, _shape: &StepShape) -> StepTime {
        StepTime { verify_ms: 1.0, ..StepTime::default() }
    }
}

impl Pricing for Probe<'_> {
    fn price(&self, query: &StepQuery) -> StepPrice {
        // A poisoned lock holds whole sums all the same.
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.steps += 1.0;
        sums.context += query.context_mean();
        sums.drafted += f64::from(query.draft_requests);
        sums.effective += query.effective_rows.unwrap_or(0.0);
        let mut phases = PhaseTimes::default();
        phases.ms[Phase::Verify as usize] = 1.0;
        StepPrice { phases, padded_rows: query.rows, in_domain: true, ..StepPrice::default() }
    }

    fn prefill(&self, _tokens: u32, _cached: u32) -> PromptPrice {
        PromptPrice::default()
    }

    fn ranks(&self) -> u32 {
        1
    }

    fn experts(&self) -> Option<&Experts> {
        self.experts
    }
}
