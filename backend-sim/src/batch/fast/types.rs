//! What the steady-state loop is asked and what it answers.

use std::sync::Arc;
use treeline_core::log::PhaseTimes;
use treeline_policies::cost_aware::{Goal, Reliability};

/// Over what a cost-aware choice ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every request chooses its own nodes, as if all others took as many.
    PerRequest,
    /// One heap over the batch: the globally best nodes, as many as pay for the whole step.
    BatchWide,
}

/// How many nodes pay, by a cost curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What is maximised.
    pub goal: Goal,
    /// Over what the choice ranges.
    pub scope: Scope,
    /// The most nodes of a request.
    pub cap: u32,
    /// What the drafter's claims are worth; `None` = what they say.
    pub reliability: Option<Arc<Reliability>>,
    /// The throughput in tokens/ms that [`Objective::Renewal`](treeline_policies::cost_aware::Objective) weighs time with;
    /// `None` = the running one.
    pub throughput: Option<f64>,
    /// Steps that the running throughput remembers; more than 1.
    pub memory: f64,
}

/// A policy whose trees are prefixes of the nested best-first order.
#[derive(Debug, Clone, PartialEq)]
pub enum FastPolicy {
    /// Plain decoding: no draft, one row a request.
    Plain,
    /// The drafter's best chain of `budget` nodes (at most the drafter's depth).
    Chain {
        /// Nodes.
        budget: u32,
    },
    /// The `budget` best nodes, those of a spine first where `spine` is above 0. The tables must have been built with that
    /// spine.
    BestFirst {
        /// Nodes.
        budget: u32,
        /// Forced rank-0 levels.
        spine: u32,
    },
    /// As many nodes as pay. The tables must have been built without a spine.
    Choose(Choice),
}

/// The load of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load<'r> {
    /// Requests that decode together, always as many.
    pub concurrency: u32,
    /// Every response is placed behind this many tokens; `None` = behind its own recorded prompt.
    pub context: Option<u32>,
    /// Responses are cut at this many tokens; `None` = as recorded.
    pub response: Option<u32>,
    /// Rows of one request's draft pass: the block of a block drafter.
    pub draft_rows: u32,
    /// Request-rounds to simulate, at least; they are spread evenly over all responses.
    pub request_rounds: u32,
    /// Indices of the requests to serve (one half of them, say); `None` = all.
    pub requests: Option<&'r [u32]>,
}

/// One request's part of a cell: all its rounds, in the cell's proportion of visits to rounds. What a paired bootstrap
/// resamples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestSums {
    /// Tokens emitted by verify steps.
    pub tokens: f64,
    /// Verify steps.
    pub rounds: f64,
    /// Σ over its rounds of step time / requests of the step, in ms.
    pub ms: f64,
}

/// Figures of one cell in the steady state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FastResult {
    /// By index of the request in the trace; zeros for one that was not served.
    pub per_request: Vec<RequestSums>,
    /// Steps of the batch.
    pub steps: u64,
    /// Request-rounds: Σ over the steps of their requests.
    pub rounds: u64,
    /// Tokens of so many request-rounds.
    pub tokens: f64,
    /// Σ step time in ms.
    pub ms: f64,
    /// Mean time of each phase per step, in ms.
    pub phases: PhaseTimes,
    /// τ: tokens per request-round, over all rounds of all responses.
    pub tau: f64,
    /// Mean ms of a step.
    pub step_ms: f64,
    /// Tokens per second of the whole batch.
    pub tok_s: f64,
    /// Mean rows of a request, root included.
    pub rows_mean: f64,
    /// Mean rows of a step with padding.
    pub padded_rows_mean: f64,
    /// Mean distinct experts per layer and step; `None` for a target without experts.
    pub experts_mean: Option<f64>,
    /// Mean board power of one GPU over the time, in W.
    pub watts: f64,
    /// Energy of all GPUs per token.
    pub joules_per_token: f64,
    /// Relative standard error of `tok_s` by the simulation alone (who meets whom, and where), the requests taken as they
    /// are. That of τ is none for a fixed policy, and a part of it for one that chooses.
    pub mc_error: f64,
    /// Whether every step lay inside the domain of its tables.
    pub in_domain: bool,
    /// Share of request-rounds whose tree would have needed a rank that the trace does not list: a lower bound of what
    /// they accept.
    pub cut_share: f64,
}
