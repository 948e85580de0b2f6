//! What runs of real models are made of.

use crate::config::Location;
use treeline_core::Law;

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
