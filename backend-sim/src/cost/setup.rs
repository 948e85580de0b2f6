//! What a cost model is built from.

use super::calibrated::Calibration;
use super::error::CostError;
use super::line::Tier;
use super::scales::OpScales;
use crate::experts::Experts;
use crate::optable::OpTables;
use crate::profile::{Deployment, Drafter, Execution, Hardware, Model, ProfileError};

/// Everything that a price depends on.
#[derive(Debug, Clone)]
pub struct CostSetup<'a> {
    /// The GPUs.
    pub hardware: &'a Hardware,
    /// The target.
    pub model: &'a Model,
    /// The drafter; `None` prices plain decoding only.
    pub drafter: Option<&'a Drafter>,
    /// How an engine serves them.
    pub deployment: &'a Deployment,
    /// Where the times come from.
    pub tier: Tier,
    /// Between `bound` (0) and the tier (1): every time is bound + scale·(tier − bound).
    pub overhead_scale: f64,
    /// Price what lies outside of what was measured, flagged; otherwise it is an error.
    pub allow_extrapolation: bool,
    /// How many distinct experts rows touch; `None` for a dense target.
    pub experts: Option<Experts>,
    /// Op tables of tier `table`.
    pub tables: &'a OpTables,
    /// Fitted ops of tier `calibrated`.
    pub calibration: Option<&'a Calibration>,
    /// Factors on the tier's times, by class of op.
    pub scales: OpScales,
}

impl CostSetup<'_> {
    pub(super) fn check(&self) -> Result<(), CostError> {
        let profile = |e: ProfileError| CostError::Profile {
            what: e.to_string(),
            help: "choose profiles that belong together".into(),
        };
        self.deployment.check(self.hardware, self.model).map_err(profile)?;
        if let Some(drafter) = self.drafter {
            drafter.check_model(self.model).map_err(profile)?;
        }
        if !(0.0..=1.0).contains(&self.overhead_scale) {
            let rule = "must lie between 0 (the bound) and 1 (the tier's own times)";
            return Err(CostError::Value { key: "overhead_scale", value: self.overhead_scale.to_string(), rule });
        }
        if let Some((key, value)) = self.scales.entries().into_iter().find(|(_, v)| !v.is_finite() || *v < 0.0) {
            return Err(CostError::Value {
                key,
                value: value.to_string(),
                rule: "a scale must be a number of at least 0",
            });
        }
        if self.model.moe.is_some() != self.experts.is_some() {
            let (what, help) = if self.experts.is_some() {
                (format!("{} is dense, but an expert model is given", self.model.name), "leave it out")
            } else {
                let what =
                    format!("{} routes its rows to experts, but how many distinct ones is not said", self.model.name);
                (what, "name an expert model: uniform, skewed, correlated or measured")
            };
            return Err(CostError::Profile { what, help: help.into() });
        }
        if let (Some(moe), Some(experts)) = (&self.model.moe, &self.experts) {
            experts.check(moe.experts, moe.top_k).map_err(|e| CostError::Profile {
                what: format!("experts of {}: {e}", self.model.name),
                help: "correct the expert model".into(),
            })?;
        }
        if let (Tier::Calibrated, Some(c)) = (self.tier, self.calibration) {
            let graph = self.deployment.execution == Execution::Graph;
            let (m, d) = (&c.manifest, self.deployment);
            let mine = if graph { "graph" } else { "eager" };
            // One rank's work alone prices a deployment that leaves communication out, and no other.
            let alone = d.ranks > 1 && !d.communicates();
            if m.split() != d.ranks || m.of_ranks.is_some() != alone || m.execution != mine {
                let plural = if d.ranks == 1 { "" } else { "s" };
                let without = if alone { " without communication" } else { "" };
                return Err(CostError::Calibration {
                    file: c.digest.clone(),
                    why: format!(
                        "measured on {}; deployment {} has {} rank{plural}{without}, {mine}",
                        m.words(),
                        d.name,
                        d.ranks
                    ),
                    help: "name the deployment that was measured, or calibrate this one".into(),
                });
            }
        }
        if self.tier == Tier::Calibrated && self.calibration.is_none() {
            return Err(CostError::Needs {
                tier: self.tier,
                what: "a calibration file".into(),
                help: "write one with `treeline calibrate` on the machine, or use tier `table` or `bound`".into(),
            });
        }
        Ok(())
    }
}
