//! One price, and a curve of 64 bucket ends: what a policy asks each round.

mod common;

use common::{compile, with_kimi_on_b300};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use treeline_sim::cost::{CostSetup, StepQuery};

fn cost(c: &mut Criterion) {
    with_kimi_on_b300(false, |setup| timed(c, setup));
}

fn timed(c: &mut Criterion, setup: &CostSetup<'_>) {
    let model = compile(setup);
    let query = StepQuery::block(16, 17, 4096, 8);
    c.bench_function("cost/price", |b| b.iter(|| model.price(black_box(&query))));
    let rows: Vec<u32> = (1..=64).map(|n| 16 * n).collect();
    let mut ms = vec![0.0; rows.len()];
    c.bench_function("cost/curve of 64", |b| b.iter(|| model.curve(black_box(&query), black_box(&rows), &mut ms)));
    c.bench_function("cost/breakdown", |b| b.iter(|| model.breakdown(black_box(&query))));
    c.bench_function("cost/new", |b| b.iter(|| compile(setup)));
}

criterion_group!(benches, cost);
criterion_main!(benches);
