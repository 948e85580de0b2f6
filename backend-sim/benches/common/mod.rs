//! The deployment whose prices are timed.

use std::path::Path;
use treeline_sim::cost::{CostModel, CostSetup, OpScales, Tier};
use treeline_sim::experts::Experts;
use treeline_sim::optable::OpTables;
use treeline_sim::profile;

/// Hands `work` what Kimi K2.6 with its drafter on eight B300 is compiled from.
pub fn with_kimi_on_b300<R>(allow_extrapolation: bool, work: impl FnOnce(&CostSetup<'_>) -> R) -> R {
    let (here, get) = (Path::new("."), "a shipped profile");
    let deployment = profile::deployment("sglang-0.5.14-b300-tp8", here).expect(get);
    let hardware = profile::hardware(&deployment.hardware, here).expect(get);
    let model = profile::model("kimi-k2.6", here).expect(get);
    let drafter = profile::drafter("kimi-k2.6-dflash", here).expect(get);
    work(&CostSetup {
        hardware: &hardware,
        model: &model,
        drafter: Some(&drafter),
        deployment: &deployment,
        tier: Tier::Table,
        overhead_scale: 1.0,
        allow_extrapolation,
        experts: Some(Experts::Uniform),
        tables: OpTables::shipped(),
        calibration: None,
        scales: OpScales::default(),
    })
}

/// Compiles it.
pub fn compile(setup: &CostSetup<'_>) -> CostModel {
    CostModel::new(setup).expect("shipped profiles fit shipped tables")
}
