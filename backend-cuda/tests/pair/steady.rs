//! Whole runs with and without graphs, and what a long run takes.

use crate::pairs::alone::Alone;
use crate::pairs::policy;
use crate::subject::{Subject, subjects};
use serde_json::json;
use treeline_core::{Law, Request, RunSetup, Sampling, Tree, run};
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::{CudaEngine, CudaSettings};

/// One round: its graph, its trees, and what was emitted.
#[derive(Debug, PartialEq)]
struct Seen {
    trees: Vec<Tree>,
    emitted: Vec<Vec<u32>>,
    experts: Vec<u32>,
}

/// Rounds of a run, and whether each ran from a graph.
fn rounds(engine: &mut CudaEngine, requests: &[Request], budget: u32, batch: u32, staged: bool) -> Vec<(bool, Seen)> {
    let mut own = policy("best-first", &json!({}), budget, engine);
    let setup = RunSetup { budget, concurrency: batch, law: &Law::Greedy, cost: None };
    let mut seen = Vec::new();
    let mut sink = |view: &treeline_core::RoundView<'_>| {
        let emitted = view.log.entries.iter().map(|e| e.result.as_ref().unwrap().emitted.clone()).collect();
        let (trees, experts) = (view.forest.trees().to_vec(), view.log.experts.clone());
        seen.push((view.log.graph.is_some(), Seen { trees, emitted, experts }));
    };
    match staged {
        true => run(engine, &mut Alone(&mut *own), requests, &setup, &mut sink),
        false => run(engine, &mut *own, requests, &setup, &mut sink),
    }
    .unwrap();
    seen
}

/// Budgets and batches of a run with graphs against an eager one.
fn shapes(subject: &Subject) -> Vec<(u32, u32)> {
    let mini: Vec<(u32, u32)> = [1, 2, 4, 7, 8, 9, 12, 16, 20, 30, 31, 32, 33, 37, 48, 64, 100, 128, 200, 256]
        .into_iter()
        .zip((1..=8).cycle())
        .collect();
    subject.either(mini, vec![(9, 1), (16, 2)])
}

/// Rounds from graphs are those of eager passes: trees (scores to the bit), tokens, experts.
#[test]
fn runs_from_graphs_equal_eager_runs() {
    for subject in subjects(Dtype::Bf16) {
        let requests = subject.requests(subject.either(8, 2), subject.either(24, 8), Sampling::GREEDY);
        let settings = CudaSettings::new(subject.either(8, 2), subject.context(), subject.either(256, 32));
        let mut engines = [true, false].map(|graphs| subject.engine_with(CudaSettings { graphs, ..settings }));
        let mut compared = 0;
        for (budget, batch) in shapes(&subject) {
            for staged in [false, true] {
                let [graph, eager] = engines.each_mut().map(|e| rounds(e, &requests, budget, batch, staged));
                assert!(graph.iter().all(|(ran, _)| *ran) && eager.iter().all(|(ran, _)| !ran));
                assert_eq!(graph.len(), eager.len(), "budget {budget}, batch {batch}");
                for (round, (a, b)) in graph.iter().zip(&eager).enumerate() {
                    assert!(a.1 == b.1, "budget {budget}, batch {batch}, staged {staged}, round {round}");
                }
                compared += graph.len();
            }
        }
        println!("{}: {compared} rounds from graphs equal the eager ones", subject.name());
    }
}

/// Device rounds and staged ones in turn, batches that shrink and grow: the second time around nothing is taken.
#[test]
fn two_hundred_rounds_take_no_memory() {
    for subject in subjects(Dtype::Bf16) {
        let requests = subject.requests(subject.either(16, 3), subject.either(64, 8), Sampling::GREEDY);
        let mut engine = subject.engine(subject.either(8, 2), subject.either(64, 32));
        let workload = |engine: &mut CudaEngine| {
            let mut count = 0;
            for (budget, batch) in subject.either(vec![(16, 8), (64, 3), (7, 1)], vec![(16, 2)]) {
                for staged in [false, true] {
                    count += rounds(engine, &requests, budget, batch, staged).len();
                }
            }
            count
        };
        workload(&mut engine);
        let before = (subject.gpu.allocations(), engine.graphs(), subject.gpu.free_bytes().unwrap());
        let count = workload(&mut engine);
        let after = (subject.gpu.allocations(), engine.graphs(), subject.gpu.free_bytes().unwrap());
        assert_eq!(before, after, "{}: allocations, graphs, free bytes", subject.name());
        assert!(count >= subject.either(200, 4), "only {count} rounds");
        println!("{}: {count} rounds: no allocation, no capture, no byte", subject.name());
    }
}
