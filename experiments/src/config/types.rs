//! An experiment with every value in force.

use crate::config::{Location, PricedRun};
use treeline_core::{CostCurve, Law};

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

/// A run of real models.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Folder of the target's checkpoint.
    pub target: Location,
    /// Who drafts.
    pub drafter: Drafter,
    /// Positions per request, prompt included.
    pub context: u32,
    /// Prompt tokens per forward of the prefill.
    pub prefill_chunk: u32,
    /// The prompts and how long responses are.
    pub workload: Workload,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// A replay of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The trace file.
    pub trace: Location,
}

/// Who drafts. `width` is the number of ranks kept per row.
#[derive(Debug, Clone, PartialEq)]
pub enum Drafter {
    /// A DFlash block drafter.
    Dflash {
        /// Folder of its checkpoint.
        checkpoint: Location,
        /// Ranks per row.
        width: u32,
        /// Levels used; `None` = all that the checkpoint's block has.
        depth: Option<u32>,
    },
    /// A small autoregressive model.
    Autoregressive {
        /// Folder of its checkpoint.
        checkpoint: Location,
        /// Ranks per row.
        width: u32,
        /// Levels.
        depth: u32,
    },
    /// Continuations of the longest suffix that occurred before in the same request, down to one token.
    Ngram {
        /// Ranks per row.
        width: u32,
        /// Levels.
        depth: u32,
        /// Longest suffix that is looked up, in tokens; shorter ones follow.
        order: u32,
    },
}

impl Drafter {
    /// The `kind` used in files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dflash { .. } => "dflash",
            Self::Autoregressive { .. } => "autoregressive",
            Self::Ngram { .. } => "ngram",
        }
    }

    /// Ranks per row.
    #[must_use]
    pub fn width(&self) -> u32 {
        match self {
            Self::Dflash { width, .. } | Self::Autoregressive { width, .. } | Self::Ngram { width, .. } => *width,
        }
    }

    /// Levels, where the file says.
    #[must_use]
    pub fn depth(&self) -> Option<u32> {
        match self {
            Self::Dflash { depth, .. } => *depth,
            Self::Autoregressive { depth, .. } | Self::Ngram { depth, .. } => Some(*depth),
        }
    }

    /// Folder of the checkpoint, where there is one.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Location> {
        match self {
            Self::Dflash { checkpoint, .. } | Self::Autoregressive { checkpoint, .. } => Some(checkpoint),
            Self::Ngram { .. } => None,
        }
    }
}

/// What is decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The most tokens of a response.
    pub max_new: u32,
    /// Whether responses run to `max_new` whatever the model says.
    pub ignore_eos: bool,
    /// How prompts are wrapped.
    pub chat: Chat,
    /// Prompt files, in order; request ids count through them.
    pub prompts: Vec<PromptFile>,
}

/// How a prompt is wrapped before it is tokenised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chat {
    /// Not at all: the model continues the text.
    Off,
    /// The checkpoint's chat template, thinking off.
    Plain,
    /// The checkpoint's chat template, thinking on.
    Thinking,
}

impl Chat {
    /// The word used in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Plain => "plain",
            Self::Thinking => "thinking",
        }
    }
}

/// One prompt file: a line is `{"id", "domain", "text"}`.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptFile {
    /// The file.
    pub file: Location,
    /// The first so many lines; `None` = all.
    pub take: Option<u32>,
}

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// The verification law.
    pub law: LawKind,
    /// Temperatures of the target; one set of cells each.
    pub temperature: Vec<f64>,
    /// Keep the so many most probable tokens; 0 = off.
    pub top_k: u32,
    /// Keep the smallest set that reaches this probability; 1 = off.
    pub top_p: f64,
}

impl Sampling {
    /// The core's form at one temperature.
    #[must_use]
    pub fn at(&self, temperature: f64) -> treeline_core::Sampling {
        treeline_core::Sampling { temperature: temperature as f32, top_k: self.top_k, top_p: self.top_p as f32 }
    }
}

/// A verification law without its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LawKind {
    /// Argmax.
    Greedy,
    /// One sample of the target per visited node.
    SampleMatch,
    /// Multi-round residual rejection over drawn candidates.
    Residual {
        /// Whether candidates are drawn with replacement.
        replace: bool,
    },
    /// Traversal verification over drawn candidates.
    Traversal,
}

impl LawKind {
    /// The law under the experiment's seed.
    #[must_use]
    pub fn law(self, seed: u64) -> Law<'static> {
        match self {
            Self::Greedy => Law::Greedy,
            Self::SampleMatch => Law::SampleMatch { seed },
            Self::Residual { replace } => Law::Residual { replace, seed },
            Self::Traversal => Law::Traversal { seed },
        }
    }

    /// The name used in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.law(0).kind()
    }
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
