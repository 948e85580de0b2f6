//! Shipped profiles, set up for a price.

use std::path::Path;
use treeline_sim::cost::{Calibration, CostError, CostModel, CostSetup, OpScales, Tier};
use treeline_sim::experts::Experts;
use treeline_sim::optable::OpTables;
use treeline_sim::profile::{self, Deployment, Drafter, Hardware, Model};

/// Profiles that belong together.
#[derive(Clone)]
pub struct Scene {
    pub hardware: Hardware,
    pub model: Model,
    pub drafter: Option<Drafter>,
    pub deployment: Deployment,
    pub experts: Option<Experts>,
    pub overhead_scale: f64,
    pub scales: OpScales,
    pub allow_extrapolation: bool,
}

impl Scene {
    pub fn new(deployment: &str, model: &str, drafter: Option<&str>) -> Self {
        let here = Path::new(".");
        let deployment = profile::deployment(deployment, here).unwrap();
        let model = profile::model(model, here).unwrap();
        Self {
            hardware: profile::hardware(&deployment.hardware, here).unwrap(),
            drafter: drafter.map(|name| profile::drafter(name, here).unwrap()),
            experts: model.moe.map(|_| Experts::Uniform),
            model,
            deployment,
            overhead_scale: 1.0,
            scales: OpScales::default(),
            allow_extrapolation: true,
        }
    }

    pub fn kimi_b300() -> Self {
        Self::new("sglang-0.5.14-b300-tp8", "kimi-k2.6", Some("kimi-k2.6-dflash"))
    }

    pub fn model(&self, tier: Tier) -> CostModel {
        self.build(tier, None).unwrap()
    }

    pub fn build(&self, tier: Tier, calibration: Option<&Calibration>) -> Result<CostModel, CostError> {
        CostModel::new(&CostSetup {
            hardware: &self.hardware,
            model: &self.model,
            drafter: self.drafter.as_ref(),
            deployment: &self.deployment,
            tier,
            overhead_scale: self.overhead_scale,
            allow_extrapolation: self.allow_extrapolation,
            experts: self.experts.clone(),
            tables: OpTables::shipped(),
            calibration,
            scales: self.scales,
        })
    }
}
