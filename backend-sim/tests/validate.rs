//! Traces that contradict themselves are named, and whatever passes replays without a panic.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::sync::Arc;
use treeline_core::testing::{MockEngine, Script, Shape};
use treeline_core::trace::{Expansion, Trace};
use treeline_core::{End, Law, Request, RunSetup, Sampling, run};
use treeline_sim::{Frontier, RecordSetup, ReplayEngine, TraceFault, record, requests, validate};

fn recorded(conditional: bool) -> Trace {
    let list: Vec<Request> = (0..4)
        .map(|id| Request {
            id,
            prompt: vec![1, 2, 3],
            max_new: 8 + id as u32,
            eos: vec![],
            sampling: Sampling::at(0.7),
        })
        .collect();
    let domains = vec!["text".to_owned(); 4];
    let law = Law::SampleMatch { seed: 3 };
    let frontier = Frontier { beam: 3, expansions: 12 };
    let setup = RecordSetup { width: 6, frontier, law: &law, concurrency: 1, domains: &domains, source: "" };
    let script = Script { conditional, depth: 4, width: 6, ..Script::new(16) };
    record(&mut MockEngine::new(script), &list, &setup, &mut |_| {}).unwrap().trace
}

fn check(conditional: bool, change: impl FnOnce(&mut Trace), expected: &str) {
    let mut trace = recorded(conditional);
    validate(&trace).unwrap();
    change(&mut trace);
    let why = validate(&trace).unwrap_err().to_string();
    assert!(why.contains(expected), "`{why}` does not say `{expected}`");
}

#[test]
fn contradictions_are_named() {
    check(false, |t| t.meta.depth = 0, "depth 0");
    check(false, |t| t.meta.width = 0, "width is 0");
    check(false, |t| t.meta.temperature = f32::NAN, "temperature");
    check(false, |t| t.requests[1].id = 0, "occurs twice");
    check(false, |t| t.requests[1].emitted = 0, "emitted nothing");
    check(false, |t| t.requests[1].prompt_tokens = 0, "prompt is empty");
    check(false, |t| t.requests[1].max_new = 3, "more than its limit");
    check(false, |t| t.meta.context = 5, "the context holds 5");
    check(false, |t| _ = t.requests[2].positions.pop(), "positions for");
    check(false, |t| _ = t.requests[2].tokens.pop(), "token ids where");
    check(false, |t| t.requests[2].max_new += 1, "ended by length after");
    check(false, |t| t.requests[2].end = End::Context, "before the context was full");
    check(false, |t| t.requests[0].positions[1].truth[0] = Some(6), "true rank 6");
    check(false, |t| _ = t.requests[0].positions[1].truth.pop(), "true ranks where");
    check(false, |t| t.requests[0].positions[1].ends[0] = 99, "do not cover");
    check(false, |t| t.requests[0].positions[1].logp[2] = f32::NAN, "NaN");
    check(false, |t| t.requests[0].positions[1].logp[2] = 0.5, "not ordered");
    check(false, |t| _ = t.requests[0].positions[1].ids.pop(), "token ids for");
    check(false, |t| t.meta.width = 2, "the width is 2");
    check(true, |t| t.requests[0].positions[1].expansions[2].parent = 2, "not before it");
    check(true, |t| t.requests[0].positions[1].expansions[2].rank = 9, "lists no rank 9");
    check(true, |t| t.requests[0].positions[1].expansions[0].rank = 1, "not the root");
    check(true, |t| t.meta.depth = 1, "has 1 levels");
    check(true, |t| t.requests[0].positions[1].expansions.clear(), "not expanded");
    let again = |t: &mut Trace| {
        let e = t.requests[0].positions[1].expansions[2].clone();
        t.requests[0].positions[1].expansions.push(e);
    };
    check(true, again, "was expanded before");
}

#[test]
fn a_fault_names_request_and_position() {
    let mut trace = recorded(false);
    trace.requests[3].positions[2].truth[0] = Some(77);
    let expected =
        TraceFault::Position { request: 3, position: 2, why: "true rank 77 at depth 1, the row lists 6".into() };
    assert_eq!(validate(&trace), Err(expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any few changes: refused, or replayed to the end without a panic or a hang.
    #[test]
    fn altered_traces_are_refused_or_replayed(
        conditional in any::<bool>(),
        changes in prop::collection::vec((0usize..10, any::<prop::sample::Index>(), 0u32..12), 1..4),
    ) {
        let mut trace = recorded(conditional);
        for (what, at, value) in changes {
            let n = trace.requests.len();
            let request = &mut trace.requests[at.index(n)];
            let places = request.positions.len().max(1);
            let position = request.positions.get_mut(at.index(places));
            match (what, position) {
                (0, _) => request.emitted = value,
                (1, _) => request.max_new = value,
                (2, _) => request.end = [End::Eos, End::Length, End::Context][value as usize % 3],
                (3, _) => request.prompt_tokens = value,
                (4, Some(p)) => p.truth.truncate(value as usize),
                (5, Some(p)) => p.truth.iter_mut().for_each(|t| *t = (value < 6).then_some(value)),
                (6, Some(p)) => p.ends.truncate(value as usize),
                (7, Some(p)) => p.expansions.truncate(value as usize),
                (8, Some(p)) => p.expansions.push(Expansion { parent: value, rank: value, logp: vec![], ids: vec![] }),
                _ => trace.meta.depth = value,
            }
        }
        if validate(&trace).is_ok() {
            let trace = Arc::new(trace);
            let law = Law::SampleMatch { seed: 3 };
            let setup = RunSetup { budget: 6, concurrency: 2, law: &law, cost: None };
            let mut engine = ReplayEngine::new(trace.clone(), 2).unwrap();
            // An unrecorded node ends the run: also an orderly end.
            let _ = run(&mut engine, &mut Shape::widths(&[2, 2]), &requests(&trace), &setup, &mut |_| {});
        }
    }
}
