//! The advice as data: `docs/advise.md` describes the file.

use super::engines::EngineSetting;
use crate::results::{Choice, FailedCell, RefusedCell};
use serde::{Deserialize, Serialize};

/// `schema_version` of an advice file.
pub const ADVICE_VERSION: u32 = 2;

/// Which policy and budget to run, setting by setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// [`ADVICE_VERSION`].
    pub schema_version: u32,
    /// What was priced, in words.
    pub deployment: String,
    /// The deployment's engine: sglang, vllm, trtllm or treeline.
    pub engine: String,
    /// bound, table or calibrated.
    pub tier: String,
    /// Why the engine cannot run trees as they are priced; `null` = it can.
    pub hypothetical: Option<String>,
    /// What runs today, if it was given.
    pub present: Option<Choice>,
    /// One per acceptance, context and concurrency.
    pub rows: Vec<AdviceRow>,
    /// Settings that the memory does not hold, and candidates of the others that it does not.
    pub refused: Vec<RefusedCell>,
    /// Candidates that failed, with the reason: no row knows of them.
    pub failed: Vec<FailedCell>,
    /// Inputs by how much of the decisions hangs on them: the first is worth measuring next.
    pub measure_next: Vec<Sensitivity>,
    /// How the engines are told, a line per choice that `rows` name.
    pub settings: Vec<ChoiceSettings>,
    /// vLLM's chain lengths by batch size, for each acceptance and context where they differ.
    pub schedules: Vec<ScheduleSetting>,
    /// What to know before acting.
    pub notes: Vec<String>,
}

/// The advice for one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceRow {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request; 0 = as the trace has them.
    pub context: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// The policy with the highest throughput.
    pub best: Choice,
    /// Mean nodes per request and step.
    pub nodes: f64,
    /// Tokens per verify step, bonus included.
    pub tau: f64,
    /// Throughput over plain decoding.
    pub speedup: f64,
    /// Interval of the speed-up: sampling, model and transfer together, as far as they were computed; `null` = none was.
    pub lo: Option<f64>,
    /// Its upper end.
    pub hi: Option<f64>,
    /// What the interval leaves out, with the reason; where there is something, it is a lower bound of the uncertainty.
    pub left_out: Vec<String>,
    /// Share of the bootstrap in which `best` is best; `null` with too few requests for one.
    pub p_best: Option<f64>,
    /// Throughput over what runs today; `null` where that was not given or does not fit.
    pub over_present: Option<f64>,
    /// The best policy whose trees have the same size in every step: `best`, where it is one.
    pub fixed: Option<Alternative>,
    /// The most throughput that is lost by running `fixed` when one input is off by its stated error, against the fixed
    /// choice that is then the best, as a share.
    pub at_stake: f64,
    /// That input; `null` where nothing is at stake.
    pub at_stake_input: Option<String>,
    /// The best of what the deployment's engine can run today.
    pub today: Option<Alternative>,
}

/// Another choice beside the best one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Which.
    pub choice: Choice,
    /// Its throughput over plain decoding.
    pub speedup: f64,
    /// Share of `best`'s throughput that is left out.
    pub loss: f64,
}

/// What one input does to the decisions when it is moved by its stated error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Short name.
    pub key: String,
    /// The input in words.
    pub input: String,
    /// By how much it was moved, each way.
    pub changes: Vec<String>,
    /// Settings in which another choice is then better by more than a tie.
    pub flips: u32,
    /// Settings in all.
    pub settings: u32,
    /// Throughput lost by staying with the choice: mean over settings of the worse way, as a share.
    pub loss_mean: f64,
    /// The most over settings.
    pub loss_max: f64,
    /// How far the choice's own speed-up moves, as a share: mean over settings of the larger way.
    pub swing: f64,
}

/// The engines' flags for one choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChoiceSettings {
    /// The choice.
    pub choice: Choice,
    /// SGLang, then vLLM.
    pub engines: Vec<EngineSetting>,
}

/// vLLM's flag for a length by batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSetting {
    /// Name of the acceptance.
    pub acceptance: String,
    /// Positions per request.
    pub context: u32,
    /// The flag.
    pub flags: String,
}
