//! The experiment file as it is written: serde reads it, schemars describes it.
//!
//! A key that only one kind reads is optional here; [`build`](super::build) refuses it beside another kind. `[[policy]]`
//! tables are read apart, since every policy has parameters of its own.

mod checkpoint;

pub(crate) use checkpoint::Checkpoint;

use super::priced::{AcceptanceText, ArrivalsText, DeploymentText, Reference, Split};
use super::text::{Line, Name, PathText, RecordText};
use super::value::{Heat, Int, List, Mass, Millis, Real, Share};
use schemars::JsonSchema;
use serde::Deserialize;

/// Any `u64`.
pub(crate) type Seed = Int<0, { u64::MAX }>;
/// A budget: nodes without the root.
pub(crate) type Budget = Int<1, 4096>;
/// Positions per request.
type Positions = Int<2, 1_048_576>;
/// Ranks per row.
type Ranks = Int<1, 4096>;
/// Levels of a tree.
type Levels = Int<1, 64>;

/// An experiment: which policies and budgets are compared, on which models, prompts and backend.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Treeline experiment")]
pub(crate) struct File {
    /// Names the run folder.
    pub name: Name,
    /// Seed of every random number.
    pub seed: Seed,
    /// Rounds that `rounds.parquet` keeps: `summary` (none), `sample:N` (every N-th) or `all`.
    pub record: RecordText,
    /// Resamples of the bootstrap intervals; 2000 unless given.
    pub bootstrap: Option<Int<100, 100_000>>,
    /// Whether plain decoding runs as the baseline of `speedup`; true unless given.
    pub baseline: Option<bool>,
    /// Folder that relative paths start from, itself relative to this file; the file's own folder unless given.
    pub folder: Option<PathText>,
    /// The model that is sped up; backends cpu and cuda.
    pub target: Option<Target>,
    /// Who drafts; backends cpu and cuda.
    pub drafter: Option<Drafter>,
    /// What runs the rounds.
    pub backend: Backend,
    /// The CUDA engine; backend cuda, also where the command line names it.
    pub cuda: Option<Cuda>,
    /// What is decoded.
    pub workload: Workload,
    /// How tokens are chosen; backends cpu and cuda.
    pub sampling: Option<Sampling>,
    /// What a step costs; read by policies that ask for it.
    pub cost: Option<Cost>,
    /// The deployment whose steps are priced; backend sim.
    pub deployment: Option<DeploymentText>,
    /// Where acceptance comes from; one set of cells for each. Backend sim with a deployment.
    pub acceptance: Option<Vec<AcceptanceText>>,
    /// Today's practice, which answers are compared with. Backend sim with a deployment.
    pub reference: Option<Reference>,
    /// `halves`: policies are also calibrated on one half of the requests and scored on the other. Backend sim with a
    /// deployment.
    pub split: Option<Split>,
}

/// The model that is sped up.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Target {
    /// Folder of the checkpoint, or synthetic weights (backend cuda).
    pub checkpoint: Checkpoint,
}

/// Kinds of drafters.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum DrafterKind {
    Dflash,
    Autoregressive,
    Ngram,
}

/// Who drafts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Drafter {
    /// What kind of drafter.
    pub kind: DrafterKind,
    /// Folder of the checkpoint, or synthetic weights beside a synthetic target; not for ngram.
    pub checkpoint: Option<Checkpoint>,
    /// Ranks kept per row.
    pub width: Ranks,
    /// Levels: required for autoregressive and ngram; dflash takes its block's unless a smaller number is given.
    pub depth: Option<Levels>,
    /// Longest suffix that is looked up, in tokens; ngram.
    pub order: Option<Int<1, 8>>,
}

/// Kinds of backends.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum BackendKind {
    Cpu,
    Sim,
    Cuda,
}

/// What runs the rounds.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Backend {
    /// cpu and cuda run real models, on the processor or on an NVIDIA GPU; sim replays a trace.
    pub kind: BackendKind,
    /// Positions per request, prompt included; backends cpu and cuda.
    pub context: Option<Positions>,
    /// Prompt tokens per forward of the prefill; backends cpu (64 unless given) and cuda (256, which is its most).
    pub prefill_chunk: Option<Int<1, 65_536>>,
    /// The trace that is replayed; backend sim, and synthetic weights, whose drafts and truth it gives.
    pub trace: Option<PathText>,
}

/// Types of activations and dense weights.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Dtype {
    Bf16,
    F32,
}

/// The CUDA engine.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Cuda {
    /// Number of the GPU, as the driver counts; 0 unless given.
    pub gpu: Option<Int<0, 1023>>,
    /// Type of activations and dense weights: bf16 as checkpoints store them, f32 as backend cpu computes.
    pub dtype: Dtype,
    /// Whether passes run from captured graphs; true unless given.
    pub graphs: Option<bool>,
    /// With synthetic weights and routed experts: share of a row's experts that are those of the row before; the others are
    /// independent.
    pub expert_overlap: Option<Real<Share>>,
    /// With synthetic weights: positions before every response, which are filled with numbers and not computed; unless given,
    /// prompts have the lengths that the trace tells and are computed.
    pub prompt: Option<Positions>,
    /// Whether the kernels run on the host, thread by thread, for tests without a GPU; false unless given.
    pub emulated: Option<bool>,
}

/// How a prompt is wrapped.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum ChatMode {
    Off,
    Plain,
    Thinking,
}

/// What is decoded.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Workload {
    /// The most tokens of a response, at least 2: the first comes from the prefill, without a round; backends cpu and cuda.
    pub max_new: Option<Int<2, 1_048_576>>,
    /// Whether responses run to `max_new` whatever the model says; backends cpu and cuda.
    pub ignore_eos: Option<bool>,
    /// How prompts are wrapped by the checkpoint's chat template; backends cpu and cuda.
    pub chat: Option<ChatMode>,
    /// Requests that decode together; one set of cells for each number.
    pub concurrency: List<Int<1, 1024>>,
    /// Prompt files; backends cpu and cuda.
    pub prompts: Option<List<Prompts>>,
    /// Positions before a response, one set of cells for each; as the traces have them unless given. Backend sim with a
    /// deployment.
    pub context: Option<List<Int<1, 1_048_576>>>,
    /// Tokens of a response that a process generates. Backend sim with a deployment.
    pub response: Option<Int<2, 1_048_576>>,
    /// How requests arrive; closed unless given. Backend sim with a deployment.
    pub arrivals: Option<ArrivalsText>,
    /// Requests that a process generates; 64 unless given. Backend sim with a deployment.
    pub requests: Option<Int<2, 100_000>>,
    /// Request-rounds that a cell of the grid simulates; 8192 unless given. Backend sim with a deployment.
    pub rounds: Option<Int<256, 100_000_000>>,
}

/// One prompt file.
#[derive(Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Prompts {
    /// JSON lines of `id`, `domain` and `text`.
    pub file: PathText,
    /// The first so many prompts; all of them unless given.
    pub take: Option<Int<1, 1_000_000>>,
}

/// Verification laws.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum LawName {
    Greedy,
    SampleMatch,
    Residual,
    Traversal,
}

/// How tokens are chosen.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Sampling {
    /// The verification law.
    pub law: LawName,
    /// Temperatures of the target; one set of cells for each.
    pub temperature: List<Real<Heat>>,
    /// Keep the so many most probable tokens; 0 = off, and off unless given.
    pub top_k: Option<Int<0, 4_294_967_295>>,
    /// Keep the smallest set of tokens that reaches this probability; 1 = off, and off unless given.
    pub top_p: Option<Real<Mass>>,
    /// Whether candidates are drawn with replacement; law residual.
    pub replace: Option<bool>,
}

/// What a step costs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Cost {
    /// Milliseconds of a step by verified rows.
    pub curve: Curve,
}

/// Points of a cost curve.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Curve {
    /// Verified rows of a step, ascending.
    pub rows: List<Int<1, 16_777_216>>,
    /// Milliseconds of a step with that many rows.
    pub ms: Vec<Real<Millis>>,
    /// The command or document that the points come from.
    pub source: Line,
}
