//! An experiment with every value in force.

mod live;

pub use live::{Chat, Drafter, LawKind, Live, PromptFile, Sampling, Workload};

use crate::config::{Location, PricedRun};
use treeline_core::CostCurve;

/// A whole experiment: what [`load`](crate::config::load) makes of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Names the run folder and `summary.json`.
    pub name: String,
    /// Seed of every random number.
    pub seed: u64,
    /// What `rounds.parquet` keeps.
    pub record: Record,
    /// Resamples of the bootstrap intervals.
    pub bootstrap: u32,
    /// Whether plain decoding runs once per temperature and concurrency, as the baseline of `speedup`.
    pub baseline: bool,
    /// What runs the rounds.
    pub backend: Backend,
    /// Numbers of requests that decode together; one set of cells each.
    pub concurrency: Vec<u32>,
    /// What a step costs, for policies that ask.
    pub cost: Option<Cost>,
    /// The policies, in file order.
    pub policies: Vec<PolicySpec>,
    /// Absolute folder that relative paths of the file start from.
    pub folder: std::path::PathBuf,
}

impl Experiment {
    /// Temperatures of a live run; empty for a replay, whose trace says.
    #[must_use]
    pub fn temperatures(&self) -> &[f64] {
        self.backend.live().map_or(&[], |live| &live.sampling.temperature)
    }
}

/// Which rounds `rounds.parquet` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// None; the summary and the details of the cells are written all the same.
    Summary,
    /// Every n-th round of a cell.
    Sample(u32),
    /// Every round.
    All,
}

/// What runs the rounds.
#[derive(Debug, Clone, PartialEq)]
pub enum Backend {
    /// Real models on the CPU.
    Cpu(Live),
    /// Real models on an NVIDIA GPU.
    Cuda(Live, Cuda),
    /// Synthetic weights on an NVIDIA GPU, acceptance from a trace.
    Synthetic(Synthetic),
    /// Replay of a trace, without a clock.
    Sim(Replay),
    /// Steps priced by a deployment's cost model, acceptance from traces and processes.
    Priced(Box<PricedRun>),
}

impl Backend {
    /// The `kind` used in files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Cuda(..) | Self::Synthetic(_) => "cuda",
            Self::Sim(_) | Self::Priced(_) => "sim",
        }
    }

    /// Models, workload and sampling, where models run.
    #[must_use]
    pub fn live(&self) -> Option<&Live> {
        match self {
            Self::Cpu(live) | Self::Cuda(live, _) => Some(live),
            Self::Synthetic(_) | Self::Sim(_) | Self::Priced(_) => None,
        }
    }
}

/// One rank's work of models whose weights mean nothing, at real shapes: what it costs is measured, what it accepts is a
/// trace's.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// `kimi-k2.6`, or a folder with a `config.json`.
    pub target: Location,
    /// The first so many layers; `None` = all.
    pub layers: Option<u32>,
    /// GPUs that would hold the model together.
    pub ranks: u32,
    /// Whose work is run.
    pub rank: u32,
    /// The drafter, as the target.
    pub drafter: Location,
    /// Ranks per row that policies may read.
    pub width: u32,
    /// Positions per request, prompt included.
    pub context: u32,
    /// Prompt tokens per forward of the prefill.
    pub prefill_chunk: u32,
    /// Drafts and truth.
    pub trace: Location,
    /// Positions before every response, filled and not computed; `None` = the trace's prompts, computed.
    pub prompt: Option<u32>,
    /// Share of a row's experts that are those of the row before.
    pub expert_overlap: f64,
    /// How the GPU computes.
    pub cuda: Cuda,
}

/// What only the CUDA engine reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cuda {
    /// Number of the GPU, as the driver counts.
    pub gpu: u32,
    /// Type of activations and of the weights of dense products.
    pub dtype: Precision,
    /// Whether passes run from captured graphs.
    pub graphs: bool,
    /// Whether the kernels run on the host instead, thread by thread: results without a GPU, and no meaningful time.
    pub emulated: bool,
}

/// Type of activations and dense weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// As checkpoints store them.
    Bf16,
    /// As the CPU engine computes.
    F32,
}

impl Precision {
    /// The word used in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// A replay of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The trace file.
    pub trace: Location,
}

/// What a step costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Milliseconds of a step by verified rows.
    pub curve: CostCurve,
    /// The command or document that the points come from.
    pub source: String,
}

/// One `[[policy]]` of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySpec {
    /// The registered kind.
    pub kind: String,
    /// Budgets: nodes without the root; one cell each.
    pub budgets: Vec<u32>,
    /// The policy's own parameters, every value in force: a table, as `Registry::build` takes it.
    pub params: serde_json::Value,
}
