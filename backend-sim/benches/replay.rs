//! Replay of best-first trees through the whole decode loop, without nested tables: rounds per second on one core.
//!
//! `cargo bench -p treeline-sim --bench replay`
//!
//! Times are those that the thread was on a core (Linux; wall time elsewhere), so that waiting for one does not count.
//!
//! Measured on one core of a virtual AMD EPYC with two cores and other builds running (so the caches and the other hardware
//! thread were never its own), best-first with 64 nodes, 64 ranks a row, 7 levels, 2,287 rounds; this form and the one before
//! it by turns, five runs of each, medians of criterion's samples:
//!
//! | | before | now |
//! | --- | --- | --- |
//! | rounds/s | 191,000 | 286,000 |
//! | the best sample | 305,000 | 398,000 |
//!
//! 1.37 times as many (1.30 to 1.50); the aim is 250,000. Two earlier single runs of each gave 217,000 and 277,000. Linear in rounds: the
//! form before had 199,000, 201,000 and 203,000 rounds/s at 1, 2 and 4 times the rounds, and nothing that depends on them was changed.
//!
//! What was tried, in order, with shares of a round:
//!
//! | change | predicted | measured |
//! | --- | --- | --- |
//! | a row check without a sort, memory that goes round | twice | from 86,000 (wall time) to 200,000 |
//! | the tree's queue scanned for its least key, not kept in order (`policies/src/queue.rs`) | 60 % of a round is growth, most of that branches guessed wrong | growth 2.3 to 1.45 µs on random rows; 1.28 times the rounds |
//! | a tree is not checked for what it cannot break, children found eight at a time | 5 % | within the noise of that machine |
//! | buckets by score in place of a queue | O(1) insertions | no faster: sorting a bucket is as hard to predict. Dropped |
//!
//! Of a round now, 40 % are growth, 20 % reading recorded rows (first touches of their memory), 12 % e^x of the scores for Φ.
#[path = "../tests/drawn/mod.rs"]
mod drawn;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drawn::Draws;
use std::hint::black_box;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use treeline_core::metrics::Tally;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
use treeline_core::{End, Engine, Law, Limits, RunSetup, run};
use treeline_policies::Registry;
use treeline_sim::{ReplayEngine, requests};

/// Time of this thread on a core.
struct OnCore;

/// In ns, since some moment.
fn on_core() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = spent.and_then(|s| s.split_whitespace().next()?.parse().ok());
    first.unwrap_or_else(|| BEGIN.elapsed().as_nanos() as u64)
}

impl Measurement for OnCore {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        on_core()
    }

    fn end(&self, begin: u64) -> u64 {
        on_core() - begin
    }

    fn add(&self, a: &u64, b: &u64) -> u64 {
        a + b
    }

    fn zero(&self) -> u64 {
        0
    }

    fn to_f64(&self, ns: &u64) -> f64 {
        // The counter moves in ticks; a sample between two of them is short, not nothing.
        ns.max(&1).to_owned() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Ranks per row.
const WIDTH: u32 = 64;

/// Tokens of a response.
const TOKENS: u32 = 200;

/// A rank trace of a drafter of `depth` levels: rows of random sharpness, the truth drawn from each.
fn trace(depth: u32, count: u64) -> Arc<Trace> {
    let request = |id: u64| {
        let mut draws = Draws::new(id, [7, depth]);
        let mut position = |left: u32| {
            let mut p = Position::default();
            for d in 0..depth {
                // Weights fall like a power of the rank, faster where the drafter is sure.
                let power = 1.2 + 4.0 * draws.draw() * (1.0 - 0.04 * f64::from(d));
                let rank = draws.row(&mut p, WIDTH, power, 1.02);
                if d < left {
                    p.truth.push(rank);
                }
            }
            p
        };
        TraceRequest {
            id,
            domain: String::new(),
            prompt_tokens: 20,
            max_new: TOKENS,
            tokens: Vec::new(),
            emitted: TOKENS,
            positions: (1..TOKENS).map(|i| position(TOKENS - i)).collect(),
            end: End::Length,
        }
    };
    let meta = TraceMeta {
        depth,
        width: WIDTH,
        conditional: false,
        ids: false,
        vocab: 1000,
        context: 4096,
        temperature: 0.0,
        seed: 0,
        source: String::new(),
    };
    Arc::new(Trace { meta, requests: (0..count).map(request).collect() })
}

/// Replays every request to its end; answers the rounds.
fn replay(engine: &mut ReplayEngine, trace: &Trace, budget: u32, concurrency: u32) -> u64 {
    let limits = Limits { budget, depth: trace.meta.depth, width: WIDTH, concurrency };
    let mut policy = Registry::builtin().build("best-first", &serde_json::json!({}), &limits).unwrap();
    let setup = RunSetup { budget, concurrency, law: &Law::Greedy, cost: None };
    let mut rounds = 0;
    run(engine, &mut *policy, &requests(trace), &setup, &mut |view| rounds += view.log.entries.len() as u64).unwrap();
    rounds
}

fn benches(c: &mut Criterion<OnCore>) {
    for depth in [7, 15] {
        let mut group = c.benchmark_group(format!("replay-{depth}-levels"));
        group.sample_size(20);
        for budget in [16, 64] {
            for times in [1, 2, 4] {
                let trace = trace(depth, 60 * times);
                let make = || ReplayEngine::new(trace.clone(), 1).unwrap();
                let rounds = replay(&mut make(), &trace, budget, 1);
                group.throughput(Throughput::Elements(rounds));
                group.bench_function(BenchmarkId::new(format!("budget-{budget}"), format!("{rounds}-rounds")), |b| {
                    b.iter_batched_ref(make, |e| black_box(replay(e, &trace, budget, 1)), BatchSize::LargeInput);
                });
            }
        }
        group.finish();
    }
    tallied(c);
}

/// The same with every round taken into a tally, as a run of an experiment does.
fn tallied(c: &mut Criterion<OnCore>) {
    let trace = trace(7, 60);
    let limits = Limits { budget: 64, depth: 7, width: WIDTH, concurrency: 16 };
    let setup = RunSetup { budget: 64, concurrency: 16, law: &Law::Greedy, cost: None };
    let list = requests(&trace);
    let count = |tally: &mut Tally| {
        let mut engine = ReplayEngine::new(trace.clone(), 16).unwrap();
        assert_eq!(engine.info().depth, 7);
        let mut policy = Registry::builtin().build("best-first", &serde_json::json!({}), &limits).unwrap();
        run(&mut engine, &mut *policy, &list, &setup, &mut |view| tally.add_view(view)).unwrap();
        tally.steps()
    };
    let rounds = count(&mut Tally::new());
    let mut group = c.benchmark_group("replay-with-tally");
    group.sample_size(20);
    group.throughput(Throughput::Elements(rounds));
    group.bench_function("budget-64-concurrency-16", |b| b.iter(|| black_box(count(&mut Tally::new()))));
    group.finish();
}

criterion_group! {
    name = replays;
    config = Criterion::default().with_measurement(OnCore);
    targets = benches
}
criterion_main!(replays);
