//! The file: what stands in it, reading and writing.

use super::super::error::CostError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use treeline_core::log::Phase;

/// Version of the format that this build writes and reads.
pub const SCHEMA_VERSION: u32 = 1;

/// A calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// 1.
    pub schema_version: u32,
    /// Where and on what it was measured.
    pub manifest: Manifest,
    /// What it covers.
    pub domain: Domain,
    /// Fitted ops; a phase's time is the sum of its ops.
    pub ops: Vec<FittedOp>,
    /// Measured steps: those that the ops were fitted to, and those held out.
    pub points: Vec<StepPoint>,
    /// Error on the held-out steps.
    pub held_out: HeldOut,
    /// `sha256:` and the hash of the file's compact JSON with this field empty.
    pub digest: String,
}

/// Where a calibration was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Host, in words: board and CPU.
    pub machine: String,
    /// GPU as the driver names it.
    pub gpu: String,
    /// GPUs that ran.
    pub ranks: u32,
    /// GPUs that the model was split over, where fewer ran: the work of one of them was measured alone, without
    /// communication. Not written where all of them ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_ranks: Option<u32>,
    /// Driver version.
    pub driver: String,
    /// Engine that ran.
    pub engine: String,
    /// Its git commit or release.
    pub engine_commit: String,
    /// Model profile or checkpoint digest.
    pub model: String,
    /// Drafter profile or checkpoint digest, where one ran.
    pub drafter: Option<String>,
    /// `graph` or `eager`.
    pub execution: String,
    /// The command that measured it.
    pub command: String,
    /// Clocks, temperature, and whatever else a reader should know.
    pub notes: Vec<String>,
}

/// Least and most of each quantity, both inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// Requests that decode together.
    pub requests: [u32; 2],
    /// Rows of the pass that ran (padding included).
    pub rows: [u32; 2],
    /// Mean context in tokens.
    pub context: [u32; 2],
    /// Rows of one draft pass; `[0, 0]` without a drafter.
    pub draft_rows: [u32; 2],
}

/// One fitted op: µs = rows(T) + `us_per_expert`·U + max(`us_per_token`·Σ context, `us_per_row_token`·T·mean context), all
/// layers together; for ops of the draft phase T are the rows of one draft pass and Σ runs over the drafted requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedOp {
    /// Name, unique in the file.
    pub name: String,
    /// The phase it belongs to; not prefill.
    pub phase: Phase,
    /// Kernel calls in it.
    pub calls: u32,
    /// Knots (rows, µs), rows ascending, linear between; one knot is a constant.
    pub rows: Vec<(u32, f64)>,
    /// µs a distinct expert (mean over layers).
    #[serde(default)]
    pub us_per_expert: f64,
    /// µs a cached token that is read.
    #[serde(default)]
    pub us_per_token: f64,
    /// µs a row and cached token.
    #[serde(default)]
    pub us_per_row_token: f64,
}

/// A measured step; times are means over its repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepPoint {
    /// Requests.
    pub requests: u32,
    /// Rows of the pass that ran.
    pub rows: u32,
    /// Σ of context lengths.
    pub context_sum: u64,
    /// Drafted requests.
    pub draft_requests: u32,
    /// Rows of one draft pass.
    pub draft_rows: u32,
    /// Draft passes.
    pub draft_passes: u32,
    /// Distinct experts, mean over layers; `null` where the model has none or they were not counted.
    pub experts: Option<f64>,
    /// Time of the whole round in µs.
    pub round_us: f64,
    /// Repeats behind the mean.
    pub repeats: u32,
    /// Not used by the fit.
    pub held_out: bool,
}

/// Relative error of the predicted round time over the held-out steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// Steps.
    pub points: u32,
    /// Median of |predicted / measured − 1|.
    pub median: f64,
    /// 90th percentile of it.
    pub p90: f64,
    /// Mean of predicted / measured − 1.
    pub bias: f64,
}

impl Manifest {
    /// GPUs that the model was split over.
    #[must_use]
    pub fn split(&self) -> u32 {
        self.of_ranks.unwrap_or(self.ranks)
    }

    /// What was measured, as in "1 of 8 ranks without communication, graph".
    #[must_use]
    pub fn words(&self) -> String {
        match self.of_ranks {
            Some(of) => format!("{} of {of} ranks without communication, {}", self.ranks, self.execution),
            None => format!("{} {}, {}", self.ranks, if self.ranks == 1 { "rank" } else { "ranks" }, self.execution),
        }
    }
}

impl Calibration {
    /// Reads and checks a file's text; `file` is for messages.
    ///
    /// # Errors
    /// [`CostError::Calibration`] names what is wrong and what to change.
    pub fn from_json(text: &str, file: &str) -> Result<Self, CostError> {
        let parsed: Self = serde_json::from_str(text).map_err(|e| CostError::Calibration {
            file: file.into(),
            why: e.to_string(),
            help: "write it with `treeline calibrate`; the format is described in docs/calibration-file.md".into(),
        })?;
        parsed.check(file)?;
        Ok(parsed)
    }

    /// Fills in held-out error and digest, checks, and writes the text.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn to_json(mut self, file: &str) -> Result<String, CostError> {
        self.check_parts(file)?;
        self.held_out = self.measure();
        self.digest = self.hash();
        self.check(file)?;
        serde_json::to_string_pretty(&self).map_err(|e| CostError::Calibration {
            file: file.into(),
            why: e.to_string(),
            help: "numbers must be finite".into(),
        })
    }

    /// The digest that the rest of the file has.
    #[must_use]
    pub fn hash(&self) -> String {
        let bare = Self { digest: String::new(), ..self.clone() };
        // Serialising plain structs cannot fail; an empty text would fail the check all the same.
        let text = serde_json::to_string(&bare).unwrap_or_default();
        let hex: String = Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect();
        format!("sha256:{hex}")
    }
}
