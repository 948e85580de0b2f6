//! The question (one step of the batch) and the answer (what it costs).

use treeline_core::StepShape;
use treeline_core::log::PhaseTimes;

/// One step of a batch that decodes together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepQuery {
    /// Requests B that decode together.
    pub requests: u32,
    /// Rows T that the target verifies, summed over the requests, roots included (ragged trees just add up).
    pub rows: u32,
    /// Σ of the requests' context lengths in tokens: the KV that attention reads, once per request.
    pub context_sum: u64,
    /// Requests that are drafted for; 0 = the step has no draft.
    pub draft_requests: u32,
    /// Rows of all draft passes: requests × block for a block drafter, the sum over its passes for a conditional one.
    pub draft_rows: u32,
    /// Rows of independent text that would touch as many experts as these rows do, where the caller knows the trees;
    /// `None` takes the typical composition of [`Experts`](crate::experts::Experts).
    pub effective_rows: Option<f64>,
    /// Waves of conditional expansion after the first draft pass; 0 for block drafters.
    pub expand_waves: u32,
}

impl StepQuery {
    /// A plain decode step: one row a request, no draft.
    #[must_use]
    pub fn plain(requests: u32, context: u32) -> Self {
        Self { requests, rows: requests, context_sum: u64::from(requests) * u64::from(context), ..Self::default() }
    }

    /// A step of a block drafter: `rows_each` rows verified and `block` rows drafted for each request.
    #[must_use]
    pub fn block(requests: u32, rows_each: u32, context: u32, block: u32) -> Self {
        Self {
            rows: requests.saturating_mul(rows_each),
            draft_requests: requests,
            draft_rows: requests.saturating_mul(block),
            ..Self::plain(requests, context)
        }
    }

    /// Mean context of a request in tokens; 0 without requests.
    #[must_use]
    pub fn context_mean(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.context_sum as f64 / f64::from(self.requests) }
    }
}

/// A shape of the policies' oracle: mean context, every request drafted for when there are draft rows at all.
impl From<&StepShape> for StepQuery {
    fn from(s: &StepShape) -> Self {
        Self {
            requests: s.requests,
            rows: s.rows,
            context_sum: u64::from(s.requests) * u64::from(s.context),
            draft_requests: if s.draft_rows == 0 { 0 } else { s.requests },
            draft_rows: s.draft_rows,
            effective_rows: None,
            expand_waves: 0,
        }
    }
}

/// What a step costs. Bytes, flops, watts and joules are those of one GPU; every figure is finite.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepPrice {
    /// Draft, tree, verify, walk, commit and host in ms (prefill 0).
    pub phases: PhaseTimes,
    /// Rows of the graph that ran: the bucket that holds the query's rows, or the rows themselves in eager mode.
    pub padded_rows: u32,
    /// Distinct experts a layer that the rows touch; `None` for dense targets.
    pub experts: Option<f64>,
    /// Bytes that one GPU moves to and from its memory.
    pub hbm_bytes: f64,
    /// Floating point operations of one GPU.
    pub flops: f64,
    /// Mean power of one GPU in W.
    pub watts: f64,
    /// Energy of one GPU for the step in J.
    pub joules: f64,
    /// No figure was taken outside the domain of its source.
    pub in_domain: bool,
}

impl StepPrice {
    /// The whole round in ms.
    #[must_use]
    pub fn ms(&self) -> f64 {
        self.phases.round()
    }
}
