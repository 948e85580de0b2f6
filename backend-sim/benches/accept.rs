//! Drawing a trace from a process, and tabulating best-first's order for all budgets up to 64.
//!
//! `cargo bench -p treeline-sim --bench accept`
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::path::Path;
use treeline_sim::accept::{Process, process};
use treeline_sim::nested::Nested;

fn kimi(width: u32) -> Process {
    let mut kimi = process("kimi-k2.6-dspark", Path::new("")).expect("a shipped process");
    kimi.width = width;
    kimi
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("accept");
    group.sample_size(10);
    group.throughput(Throughput::Elements(128 * 511));
    // Dropping the trace is not part of it.
    let draw = kimi(32);
    group.bench_function("generate 128 × 512, 7 levels, 32 ranks", |b| {
        b.iter_batched(|| (), |()| draw.generate(128, 512, 1).expect("a trace"), BatchSize::PerIteration);
    });
    for width in [32, 64] {
        let trace = kimi(width).generate(128, 512, 1).expect("a trace");
        for nodes in [16, 64] {
            let id = BenchmarkId::new(format!("nested, {width} ranks"), nodes);
            group.bench_with_input(id, &nodes, |b, &nodes| {
                b.iter_batched(|| (), |()| Nested::build(&trace, nodes, 0).expect("tables"), BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
