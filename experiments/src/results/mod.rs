//! What a run leaves behind: `summary.json` and, per cell, the detail that the report draws from.
//!
//! A missing value is `null`, never 0. Every figure says where it came from.

mod answer;
mod priced;
mod split;

pub use answer::*;
pub use priced::*;
pub use split::*;

use serde::{Deserialize, Serialize};

/// `schema_version` of `summary.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// One entry per cell that finished.
    pub cells: Vec<Cell>,
    /// Predicted against measured, where the run has both.
    pub comparison: Comparison,
    /// What a reader must know before believing the figures.
    pub warnings: Vec<String>,
}

/// One policy at one budget, temperature and concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// sim, cpu or cuda.
    pub backend: String,
    /// The policy's kind; `plain` for plain decoding.
    pub policy: String,
    /// Its parameters, every value in force.
    pub policy_params: serde_json::Value,
    /// The cap asked: nodes without the root; 0 = plain decoding.
    pub budget: u32,
    /// Machine, in words.
    pub hardware: Option<String>,
    /// Target, drafter and how they are deployed, in words.
    pub deployment: Option<String>,
    /// Where acceptance comes from: `measured`, or the trace.
    pub acceptance: Option<String>,
    /// Requests that decode together.
    pub concurrency: u32,
    /// Positions per request.
    pub context: u32,
    /// Temperature of the target.
    pub temperature: f64,
    /// Name of the workload: prompt files.
    pub workload: String,
    /// Tensor-parallel ranks.
    pub ranks: u32,
    /// Whether device graphs ran; `null` where there are none.
    pub graphs: Option<bool>,
    /// Requests that finished.
    pub requests: u32,
    /// Verify steps over all requests.
    pub rounds: u64,
    /// Tokens per verify step, bonus included.
    pub tau: Option<f64>,
    /// 95 % interval over requests.
    pub tau_lo: Option<f64>,
    /// 95 % interval over requests.
    pub tau_hi: Option<f64>,
    /// Unweighted mean of the per-response means.
    pub tau_unweighted: Option<f64>,
    /// Mean rows verified per step and request, root included.
    pub rows_mean: Option<f64>,
    /// Mean distinct routed experts per MoE layer and step.
    pub experts_mean: Option<f64>,
    /// Mean time of a decode step in ms, prefill apart unless it is charged.
    pub step_ms: Option<f64>,
    /// 95 % interval.
    pub step_ms_lo: Option<f64>,
    /// 95 % interval.
    pub step_ms_hi: Option<f64>,
    /// Decoded tokens per second over the whole batch. Prefill apart unless it is charged; of an open loop, over all its
    /// time, idle time included.
    pub tok_s: Option<f64>,
    /// 95 % interval.
    pub tok_s_lo: Option<f64>,
    /// 95 % interval.
    pub tok_s_hi: Option<f64>,
    /// Tokens per second and user, from the first token on: prompts of others count where they are charged, its own does not.
    pub tok_s_user: Option<f64>,
    /// Tokens per second and GPU.
    pub tok_s_gpu: Option<f64>,
    /// Share of an open loop's time in which the engine works; `null` where requests do not arrive by a clock.
    #[serde(default)]
    pub busy: Option<f64>,
    /// Energy per token over all GPUs.
    pub joules_per_token: Option<f64>,
    /// Mean power of one GPU in W.
    #[serde(default)]
    pub power_w: Option<f64>,
    /// Plain decoding's time per token over this cell's, at the same concurrency cap: a user's time, or in a priced run the
    /// time in which engines work.
    pub speedup: Option<f64>,
    /// 95 % interval of the speed-up, paired by request where both cells have the same requests.
    #[serde(default)]
    pub speedup_lo: Option<f64>,
    /// 95 % interval.
    #[serde(default)]
    pub speedup_hi: Option<f64>,
    /// Relative standard error of `tok_s` that comes from simulating too few steps, apart from the interval over requests;
    /// `null` where nothing is simulated.
    #[serde(default)]
    pub mc_error: Option<f64>,
    /// Share of responses (of 96 tokens or more) that end in a loop.
    pub loop_share: Option<f64>,
    /// bound, table, calibrated or measured.
    pub tier: String,
    /// Where each figure came from.
    pub source: Source,
    /// Whether every query lay in the cost model's domain; `null` for measurements.
    pub in_domain: Option<bool>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Where the figures of a cell came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// measured, replayed, …
    pub tau: String,
    /// measured, table, …; `null` when there is no time.
    pub step_ms: Option<String>,
    /// measured, model, …; `null` when not counted.
    pub experts: Option<String>,
}

/// Predicted against measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Per cell and metric.
    pub pairs: Vec<Pair>,
    /// Mean absolute error in per cent.
    pub mape: Option<f64>,
    /// Mean signed error in per cent.
    pub bias: Option<f64>,
    /// Rank agreement of policies.
    pub kendall: Option<f64>,
    /// tok/s lost by trusting the prediction.
    pub regret: Option<f64>,
    /// Its upper bound.
    pub regret_hi: Option<f64>,
    /// What of the two configurations matched.
    pub config_match: Vec<String>,
}

/// One predicted and measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Index in [`Summary::cells`].
    pub cell: usize,
    /// `tau`, `step_ms`, …
    pub metric: String,
    /// Predicted.
    pub predicted: f64,
    /// Measured.
    pub measured: f64,
    /// (predicted − measured) / measured.
    pub error: f64,
}

/// What the report draws of one cell; stored as `cells/<key>.json`, which also is what `--resume` trusts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellDetail {
    /// Names the cell in the run folder: a digest of everything that determines its result.
    pub key: String,
    /// The figures.
    pub cell: Cell,
    /// Per request, in workload order: id, domain, verify steps, tokens decoded, looped.
    pub per_request: Vec<RequestRow>,
    /// Conditional acceptance by depth 1, 2, …: how often a node at depth−1 was reached with a child there, and how often
    /// one was accepted.
    pub by_depth: Vec<DepthRow>,
    /// How often a verify step emitted 1, 2, … tokens (index 0 = one token).
    pub emitted_histogram: Vec<u64>,
    /// Distinct experts against rows of a step: rows, steps, mean distinct experts per MoE layer.
    pub experts_by_rows: Vec<RowsPoint>,
    /// Step time against rows of a step: rows, steps, mean ms.
    pub ms_by_rows: Vec<RowsPoint>,
    /// Where the tokens that a perfect tree would have had were lost; block drafters only.
    pub waterfall: Option<WaterfallRow>,
    /// Mean ms per step by phase: (phase, ms).
    pub phases: Vec<(String, f64)>,
    /// Mean Φ (the surrogate's own expectation of accepted tokens) per step, and mean accepted: how calibrated it is.
    pub phi: Option<(f64, f64)>,
    /// Prefill time over all requests in ms.
    pub prefill_ms: Option<f64>,
    /// Requests that ended with a fault: id and message.
    pub faults: Vec<(u64, String)>,
    /// Doubts about this cell, with advice; [`Summary::warnings`] has them once for all cells.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One request of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// Request id.
    pub id: u64,
    /// Its domain.
    pub domain: String,
    /// Verify steps.
    pub steps: u64,
    /// Tokens that they emitted.
    pub tokens: u64,
    /// Decode time in ms, where there is a clock (shared equally by the requests of a batch).
    pub ms: Option<f64>,
    /// Whether it ends in a loop; `null` below 96 tokens.
    pub looped: Option<bool>,
}

/// Acceptance at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DepthRow {
    /// Depth, 1 = the root's children.
    pub depth: u32,
    /// Steps whose walk reached a node of depth−1 that had children.
    pub reached: u64,
    /// Steps that accepted a node at this depth.
    pub accepted: u64,
    /// Of the accepted ones, how many had rank 0, 1, 2, …
    pub by_rank: Vec3,
}

/// Counts of rank 0, rank 1 and higher ranks.
pub type Vec3 = [u64; 3];

/// A mean at one row count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RowsPoint {
    /// Rows of the step over all requests.
    pub rows: u32,
    /// Steps with that many.
    pub steps: u64,
    /// Mean.
    pub mean: f64,
}

/// Tokens per step by what became of them; the four sum to `reach`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaterfallRow {
    /// Tokens that the drafter's depth and the response's end leave within reach, per step.
    pub reach: f64,
    /// The true token is not among the drafter's top W.
    pub not_in_top_w: f64,
    /// No rank-monotone tree of this budget holds the true path.
    pub unreachable: f64,
    /// A tree could have held it; the policy's surrogate chose other nodes.
    pub surrogate: f64,
    /// Accepted.
    pub accepted: f64,
    /// τ of the hindsight oracle tree of the same budget, on the same steps.
    pub oracle_tau: f64,
}
