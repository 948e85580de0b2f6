//! Rounds of the priced engine: what is accepted comes from the trace, what it takes from the cost model.

use crate::common::{BLOCK, Ran, closed, moe, play, trace};
use std::sync::Arc;
use treeline_core::{Law, Phase, RunSetup, run};
use treeline_policies::Registry;
use treeline_sim::batch::{BatchError, BatchSetup, Prefill, PricedEngine, Pricing, check_trace};
use treeline_sim::cost::StepQuery;
use treeline_sim::experts::Experts;
use treeline_sim::profile;
use treeline_sim::{ReplayEngine, requests};

/// The price of every round is that of its own trees, taken one by one from the forest; the clock is their sum.
#[test]
fn a_round_costs_what_its_trees_cost() {
    let (trace, cost) = (trace(9, 60), moe());
    for (kind, params) in [("best-first", "{}"), ("spine-first", "{}"), ("chain", "{}"), ("top-k", r#"{"width":3}"#)] {
        let setup = closed(4, 11);
        let mut engine = PricedEngine::new(trace.clone(), cost.clone(), setup.clone()).unwrap();
        let limits = treeline_core::Limits { budget: 11, depth: BLOCK - 1, width: 40, concurrency: 4 };
        let mut policy = Registry::builtin().build(kind, &serde_json::from_str(params).unwrap(), &limits).unwrap();
        let run_setup = RunSetup { budget: 11, concurrency: 4, law: &Law::Greedy, cost: None };
        let (mut sum, mut tokens) = (0.0, 0);
        let responses = run(&mut engine, &mut *policy, &requests(&trace), &run_setup, &mut |view| {
            let drafted = view.batch.iter().filter(|s| s.left > 1).count() as u32;
            let query = StepQuery {
                requests: view.batch.len() as u32,
                rows: view.forest.rows(),
                context_sum: view.batch.iter().map(|s| u64::from(s.start)).sum(),
                draft_requests: drafted,
                draft_rows: drafted * BLOCK,
                effective_rows: cost.experts().map(|e: &Experts| e.effective_rows_of(view.forest.trees().iter())),
                expand_waves: 0,
            };
            let price = cost.price(&query);
            let (times, priced) = (view.log.times.unwrap(), view.log.priced.unwrap());
            for (a, b) in times.ms.iter().zip(price.phases.ms) {
                assert!((a - b).abs() < 1e-9, "{kind}: {times:?} {price:?}");
            }
            assert_eq!((priced.padded_rows, priced.watts), (cost.padded(view.forest.rows()), 500.0));
            assert!((priced.joules - 8.0 * price.joules).abs() < 1e-9, "energy of all eight GPUs");
            assert!((view.log.experts_mean().unwrap() - price.experts.unwrap()).abs() < 1e-9);
            assert_eq!(view.log.experts_counted(), None);
            sum += view.log.ms().unwrap();
            tokens += view.log.tokens();
        })
        .unwrap();
        assert!((engine.clock_ms() - sum).abs() < 1e-9);
        assert_eq!(tokens, responses.iter().map(|r| r.decoded()).sum::<u32>());
        assert_eq!(tokens, trace.requests.iter().map(|r| r.emitted - 1).sum::<u32>());
    }
}

/// Time changes nothing about what is accepted, and neither does where the responses are placed.
#[test]
fn accepted_lengths_are_those_of_the_replay() {
    let (trace, cost) = (trace(8, 50), moe());
    let entries = |ran: crate::common::Ran| {
        let key = |e: &treeline_core::Entry| (e.request, e.step, e.rows, e.result.as_ref().unwrap().emitted.clone());
        let mut all: Vec<_> = ran.rounds.iter().flat_map(|r| r.entries.iter().map(key)).collect();
        all.sort();
        all
    };
    let own = entries(play(&trace, &cost, &closed(3, 16), "best-first", "{}").unwrap());
    let mut replayed = Vec::new();
    let mut engine = ReplayEngine::new(trace.clone(), 3).unwrap();
    let limits = treeline_core::Limits { budget: 16, depth: BLOCK - 1, width: 40, concurrency: 3 };
    let mut policy = Registry::builtin().build("best-first", &serde_json::json!({}), &limits).unwrap();
    let setup = RunSetup { budget: 16, concurrency: 3, law: &Law::Greedy, cost: None };
    run(&mut engine, &mut *policy, &requests(&trace), &setup, &mut |view| {
        replayed.extend(
            view.log.entries.iter().map(|e| (e.request, e.step, e.rows, e.result.as_ref().unwrap().emitted.clone())),
        );
    })
    .unwrap();
    replayed.sort();
    assert_eq!(own, replayed);
    let far = BatchSetup { context: Some(50_000), ..closed(3, 16) };
    let placed = play(&trace, &cost, &far, "best-first", "{}").unwrap();
    let near = play(&trace, &cost, &closed(3, 16), "best-first", "{}").unwrap();
    assert!(placed.engine.clock_ms() > near.engine.clock_ms() + 0.9 * placed.rounds.len() as f64, "1e-5 ms a token");
    assert_eq!(entries(placed), own);
}

#[test]
fn the_same_load_runs_the_same_way_twice() {
    let (trace, cost) = (trace(12, 40), moe());
    let one = play(&trace, &cost, &closed(5, 9), "batch-wide", "{}").unwrap();
    let two = play(&trace, &cost, &closed(5, 9), "batch-wide", "{}").unwrap();
    assert_eq!(one.rounds, two.rounds);
    assert_eq!(one.engine.visits(), two.engine.visits());
}

/// A prompt's chunks delay everyone: their time is part of the round that follows, and of the clock.
#[test]
fn prefill_is_charged_to_the_round_that_waits_for_it() {
    let (trace, cost) = (trace(7, 40), moe());
    let charged = BatchSetup { prefill: Prefill::Charged { chunk: 16 }, ..closed(2, 8) };
    let (with, without) = (
        play(&trace, &cost, &charged, "best-first", "{}").unwrap(),
        play(&trace, &cost, &closed(2, 8), "best-first", "{}").unwrap(),
    );
    let prompt = |tokens: u32| -> f64 {
        (0..tokens).step_by(16).map(|cached| cost.prefill(16.min(tokens - cached), cached).ms).sum()
    };
    let due: Vec<f64> = trace.requests.iter().map(|r| prompt(r.prompt_tokens)).collect();
    let sum: f64 = due.iter().sum();
    assert!((with.engine.clock_ms() - without.engine.clock_ms() - sum).abs() < 1e-9);
    let first = &with.rounds[0];
    assert!((first.priced.charged_ms - due[0] - due[1]).abs() < 1e-9, "two requests join before the first round");
    assert_eq!(first.times.of(Phase::Prefill), first.priced.charged_ms);
    assert!(with.rounds.iter().any(|r| r.priced.charged_ms == 0.0));
    let charged: f64 = with.rounds.iter().map(|r| r.priced.charged_ms).sum();
    assert!((charged - sum).abs() < 1e-9, "every chunk once");
    assert!(without.rounds.iter().all(|r| r.times.of(Phase::Prefill) == 0.0));
    let joules = |ran: &Ran| ran.rounds.iter().map(|r| r.priced.joules).sum::<f64>();
    assert!((joules(&with) - joules(&without) - 8.0 * 0.6 * sum).abs() < 1e-6, "its energy too, of all GPUs");
    let ttft = with.engine.visits()[0].first_ms - with.engine.visits()[0].arrival_ms;
    assert!((ttft - due[0]).abs() < 1e-9);
}

/// The overlap of a request's rows scales what its trees add, never the root's own experts.
#[test]
fn overlap_moves_the_experts_of_trees_alone() {
    let (trace, cost) = (trace(4, 40), moe());
    let mean = |setup: &BatchSetup, kind| {
        let ran = play(&trace, &cost, setup, kind, "{}").unwrap();
        ran.rounds.iter().map(|r| r.priced.experts.unwrap()).sum::<f64>() / ran.rounds.len() as f64
    };
    let less = BatchSetup { overlap: vec![0.5; 4], ..closed(1, 12) };
    assert!(mean(&less, "best-first") < 0.8 * mean(&closed(1, 12), "best-first"));
    let plain = (BatchSetup { budget: 0, ..less }, closed(1, 0));
    assert_eq!(mean(&plain.0, "chain"), mean(&plain.1, "chain"));
    assert!((mean(&plain.1, "chain") - 8.0).abs() < 1e-9, "one row touches the experts that it is routed to");
}

#[test]
fn a_trace_of_other_models_is_refused() {
    let model = profile::model("kimi-k2.6", std::path::Path::new(".")).unwrap();
    let drafter = profile::drafter("kimi-k2.6-dflash", std::path::Path::new(".")).unwrap();
    let mut meta = trace(1, 10).meta.clone();
    let why = |meta: &treeline_core::trace::TraceMeta| check_trace(meta, &model, &drafter).unwrap_err().to_string();
    assert!(why(&meta).contains("vocabulary of 1000"), "{}", why(&meta));
    meta.vocab = model.vocab;
    assert!(why(&meta).contains("5 levels"), "{}", why(&meta));
    meta.depth = drafter.depth();
    assert_eq!(check_trace(&meta, &model, &drafter), Ok(()));
    meta.conditional = true;
    assert!(why(&meta).contains("block drafter"), "{}", why(&meta));
}

#[test]
fn a_load_of_nothing_is_refused() {
    let (trace, cost) = (trace(3, 20), moe());
    let refused = |setup: BatchSetup| match PricedEngine::new(trace.clone(), cost.clone(), setup) {
        Err(BatchError::Value { key, .. }) => key,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken"),
    };
    assert_eq!(refused(closed(0, 4)), "concurrency");
    assert_eq!(refused(BatchSetup { prefill: Prefill::Charged { chunk: 0 }, ..closed(1, 4) }), "prefill.chunk");
    assert_eq!(refused(BatchSetup { draft_rows: 0, ..closed(1, 4) }), "draft_rows");
    let mut broken = (*trace).clone();
    broken.requests[0].emitted += 1;
    let made = PricedEngine::new(Arc::new(broken), cost.clone(), closed(1, 4));
    assert!(matches!(made.err(), Some(BatchError::Trace(_))));
}
