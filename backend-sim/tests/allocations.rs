//! A replay allocates nothing per round in steady state: counted with an allocator of the test's own.
#![allow(clippy::unwrap_used)]

#[path = "../../policies/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::sync::Arc;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
use treeline_core::{End, Law, Limits, RunSetup, run};
use treeline_policies::Registry;
use treeline_sim::{ReplayEngine, requests};

/// Responses of 400 tokens whose drafts hit and miss in turn; `ids`: whether candidates have tokens of their own.
fn trace(ids: bool) -> Arc<Trace> {
    let (depth, width, tokens) = (4u32, 6u32, 400u32);
    let position = |index: u32| {
        let logp = |rank: u32| -0.4 - 1.1 * rank as f32;
        let truth = |d: u32| Some((index * 7 + d * 3) % 11 % width).filter(|_| !(index + d).is_multiple_of(5));
        Position {
            ends: (1..=depth).map(|d| d * width).collect(),
            logp: (0..depth * width).map(|i| logp(i % width)).collect(),
            ids: (0..depth * width * u32::from(ids)).map(|i| 50 + i % width).collect(),
            truth: (0..depth.min(tokens - 1 - index)).map(truth).collect(),
            expansions: vec![],
        }
    };
    let request = |id: u64| {
        let positions: Vec<Position> = (0..tokens - 1).map(position).collect();
        let token = |p: &Position| p.truth[0].map_or(7, |rank| 50 + rank);
        let emitted = std::iter::once(1).chain(positions.iter().map(token));
        TraceRequest {
            id,
            domain: String::new(),
            prompt_tokens: 8,
            max_new: tokens,
            tokens: if ids { emitted.collect() } else { vec![] },
            emitted: tokens,
            positions,
            end: End::Length,
        }
    };
    let meta = TraceMeta {
        depth,
        width,
        conditional: false,
        ids,
        vocab: 100,
        context: 1000,
        temperature: 0.0,
        seed: 0,
        source: String::new(),
    };
    Arc::new(Trace { meta, requests: (0..3).map(request).collect() })
}

#[test]
fn rounds_in_steady_state_allocate_nothing() {
    for (kind, ids) in [("best-first", false), ("best-first", true), ("chain", false), ("top-k", true)] {
        let trace = trace(ids);
        let mut engine = ReplayEngine::new(trace.clone(), 3).unwrap();
        let limits = Limits { budget: 16, depth: 4, width: 6, concurrency: 3 };
        let params = if kind == "top-k" { serde_json::json!({ "width": 3 }) } else { serde_json::json!({}) };
        let mut policy = Registry::builtin().build(kind, &params, &limits).unwrap();
        let setup = RunSetup { budget: 16, concurrency: 3, law: &Law::Greedy, cost: None };
        let (mut rounds, mut first, mut last, mut longest) = (0u32, 0, 0, 0);
        run(&mut engine, &mut *policy, &requests(&trace), &setup, &mut |view| {
            rounds += 1;
            longest = view.log.entries.iter().map(|e| e.rows).max().unwrap().max(longest);
            // The first rounds find how much memory they need.
            if rounds == 20 {
                first = allocations();
            }
            last = allocations();
        })
        .unwrap();
        assert!(rounds > 120 && longest > 4, "{kind}: {rounds} rounds of up to {longest} rows");
        // What is left are the lists of emitted tokens, which double a few times as they grow.
        assert!(last - first <= 30, "{kind}: {} allocations in {} rounds", last - first, rounds - 20);
    }
}
