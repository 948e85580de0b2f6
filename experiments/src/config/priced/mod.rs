//! A priced run: steps cost what a deployment's cost model says, acceptance comes from traces and processes.

mod build;
mod check;
mod file;
mod resolve;

pub(crate) use build::{named, priced, sections};
pub(crate) use check::check;
pub(crate) use file::{
    Acceptance as AcceptanceText, Arrivals as ArrivalsText, Deployment as DeploymentText, Reference, Split,
};
pub(crate) use resolve::{top, write};

use super::Location;

/// Request-rounds of a cell unless the file says otherwise: Monte-Carlo errors stay below 1 %.
pub(crate) const ROUNDS: u32 = 8192;
/// Requests that a process generates unless the file says otherwise.
pub(crate) const REQUESTS: u32 = 64;

/// What a priced run simulates.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedRun {
    /// What a step costs.
    pub deployment: DeploymentSpec,
    /// Where acceptance comes from; one set of cells each.
    pub acceptance: Vec<AcceptanceSpec>,
    /// Positions before a response, one set of cells each; empty = as the traces have them.
    pub context: Vec<u32>,
    /// Tokens of a response that a process generates; `None` where every acceptance is a trace.
    pub response: Option<u32>,
    /// How requests arrive.
    pub arrivals: ArrivalsSpec,
    /// Requests that a process generates.
    pub requests: u32,
    /// Request-rounds of a cell of the grid: the Monte-Carlo size.
    pub rounds: u32,
    /// Today's practice, which answers are compared with.
    pub reference: Option<(String, u32)>,
    /// Whether policies are also calibrated on one half of the requests and scored on the other.
    pub split: bool,
}

/// Which profiles are priced, and how. Names are of shipped profiles, or paths of TOML files.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentSpec {
    /// The deployment profile: engine, version, ranks, graphs, all-reduce.
    pub engine: String,
    /// The hardware profile; `None` = the one that the deployment names.
    pub hardware: Option<String>,
    /// The model profile.
    pub model: String,
    /// The drafter profile.
    pub drafter: String,
    /// Which figures price a step.
    pub tier: TierName,
    /// The file of tier `calibrated`.
    pub calibration: Option<Location>,
    /// From bound (0) to table (1).
    pub overhead_scale: f64,
    /// Whether queries outside a table's domain are answered, and flagged.
    pub allow_extrapolation: bool,
    /// The model of distinct experts, by shipped name or path; `None` for a dense target.
    pub experts: Option<String>,
    /// Whether prompts of joining requests are charged.
    pub prefill: PrefillName,
}

/// Which figures price a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierName {
    /// The roofline: a lower limit.
    Bound,
    /// Measured op tables.
    Table,
    /// This project's own engine, measured.
    Calibrated,
}

impl TierName {
    /// The word used in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Table => "table",
            Self::Calibrated => "calibrated",
        }
    }
}

/// Whether prompts of joining requests are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefillName {
    /// They take time of the steps that they join.
    Charged,
    /// They take none.
    Excluded,
}

impl PrefillName {
    /// The word used in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Excluded => "excluded",
        }
    }
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArrivalsSpec {
    /// A new one as soon as one ends: the concurrency is always full.
    Closed,
    /// By a Poisson process; the concurrency is the cap.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
}

/// One source of acceptance.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptanceSpec {
    /// Names it in results.
    pub name: String,
    /// What it is.
    pub source: AcceptanceKind,
}

/// A trace or a process.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptanceKind {
    /// Exact replay of a recording.
    Trace {
        /// The file.
        file: Location,
        /// Whether it is of other models than those that are priced.
        stand_in: bool,
    },
    /// A synthetic drafter–target process.
    Process {
        /// A shipped process, or the path of a TOML file.
        process: String,
        /// The τ that it is scaled to; `None` = as it is.
        anchor: Option<Anchor>,
        /// Whether its uncertain parameters are moved too, for the model's part of the error.
        variants: bool,
    },
}

/// A published τ.
#[derive(Debug, Clone, PartialEq)]
pub struct Anchor {
    /// Tokens per verify step, bonus included.
    pub tau: f64,
    /// chain or best-first: how the steps were drafted.
    pub policy: String,
    /// Nodes without the root; `None` = the drafter's whole chain.
    pub budget: Option<u32>,
}
