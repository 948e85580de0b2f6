//! The steady-state loop against the general way: the same steps, and the same long-run figures.

use crate::common::{BLOCK, Plain, Went, closed, moe, play, trace};
use std::sync::Arc;
use treeline_core::trace::Trace;
use treeline_core::{StepCost, StepShape};
use treeline_policies::cost_aware::{Goal, Objective, Reliability, Throughput};
use treeline_sim::batch::fast::{Choice, FastPolicy, FastResult, Load, Scope, Tables, simulate, step};
use treeline_sim::batch::{BatchError, BatchSetup};
use treeline_sim::nested::Nested;

fn load(concurrency: u32, request_rounds: u32) -> Load<'static> {
    Load { concurrency, context: None, response: None, draft_rows: BLOCK, request_rounds, requests: None }
}

fn choose(scope: Scope, cap: u32) -> FastPolicy {
    chosen(scope, cap, Objective::Ratio, &[])
}

/// A choice by `objective`, claims corrected by `points` where there are any.
fn chosen(scope: Scope, cap: u32, objective: Objective, points: &[[f64; 2]]) -> FastPolicy {
    let goal = Goal { objective, latency_ms: None };
    let reliability = (!points.is_empty()).then(|| Arc::new(Reliability::through(points).unwrap()));
    FastPolicy::Choose(Choice { goal, scope, cap, reliability, throughput: None, memory: 64.0 })
}

/// A drafter that claims too much: what its claims are worth.
const WORTH: [[f64; 2]; 4] = [[-8.0, 1e-4], [-3.0, 0.02], [-1.0, 0.2], [0.0, 0.8]];

/// Each fast policy, its name in the registry, its parameters, its budget, and the spine of its tables.
fn policies() -> Vec<(FastPolicy, &'static str, &'static str, u32, u32)> {
    let fixed = r#"{"objective":"ratio","calibration":"claimed","off":false}"#;
    let renewal = r#"{"objective":"renewal","calibration":"claimed","off":false,"memory":64.0}"#;
    let given = r#"{"objective":"ratio","calibration":"given","off":false,
        "reliability":[[-8.0,0.0001],[-3.0,0.02],[-1.0,0.2],[0.0,0.8]]}"#;
    let both = r#"{"objective":"renewal","calibration":"given","off":false,"memory":64.0,
        "reliability":[[-8.0,0.0001],[-3.0,0.02],[-1.0,0.2],[0.0,0.8]]}"#;
    let (one, all) = (Scope::PerRequest, Scope::BatchWide);
    vec![
        (FastPolicy::Plain, "chain", "{}", 0, 0),
        (FastPolicy::Chain { budget: 3 }, "chain", "{}", 3, 0),
        (FastPolicy::Chain { budget: 9 }, "chain", "{}", 9, 0),
        (FastPolicy::BestFirst { budget: 1, spine: 0 }, "best-first", "{}", 1, 0),
        (FastPolicy::BestFirst { budget: 12, spine: 0 }, "best-first", "{}", 12, 0),
        (FastPolicy::BestFirst { budget: 32, spine: 0 }, "best-first", "{}", 32, 0),
        (FastPolicy::BestFirst { budget: 12, spine: BLOCK }, "spine-first", "{}", 12, BLOCK),
        (choose(Scope::PerRequest, 24), "cost-aware", fixed, 24, 0),
        (choose(Scope::BatchWide, 24), "batch-wide", fixed, 24, 0),
        (chosen(one, 24, Objective::Renewal, &[]), "cost-aware", renewal, 24, 0),
        (chosen(all, 24, Objective::Renewal, &[]), "batch-wide", renewal, 24, 0),
        (chosen(one, 24, Objective::Ratio, &WORTH), "cost-aware", given, 24, 0),
        (chosen(all, 24, Objective::Ratio, &WORTH), "batch-wide", given, 24, 0),
        (chosen(one, 24, Objective::Renewal, &WORTH), "cost-aware", both, 24, 0),
        (chosen(all, 24, Objective::Renewal, &WORTH), "batch-wide", both, 24, 0),
    ]
}

/// Index of the request and of its root, for each entry of a round.
fn places(trace: &Trace, round: &Went) -> Vec<(u32, u32)> {
    let place = |e: &treeline_core::Entry| (e.index as u32, e.start - trace.requests[e.index].prompt_tokens);
    round.entries.iter().map(place).collect()
}

/// What a chooser of the general way takes a step to have cost: its cost curve at the rows that it came to.
fn expected_ms(nested: &Nested, cost: &dyn StepCost, round: &Went, places: &[(u32, u32)]) -> f64 {
    let requests = round.entries.len() as u32;
    cost.step(&StepShape {
        requests,
        rows: round.entries.iter().map(|e| e.rows).sum(),
        context: (round.entries.iter().map(|e| u64::from(e.start)).sum::<u64>() / u64::from(requests)) as u32,
        draft_rows: places.iter().map(|&(r, i)| nested.levels(r as usize, i) + 1).sum(),
    })
    .total()
}

/// Every round of the general way, put to the fast one: the same tokens for each request, the same time.
#[test]
fn a_step_is_the_same_round_of_the_general_way() {
    let (trace, cost) = (trace(14, 60), moe());
    let overlap: Vec<f32> = (0..14).map(|i| 0.7 + 0.05 * i as f32).collect();
    for (policy, kind, params, budget, spine) in policies() {
        let nested = Nested::build(&trace, 32, spine).unwrap();
        let tables = Tables::new(&nested).with_overlap(overlap.clone());
        let setup = BatchSetup { overlap: overlap.clone(), ..closed(5, budget) };
        let ran = play(&trace, &cost, &setup, kind, params).unwrap();
        assert!(ran.rounds.len() > 20);
        let mut run = Throughput::new(64.0);
        for round in &ran.rounds {
            let places = places(&trace, round);
            let policy = match policy.clone() {
                // A choice is compared at the throughput that the general way had come to.
                FastPolicy::Choose(choice) => FastPolicy::Choose(Choice { throughput: run.get(), ..choice }),
                fixed => fixed,
            };
            let (emitted, price) = step(&tables, &*cost, &policy, &load(5, 1), &places).unwrap();
            if let FastPolicy::Choose(_) = policy {
                run.push(emitted.iter().map(|&n| f64::from(n)).sum(), expected_ms(&nested, &*cost, round, &places));
            }
            let went = round.entries.iter().map(|e| e.result.as_ref().unwrap().emitted.len());
            assert!(emitted.iter().map(|&n| n as usize).eq(went), "{kind} {budget}: {places:?}");
            assert_eq!(price.padded_rows, round.priced.padded_rows, "{kind} {budget}");
            let (a, b) = (price.ms(), round.times.round());
            assert!((a - b).abs() < 1e-9 * b, "{kind} {budget}: {a} and {b}");
            assert!((price.experts.unwrap() - round.priced.experts.unwrap()).abs() < 1e-9);
        }
    }
}

/// Whole passes over all responses: each token once a pass, and alone the time of the general way to the last bit but
/// rounding.
#[test]
fn whole_passes_conserve_tokens_and_time() {
    let (trace, cost) = (trace(10, 50), moe());
    let tokens: u64 = trace.requests.iter().map(|r| u64::from(r.emitted) - 1).sum();
    for (policy, kind, params, budget, spine) in policies().into_iter().take(7) {
        let nested = Nested::build(&trace, 32, spine).unwrap();
        let tables = Tables::new(&nested);
        let ran = play(&trace, &cost, &closed(1, budget), kind, params).unwrap();
        let rounds = ran.rounds.len() as u32;
        // Eight repetitions of a whole pass each.
        let r = simulate(&tables, &*cost, &policy, &load(1, 8 * rounds), 5).unwrap();
        assert_eq!((r.tokens, r.rounds), (8.0 * tokens as f64, 8 * u64::from(rounds)), "{kind} {budget}");
        assert!((r.ms / 8.0 / ran.engine.clock_ms() - 1.0).abs() < 1e-12, "{kind} {budget}");
        assert!(r.mc_error < 1e-12, "whole passes leave nothing to chance: {}", r.mc_error);
        for (sums, request) in r.per_request.iter().zip(&trace.requests) {
            assert_eq!(sums.tokens, 8.0 * f64::from(request.emitted - 1));
        }
        assert_eq!(r.per_request.iter().map(|s| s.tokens).sum::<f64>(), r.tokens);
        assert!((r.per_request.iter().map(|s| s.ms).sum::<f64>() - r.ms).abs() < 1e-6);
    }
}

/// Tokens per second of the general way between its ramp and its drain.
fn middle(rounds: &[Went]) -> f64 {
    let part = &rounds[rounds.len() / 5..rounds.len() * 4 / 5];
    let tokens = part.iter().flat_map(|r| &r.entries).map(|e| e.result.as_ref().unwrap().emitted.len()).sum::<usize>();
    tokens as f64 / part.iter().map(|r| r.times.round()).sum::<f64>() * 1e3
}

/// A long closed loop comes to what the steady state says, policies that choose by cost included.
#[test]
fn long_closed_loops_come_to_the_steady_state() {
    let (trace, cost) = (trace(400, 60), moe());
    for (policy, kind, params, budget, spine) in policies() {
        let nested = Nested::build(&trace, 32, spine).unwrap();
        let tables = Tables::new(&nested);
        let general = middle(&play(&trace, &cost, &closed(8, budget), kind, params).unwrap().rounds);
        let fast = simulate(&tables, &*cost, &policy, &load(8, 12_000), 1).unwrap();
        let gap = fast.tok_s / general - 1.0;
        // The loop's own middle serves 240 of the 400 responses: its error is about 1 %.
        assert!(gap.abs() < 0.03, "{kind} {budget}: {} and {general}, error {}", fast.tok_s, fast.mc_error);
    }
}

/// The Monte-Carlo error is what seeds really differ by, and falls with the rounds.
#[test]
fn the_monte_carlo_error_is_honest() {
    let (trace, cost) = (trace(60, 60), moe());
    let nested = Nested::build(&trace, 32, 0).unwrap();
    let tables = Tables::new(&nested);
    let renewal = |scope| chosen(scope, 24, Objective::Renewal, &[]);
    let policies = [
        FastPolicy::BestFirst { budget: 12, spine: 0 },
        choose(Scope::BatchWide, 24),
        choose(Scope::PerRequest, 24),
        renewal(Scope::BatchWide),
    ];
    for (policy, concurrency) in policies.iter().flat_map(|p| [(p, 1), (p, 8)]) {
        let runs: Vec<FastResult> =
            (0..40).map(|seed| simulate(&tables, &*cost, policy, &load(concurrency, 480), seed).unwrap()).collect();
        let mean = runs.iter().map(|r| r.tok_s).sum::<f64>() / 40.0;
        let spread = (runs.iter().map(|r| (r.tok_s / mean - 1.0).powi(2)).sum::<f64>() / 39.0).sqrt();
        let said = runs.iter().map(|r| r.mc_error).sum::<f64>() / 40.0;
        assert!((0.6..1.7).contains(&(said / spread)), "{policy:?} {concurrency}: said {said}, was {spread}");
        let longer = simulate(&tables, &*cost, policy, &load(concurrency, 8000), 3).unwrap();
        assert!(longer.mc_error < 0.7 * said && longer.mc_error < 0.01, "{}", longer.mc_error);
    }
}

/// Any thread, any order, any number of threads: the same figures.
#[test]
fn results_do_not_depend_on_threads() {
    let (trace, cost) = (trace(20, 40), moe());
    let nested = Nested::build(&trace, 24, 0).unwrap();
    let list: Vec<FastPolicy> = policies().into_iter().filter(|p| p.4 == 0 && p.3 <= 24).map(|p| p.0).collect();
    let all = |tables: &Tables<'_>| -> Vec<FastResult> {
        list.iter().map(|p| simulate(tables, &*cost, p, &load(4, 400), 7).unwrap()).collect()
    };
    let alone = all(&Tables::new(&nested));
    let shared = Tables::new(&nested);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| all(&shared))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), alone);
        }
    });
}

/// A cut response, a subset of requests, a placed context: only what they name changes.
#[test]
fn loads_narrow_what_is_served() {
    let (trace, cost) = (trace(10, 60), moe());
    let nested = Nested::build(&trace, 16, 0).unwrap();
    let tables = Tables::new(&nested);
    let policy = FastPolicy::BestFirst { budget: 8, spine: 0 };
    let run = |load: &Load<'_>| simulate(&tables, &*cost, &policy, load, 2).unwrap();
    let half = run(&Load { requests: Some(&[1, 3, 5]), ..load(3, 2000) });
    let served: Vec<usize> = (0..10).filter(|&i| half.per_request[i].rounds > 0.0).collect();
    assert_eq!(served, [1, 3, 5]);
    let (near, far) = (run(&load(3, 2000)), run(&Load { context: Some(60_000), ..load(3, 2000) }));
    assert_eq!((near.tokens, near.rounds), (far.tokens, far.rounds));
    assert!(far.step_ms > near.step_ms + 1.7, "3 × 60,000 tokens at 1e-5 ms");
    let short = run(&Load { response: Some(12), ..load(1, 8 * 400) });
    let longest = short.per_request.iter().map(|s| s.tokens / s.rounds).fold(0.0, f64::max);
    assert!(longest <= 11.0 && short.tau < near.tau, "responses of 12 tokens end in the middle of a tree's path");
}

#[test]
fn what_the_tables_cannot_answer_is_refused() {
    let (trace, cost) = (trace(4, 30), moe());
    let nested = Nested::build(&trace, 16, 0).unwrap();
    let tables = Tables::new(&nested);
    let best = FastPolicy::BestFirst { budget: 8, spine: 0 };
    let key = |policy: &FastPolicy, load: &Load<'_>| match simulate(&tables, &*cost, policy, load, 0) {
        Err(BatchError::Value { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&FastPolicy::BestFirst { budget: 17, spine: 0 }, &load(2, 100)), "budget");
    assert_eq!(key(&FastPolicy::BestFirst { budget: 8, spine: 2 }, &load(2, 100)), "spine");
    assert_eq!(key(&choose(Scope::BatchWide, 17), &load(2, 100)), "budget");
    assert_eq!(key(&best, &load(0, 100)), "concurrency");
    assert_eq!(key(&best, &load(2, 0)), "request_rounds");
    assert_eq!(key(&best, &Load { response: Some(1), ..load(2, 100) }), "response");
    assert_eq!(key(&best, &Load { requests: Some(&[9]), ..load(2, 100) }), "requests");
    assert_eq!(key(&best, &Load { requests: Some(&[]), ..load(2, 100) }), "requests");
    let nothing = Arc::new(Plain { experts: None, buckets: vec![] });
    assert_eq!(simulate(&tables, &*nothing, &best, &load(2, 100), 0).unwrap().experts_mean, None);
    let endless = |_: &str| step(&tables, &*cost, &best, &load(2, 1), &[(0, 500)]).unwrap_err().to_string();
    assert!(endless("").contains("no such root"));
}
