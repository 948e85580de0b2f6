//! A replay gives what a live run gave: the same trees' accepted lengths, round by round, for every policy.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use treeline_core::testing::{MockEngine, Script};
use treeline_core::trace::Trace;
use treeline_core::{
    CostCurve, Engine, Error, Fault, Law, Limits, Request, Response, RunSetup, Sampling, TreePolicy, run,
};
use treeline_policies::Registry;
use treeline_sim::{Frontier, RecordSetup, Recorded, ReplayEngine, check_policy, record, replay, requests};

const SEED: u64 = 77;

/// Vocabulary of 24, a drafter of 5 levels and 12 ranks, room for 64 positions: some requests fill it.
fn script(conditional: bool) -> Script {
    Script { conditional, seed: SEED, context: 64, depth: 5, width: 12, noise: 2.5, ..Script::new(24) }
}

/// Ten requests that end by length, by an end-of-sequence token, or by a full context.
fn prompts(temperature: f32) -> Vec<Request> {
    (0..10u32)
        .map(|i| Request {
            id: u64::from(i) * 3 + 1,
            prompt: (0..3 + i * 5).map(|t| (t * 7 + i) % 24).collect(),
            max_new: 14 + i * 4,
            eos: if i % 2 == 0 { vec![5] } else { vec![] },
            sampling: Sampling::at(temperature),
        })
        .collect()
}

fn law(temperature: f32) -> Law<'static> {
    if temperature == 0.0 { Law::Greedy } else { Law::SampleMatch { seed: SEED } }
}

fn recorded(conditional: bool, temperature: f32, frontier: Frontier) -> Recorded {
    let requests = prompts(temperature);
    let domains = vec!["text".to_owned(); requests.len()];
    let law = law(temperature);
    let setup =
        RecordSetup { width: 12, frontier, law: &law, concurrency: 3, domains: &domains, source: "scripted engine" };
    record(&mut MockEngine::new(script(conditional)), &requests, &setup, &mut |_| {}).unwrap()
}

/// The trace without its token ids: what may be shared.
fn ranks_only(mut trace: Trace) -> Trace {
    trace.meta.ids = false;
    for request in &mut trace.requests {
        request.tokens.clear();
        for position in &mut request.positions {
            position.ids.clear();
            position.expansions.iter_mut().for_each(|e| e.ids.clear());
        }
    }
    trace
}

/// What a round of one request showed, tokens left out.
type Seen = (u64, u64, u32, u32, u32, u32, u64, Vec<Option<u32>>);

fn observe<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    list: &[Request],
    budget: u32,
    concurrency: u32,
    law: &Law<'_>,
) -> Result<(Vec<Seen>, Vec<Response>), Error> {
    let cost = CostCurve::new(vec![1, 8, 32], vec![1.0, 1.4, 2.6]).unwrap();
    let setup = RunSetup { budget, concurrency, law, cost: Some(&cost) };
    let mut seen = Vec::new();
    let responses = run(engine, policy, list, &setup, &mut |view| {
        for e in &view.log.entries {
            let step = e.result.as_ref().unwrap();
            seen.push((
                view.log.round,
                e.request,
                e.start,
                e.asked,
                e.rows,
                step.accepted(),
                e.expected.to_bits(),
                step.truth_ranks.clone(),
            ));
        }
    })?;
    Ok((seen, responses))
}

fn ends(responses: &[Response]) -> Vec<(u64, u32, u32, Result<treeline_core::End, Fault>)> {
    responses.iter().map(|r| (r.request, r.steps, r.decoded(), r.end.clone())).collect()
}

fn policy(registry: &Registry, kind: &str, budget: u32, concurrency: u32) -> Box<dyn TreePolicy> {
    let limits = Limits { budget, depth: 5, width: 12, concurrency };
    registry.build(kind, &registry.example(kind).unwrap(), &limits).unwrap()
}

/// Every built-in policy, both temperatures, concurrency 1 and 4, token ids kept or not.
#[test]
fn block_replay_equals_live() {
    let registry = Registry::builtin();
    for temperature in [0.0, 0.7] {
        let full = recorded(false, temperature, Frontier::default());
        assert_eq!(full.faults, []);
        let ends_seen: Vec<_> = full.trace.requests.iter().map(|r| r.end).collect();
        for end in [treeline_core::End::Eos, treeline_core::End::Length, treeline_core::End::Context] {
            assert!(ends_seen.contains(&end), "the sample ends in every way: {ends_seen:?}");
        }
        let traces = [Arc::new(ranks_only(full.trace.clone())), Arc::new(full.trace)];
        for kind in registry.kinds() {
            for (budget, concurrency) in [(0, 1), (1, 4), (7, 1), (16, 4), (40, 4)] {
                let build = || policy(&registry, kind, budget, concurrency);
                let mut live = MockEngine::new(script(false));
                let live =
                    observe(&mut live, &mut *build(), &prompts(temperature), budget, concurrency, &law(temperature))
                        .unwrap();
                for trace in &traces {
                    let mut engine = ReplayEngine::new(trace.clone(), concurrency).unwrap();
                    let list = requests(trace);
                    let law = law(temperature);
                    let replayed = observe(&mut engine, &mut *build(), &list, budget, concurrency, &law).unwrap();
                    assert_eq!(live.0, replayed.0, "{kind}, budget {budget}, concurrency {concurrency}");
                    assert_eq!(ends(&live.1), ends(&replayed.1));
                    if trace.meta.ids {
                        assert_eq!(live.1, replayed.1);
                    }
                }
            }
        }
    }
}

/// With enough expansions on record every policy replays exactly on a conditional drafter too.
#[test]
fn conditional_replay_equals_live() {
    let registry = Registry::builtin();
    let full = recorded(true, 0.7, Frontier { beam: 12, expansions: 700 }).trace;
    for trace in [Arc::new(ranks_only(full.clone())), Arc::new(full)] {
        for kind in registry.kinds() {
            for (budget, concurrency) in [(4, 1), (10, 4)] {
                let build = || policy(&registry, kind, budget, concurrency);
                let limits = Limits { budget, depth: 5, width: 12, concurrency };
                check_policy(kind, &build().needs(&limits), &trace).unwrap();
                let mut live = MockEngine::new(script(true));
                let live = observe(&mut live, &mut *build(), &prompts(0.7), budget, concurrency, &law(0.7)).unwrap();
                let mut engine = ReplayEngine::new(trace.clone(), concurrency).unwrap();
                let list = requests(&trace);
                let replayed = observe(&mut engine, &mut *build(), &list, budget, concurrency, &law(0.7)).unwrap();
                assert_eq!(live.0, replayed.0, "{kind}, budget {budget}");
                assert_eq!(ends(&live.1), ends(&replayed.1));
            }
        }
    }
}

/// A node that is not on record ends the run and says what to do; nothing is made up.
#[test]
fn an_unrecorded_node_is_refused() {
    let registry = Registry::builtin();
    let trace = Arc::new(recorded(true, 0.7, Frontier { beam: 2, expansions: 6 }).trace);
    let mut engine = ReplayEngine::new(trace.clone(), 1).unwrap();
    let mut wide = policy(&registry, "best-first", 32, 1);
    let error = observe(&mut engine, &mut *wide, &requests(&trace), 32, 1, &law(0.7)).unwrap_err().to_string();
    assert!(error.contains("was not expanded when the trace was recorded"), "{error}");
    // The chain needs the best path alone, which a beam of 2 holds.
    let mut engine = ReplayEngine::new(trace.clone(), 1).unwrap();
    observe(&mut engine, &mut *policy(&registry, "chain", 5, 1), &requests(&trace), 5, 1, &law(0.7)).unwrap();
}

#[test]
fn a_trace_without_branches_serves_the_chain_alone() {
    let registry = Registry::builtin();
    let limits = Limits { budget: 8, depth: 5, width: 12, concurrency: 1 };
    let bare = recorded(true, 0.0, Frontier { beam: 1, expansions: 5 }).trace;
    for kind in registry.kinds() {
        let needs = policy(&registry, kind, 8, 1).needs(&limits);
        let checked = check_policy(kind, &needs, &bare);
        if kind == "chain" {
            assert_eq!(checked, Ok(()));
        } else {
            let error = checked.unwrap_err().to_string();
            assert!(error.contains(kind) && error.contains("record it again"), "{error}");
        }
    }
    let block = recorded(false, 0.0, Frontier::default()).trace;
    let needs = policy(&registry, "best-first", 8, 1).needs(&limits);
    assert_eq!(check_policy("best-first", &needs, &block), Ok(()));
}

/// Negative control of the equalities above: a true rank that is off by one changes what a replay accepts.
#[test]
fn a_wrong_truth_is_seen() {
    let registry = Registry::builtin();
    let trace = ranks_only(recorded(false, 0.0, Frontier::default()).trace);
    let mut wrong = trace.clone();
    for position in wrong.requests.iter_mut().flat_map(|r| &mut r.positions) {
        if let Some(Some(rank)) = position.truth.first_mut() {
            *rank = if *rank == 0 { 1 } else { 0 };
        }
    }
    let seen = |trace: Trace| {
        let trace = Arc::new(trace);
        let mut engine = ReplayEngine::new(trace.clone(), 1).unwrap();
        observe(&mut engine, &mut *policy(&registry, "chain", 5, 1), &requests(&trace), 5, 1, &law(0.0)).unwrap()
    };
    assert_ne!(seen(trace).0, seen(wrong).0);
}

#[test]
fn requests_that_are_not_on_record_end_alone() {
    let trace = Arc::new(recorded(false, 0.0, Frontier::default()).trace);
    let mut list = requests(&trace);
    list[1].id = 999;
    list[2].max_new += 1;
    let mut engine = ReplayEngine::new(trace.clone(), 4).unwrap();
    let mut chain = policy(&Registry::builtin(), "chain", 5, 4);
    let law = law(0.0);
    let setup = RunSetup { budget: 5, concurrency: 4, law: &law, cost: None };
    let responses = run(&mut engine, &mut *chain, &list, &setup, &mut |_| {}).unwrap();
    let why = |i: usize| responses[i].end.clone().unwrap_err().to_string();
    assert!(why(1).contains("no request 999"), "{}", why(1));
    assert!(why(2).contains("max_new"), "{}", why(2));
    assert!(responses.iter().enumerate().all(|(i, r)| i == 1 || i == 2 || r.end.is_ok()));
}

/// A request whose draft or target fails is left out of the trace, with its reason; the others are whole.
#[test]
fn a_failing_request_is_left_out() {
    let requests = prompts(0.0);
    let domains = vec![String::new(); requests.len()];
    let nan = Script { nan_draft: Some((4, 20)), nan_target: Some((10, 30)), ..script(false) };
    let setup = RecordSetup {
        width: 12,
        frontier: Frontier::default(),
        law: &Law::Greedy,
        concurrency: 4,
        domains: &domains,
        source: "",
    };
    let recorded = record(&mut MockEngine::new(nan), &requests, &setup, &mut |_| {}).unwrap();
    let failed: Vec<u64> = recorded.faults.iter().map(|f| f.0).collect();
    assert_eq!(failed, [4, 10]);
    assert_eq!(recorded.trace.requests.len(), requests.len() - 2);
    treeline_sim::validate(&recorded.trace).unwrap();
}

#[test]
fn laws_whose_verdict_depends_on_the_tree_are_not_recorded() {
    let setup = RecordSetup {
        width: 4,
        frontier: Frontier::default(),
        law: &Law::Traversal { seed: 1 },
        concurrency: 1,
        domains: &[],
        source: "",
    };
    let error = record(&mut MockEngine::new(script(false)), &prompts(0.7), &setup, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("`traversal`"), "{error}");
    let mut mixed = prompts(0.7);
    mixed[3].sampling = Sampling::at(1.0);
    let law = law(0.7);
    let setup = RecordSetup { law: &law, ..setup };
    let error = record(&mut MockEngine::new(script(false)), &mixed, &setup, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("another temperature"), "{error}");
}

/// A drawn-candidates law is refused by the replay before the run: a trace has no distributions.
#[test]
fn drawn_candidates_are_refused() {
    let trace = Arc::new(recorded(false, 0.7, Frontier::default()).trace);
    let mut engine = ReplayEngine::new(trace.clone(), 1).unwrap();
    let mut chain = policy(&Registry::builtin(), "chain", 5, 1);
    let law = Law::Residual { replace: true, seed: 1 };
    let error = observe(&mut engine, &mut *chain, &requests(&trace), 5, 1, &law).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
}

/// A rank code stands for a candidate, never for a token that no row lists.
#[test]
fn reserved_codes_are_no_ranks() {
    const { assert!(replay::UNLISTED > 1 << 30 && replay::END_TOKEN > 1 << 30) };
    assert_ne!(replay::UNLISTED, replay::END_TOKEN);
}
