//! Every shipped deployment names op tables that exist.

use std::path::Path;

use treeline_sim::cost::{CostModel, CostSetup, OpScales, StepQuery, Tier};
use treeline_sim::optable::OpTables;
use treeline_sim::profile;

fn here() -> &'static Path {
    Path::new(".")
}

#[test]
fn every_shipped_deployment_can_be_priced_by_its_tables() {
    for name in profile::shipped().deployments {
        let deployment = profile::deployment(name, here()).unwrap();
        let hardware = profile::hardware(&deployment.hardware, here()).unwrap();
        let pairs: &[(&str, &str)] = match deployment.ranks {
            1 => &[("qwen3-8b", "qwen3-8b-dflash-b16"), ("qwen3-8b", "qwen3-8b-eagle3")],
            _ => &[("kimi-k2.6", "kimi-k2.6-dflash"), ("kimi-k2.5", "kimi-k2.5-eagle3")],
        };
        for (model, drafter) in pairs {
            let (model, drafter) = (profile::model(model, here()).unwrap(), profile::drafter(drafter, here()).unwrap());
            let experts = treeline_sim::experts::experts(&deployment.experts, here()).unwrap().0;
            let setup = CostSetup {
                hardware: &hardware,
                model: &model,
                drafter: Some(&drafter),
                deployment: &deployment,
                tier: Tier::Table,
                overhead_scale: 1.0,
                allow_extrapolation: true,
                experts: model.moe.map(|_| experts),
                tables: OpTables::shipped(),
                calibration: None,
                scales: OpScales::default(),
            };
            let cost = CostModel::new(&setup).unwrap_or_else(|e| panic!("{name}, {}: {e}", drafter.name));
            let query = |rows| StepQuery {
                requests: 1,
                rows,
                context_sum: 4096,
                draft_requests: 1,
                draft_rows: 8,
                ..StepQuery::default()
            };
            let (one, tree) = (cost.price(&query(1)).ms(), cost.price(&query(17)).ms());
            assert!(one > 0.5 && one.is_finite() && tree >= one && tree < 100.0, "{name}: {one} then {tree} ms");
        }
    }
}
