//! One price, and a curve of 64 bucket ends: what a policy asks each round.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::Path;
use treeline_sim::cost::{CostModel, CostSetup, OpScales, StepQuery, Tier};
use treeline_sim::experts::Experts;
use treeline_sim::optable::OpTables;
use treeline_sim::profile;

fn cost(c: &mut Criterion) {
    let here = Path::new(".");
    let get = "a shipped profile";
    let deployment = profile::deployment("sglang-0.5.14-b300-tp8", here).expect(get);
    let hardware = profile::hardware(&deployment.hardware, here).expect(get);
    let model = profile::model("kimi-k2.6", here).expect(get);
    let drafter = profile::drafter("kimi-k2.6-dflash", here).expect(get);
    let setup = CostSetup {
        hardware: &hardware,
        model: &model,
        drafter: Some(&drafter),
        deployment: &deployment,
        tier: Tier::Table,
        overhead_scale: 1.0,
        allow_extrapolation: false,
        experts: Some(Experts::Uniform),
        tables: OpTables::shipped(),
        calibration: None,
        scales: OpScales::default(),
    };
    let build = || CostModel::new(&setup).expect("shipped profiles fit shipped tables");
    let model = build();
    let query = StepQuery::block(16, 17, 4096, 8);
    c.bench_function("cost/price", |b| b.iter(|| model.price(black_box(&query))));
    let rows: Vec<u32> = (1..=64).map(|n| 16 * n).collect();
    let mut ms = vec![0.0; rows.len()];
    c.bench_function("cost/curve of 64", |b| b.iter(|| model.curve(black_box(&query), black_box(&rows), &mut ms)));
    c.bench_function("cost/breakdown", |b| b.iter(|| model.breakdown(black_box(&query))));
    c.bench_function("cost/new", |b| b.iter(build));
}

criterion_group!(benches, cost);
criterion_main!(benches);
