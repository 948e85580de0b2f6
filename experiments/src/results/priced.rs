//! `priced.json`: what a priced run leaves beside its cells. The cost model's curves and breakdowns, the answers, and the
//! scenarios; the report draws from it.
//!
//! Times are in ms per step of the whole batch, bytes and flops per GPU. A missing value is `null`, never 0.

use super::{Answer, FailedCell, RefusedCell};
use serde::{Deserialize, Serialize};

/// `schema_version` of `priced.json`.
pub const PRICED_VERSION: u32 = 2;

/// `priced.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Priced {
    /// [`PRICED_VERSION`].
    pub schema_version: u32,
    /// What was priced, and from which figures.
    pub setup: PricedSetup,
    /// Step time against rows, tier by tier.
    pub curves: Vec<PricedCurve>,
    /// Steps taken apart.
    pub breakdowns: Vec<PricedBreakdown>,
    /// Distinct experts against rows, form by form.
    pub experts: Vec<PricedExperts>,
    /// Where acceptance comes from.
    pub acceptances: Vec<PricedAcceptance>,
    /// The best policy of every acceptance, context and concurrency.
    pub answers: Vec<Answer>,
    /// Cells that were not run, with the reason.
    pub refused: Vec<RefusedCell>,
    /// Cells that failed while they ran, with the reason: no answer knows of them.
    pub failed: Vec<FailedCell>,
    /// Policies that choose their size, calibrated on half of the requests and scored on the other; only with `split`.
    #[serde(default)]
    pub split: Vec<super::SplitScore>,
    /// Questions that the project began with.
    pub scenarios: Vec<Scenario>,
}

/// What was priced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PricedSetup {
    /// Name of the hardware profile.
    pub hardware: String,
    /// Name of the model profile.
    pub model: String,
    /// Name of the drafter profile; `null` = no drafter.
    pub drafter: Option<String>,
    /// Name of the deployment profile.
    pub deployment: String,
    /// Engine and version that the tables were measured on, in words.
    pub engine: String,
    /// Tensor-parallel ranks.
    pub ranks: u32,
    /// bound, table or calibrated: the tier of the cells.
    pub tier: String,
    /// From bound (0) to table (1).
    pub overhead_scale: f64,
    /// How distinct experts are counted: uniform, skewed, correlated or measured; `null` for a dense model.
    pub experts: Option<String>,
    /// `closed`, or `poisson` with its rate, in words.
    pub arrivals: String,
    /// charged or excluded.
    pub prefill: String,
    /// Where each figure comes from, a line each.
    pub describe: Vec<String>,
    /// What the profiles say that is not modelled, a line each.
    pub not_modelled: Vec<String>,
    /// Why trees on this engine are hypothetical, where they are.
    pub hypothetical: Option<String>,
    /// Digest of the cost model.
    pub digest: String,
}

/// Step time against rows at one deployment, context and concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedCurve {
    /// For the legend.
    pub label: String,
    /// Name of the hardware profile.
    pub hardware: String,
    /// Name of the deployment profile.
    pub deployment: String,
    /// Positions per request before the step.
    pub context: u32,
    /// Requests of the step.
    pub concurrency: u32,
    /// Stated relative error of the run's tier on this machine.
    pub error: Option<f64>,
    /// Ascending by rows.
    pub points: Vec<PricedPoint>,
}

/// One point of a [`PricedCurve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PricedPoint {
    /// Verified rows per request, root included.
    pub rows: u32,
    /// Verified rows over all requests, as padded.
    pub padded_rows: u32,
    /// Tier `bound`: a lower limit, never a prediction.
    pub bound_ms: Option<f64>,
    /// Tier `table`.
    pub table_ms: Option<f64>,
    /// Tier `calibrated`.
    pub calibrated_ms: Option<f64>,
    /// Measured.
    pub measured_ms: Option<f64>,
    /// Distinct routed experts per MoE layer.
    pub experts: Option<f64>,
    /// Whether every look-up of the run's tier lay in its table's domain.
    pub in_domain: bool,
}

/// One step taken apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedBreakdown {
    /// For the heading.
    pub label: String,
    /// Requests of the step.
    pub requests: u32,
    /// Verified rows per request, root included.
    pub rows: u32,
    /// Positions per request before the step.
    pub context: u32,
    /// Whether the step drafted; plain decoding does not.
    pub draft: bool,
    /// In order of execution.
    pub ops: Vec<PricedOp>,
}

/// One operation of a step, all its calls together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedOp {
    /// Its name.
    pub name: String,
    /// draft, tree, verify, walk, commit or host.
    pub phase: String,
    /// Calls in the step.
    pub calls: u32,
    /// Time of all calls in ms.
    pub ms: f64,
    /// The roofline's time in ms.
    pub bound_ms: f64,
    /// Bytes moved on one GPU.
    pub bytes: f64,
    /// Floating-point operations on one GPU.
    pub flops: f64,
    /// memory, compute, latency or link: what holds it.
    pub limit: String,
    /// bound, table, table+flops or calibrated.
    pub tier: String,
    /// Whether the look-up lay in its table's domain.
    pub in_domain: bool,
}

/// Distinct experts against rows by one form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedExperts {
    /// The form: uniform, skewed, correlated, measured; a public measurement has its source here.
    pub model: String,
    /// Ascending by rows.
    pub points: Vec<ExpertPoint>,
}

/// One point of [`PricedExperts`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExpertPoint {
    /// Verified rows of one request.
    pub rows: u32,
    /// Distinct experts per layer.
    pub u: f64,
}

/// One acceptance source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedAcceptance {
    /// The name of the file's `[[acceptance]]`.
    pub name: String,
    /// `trace` or `process`.
    pub kind: String,
    /// Where it comes from, in words.
    pub source: String,
    /// τ that a process was scaled to; `null` where it was not.
    pub anchor_tau: Option<f64>,
    /// The policy that the anchor is of: chain or best-first.
    pub anchor_policy: Option<String>,
    /// The budget that the anchor is of; `null` = the drafter's whole chain.
    pub anchor_budget: Option<u32>,
    /// Accepted share at depth 1, 2, … on the spine.
    pub conditional: Vec<f64>,
}

/// A question with its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The question.
    pub title: String,
    /// The answer, in sentences.
    pub text: String,
    /// Names of the columns of `rows`.
    pub columns: Vec<String>,
    /// The figures behind it, as text.
    pub rows: Vec<Vec<String>>,
}
