//! How wrong each class of inputs may be, and who says so: what the interval of an answer moves.

use super::line::Tier;
use super::model::CostModel;

/// Stated error of one class of times; the names are those of [`OpScales`](super::OpScales).
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct InputError {
    /// `moe`, `allreduce`, `attention`, `gemm`, `small`, `draft` or `host`.
    pub input: &'static str,
    /// Relative, one side.
    pub relative: f64,
    /// A measurement, or `assumed:` and why.
    pub source: String,
}

/// 90th percentile of |predicted / measured − 1| over the ten public cells of docs/validation-tpot.md; a test holds it.
const WHOLE_STEP: f64 = 0.08;

impl CostModel {
    /// The stated error of a whole step: what the tier was found to be off by where a step was measured. None for the bound.
    #[must_use]
    pub fn step_error(&self) -> Option<InputError> {
        let (relative, source) = match self.tier {
            Tier::Bound => return None,
            Tier::Calibrated => (self.words.held_out, "90th percentile of the calibration's error on held-out steps"),
            Tier::Table => (
                WHOLE_STEP,
                "90th percentile on public plain steps of Kimi K2.5 on 8 × H200 (docs/validation-tpot.md); trees and other machines are not validated",
            ),
        };
        Some(InputError { input: "step", relative, source: source.into() })
    }

    /// The error of each class of times under this tier. None for the bound: it is a limit, not an estimate.
    #[must_use]
    pub fn errors(&self) -> Vec<InputError> {
        let say = |input, relative, source: &str| InputError { input, relative, source: source.into() };
        match self.tier {
            Tier::Bound => Vec::new(),
            Tier::Calibrated => {
                let error = self.words.held_out;
                let source = "90th percentile of the calibration's error on held-out steps";
                ["moe", "allreduce", "attention", "gemm", "small", "draft", "host"]
                    .into_iter()
                    .map(|input| say(input, error, source))
                    .collect()
            }
            Tier::Table => {
                let mut errors = Vec::new();
                if let Some(worst) = self.words.moe_worst {
                    errors.push(say("moe", worst, "largest error of t0 + c·U over the balanced rows it was fitted to"));
                }
                if self.deployment.communicates() {
                    let source =
                        "assumed: tables of one engine over versions agree within 2 to 10 % away from a switch";
                    errors.push(say("allreduce", 0.1, source));
                }
                let tree = "assumed: rows beyond one a request are added as flops, tiles of 64 query rows are not";
                errors.push(say("attention", 0.2, tree));
                errors.push(say("gemm", 0.05, "assumed: interpolation between measured shapes"));
                errors.push(say(
                    "small",
                    0.3,
                    "assumed: their number is counted, their time that of the smallest product",
                ));
                if self.draft.is_some() {
                    let source = "assumed: no engine's draft pass is measured; its ops are, one by one";
                    errors.push(say("draft", 0.25, source));
                }
                errors.push(say("host", 0.5, "assumed: host time differs by CPU and release"));
                errors
            }
        }
    }
}
