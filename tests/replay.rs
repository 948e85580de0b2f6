//! A trace of plain decoding replays to the accepted lengths of live runs: equalities, no tolerance.

use crate::mini::{Case, Drafter, cases, engine, requests, run_case};
use rayon::prelude::*;
use std::sync::Arc;
use treeline_core::trace::Trace;
use treeline_core::{Law, Request, RoundView};
use treeline_policies::Registry;
use treeline_sim::{Frontier, RecordSetup, ReplayEngine, check_policy, record};

const LAW: Law<'static> = Law::SampleMatch { seed: 5 };

/// (request, rows, accepted) of every step in the order of the run.
fn steps(view: &RoundView<'_>, out: &mut Vec<(u64, u32, u32)>) {
    for entry in &view.log.entries {
        out.push((entry.request, entry.rows, entry.result.as_ref().unwrap().accepted()));
    }
}

fn recorded(drafter: Drafter, requests: &[Request], width: u32, frontier: Frontier) -> Arc<Trace> {
    let domains = vec!["any".to_owned(); requests.len()];
    let setup = RecordSetup { width, frontier, law: &LAW, concurrency: 2, domains: &domains, source: "test" };
    let recorded = record(&mut engine(drafter, 2), requests, &setup, &mut |_| {}).unwrap();
    assert!(recorded.faults.is_empty(), "{:?}", recorded.faults);
    Arc::new(recorded.trace)
}

/// Live and replayed steps of a case at one concurrency.
fn both(case: &Case, trace: &Arc<Trace>, live: &[Request], concurrency: u32) -> [Vec<(u64, u32, u32)>; 2] {
    let mut seen = [Vec::new(), Vec::new()];
    run_case(&mut engine(case.drafter, concurrency), case, live, &LAW, concurrency, &mut |v| steps(v, &mut seen[0]));
    let mut replay = ReplayEngine::new(trace.clone(), concurrency).unwrap();
    let asked = treeline_sim::requests(trace);
    let forced = Law::SampleMatch { seed: 0 };
    run_case(&mut replay, case, &asked, &forced, concurrency, &mut |v| steps(v, &mut seen[1]));
    seen
}

#[test]
fn a_plain_trace_replays_every_policy_on_the_block_drafter() {
    let live = requests(10, 40, 0.7);
    let trace = recorded(Drafter::Dflash, &live, 64, Frontier::default());
    let block: Vec<Case> = cases()
        .into_iter()
        .filter(|c| c.drafter != Drafter::NGram)
        .map(|c| Case { drafter: Drafter::Dflash, ..c })
        .collect();
    block.par_iter().for_each(|case| {
        for concurrency in [1, 4] {
            let [live, replay] = both(case, &trace, &live, concurrency);
            assert!(live.iter().any(|s| s.2 > 0), "{} accepts nothing live", case.kind);
            assert_eq!(live, replay, "{} at {concurrency}", case.kind);
        }
    });
}

/// Negative control: a trace whose truth is moved by one rank no longer replays to the live run.
#[test]
fn a_changed_trace_does_not_replay() {
    let live = requests(4, 40, 0.7);
    let trace = recorded(Drafter::Dflash, &live, 64, Frontier::default());
    let mut changed = Trace::clone(&trace);
    for position in changed.requests.iter_mut().flat_map(|r| &mut r.positions) {
        position.ids.iter_mut().for_each(|id| *id = (*id + 1) % 8192);
    }
    let case = Case { drafter: Drafter::Dflash, ..cases().remove(1) };
    let [live, replay] = match ReplayEngine::new(Arc::new(changed.clone()), 1) {
        Ok(_) => both(&case, &Arc::new(changed), &live, 1),
        // Truth ranks and ids contradict each other: refused, which is as good.
        Err(_) => return,
    };
    assert_ne!(live, replay);
}

#[test]
fn conditional_policies_replay_from_off_path_expansions_and_are_refused_without() {
    let live = requests(3, 24, 0.7);
    let wide = recorded(Drafter::Autoregressive, &live, 16, Frontier { beam: 16, expansions: 64 });
    let talon = cases().into_iter().find(|c| c.kind == "talon").unwrap();
    let [a, b] = both(&talon, &wide, &live, 1);
    assert_eq!(a, b);

    let bare = recorded(Drafter::Autoregressive, &live, 16, Frontier { beam: 1, expansions: 6 });
    let engine = ReplayEngine::new(bare.clone(), 1).unwrap();
    let policy = crate::mini::policy(&talon, &engine, 1);
    let limits = treeline_core::Limits { budget: 12, depth: 5, width: 16, concurrency: 1 };
    let refused = check_policy("talon", &policy.needs(&limits), &bare).unwrap_err().to_string();
    assert!(refused.contains("talon"), "{refused}");
    let chain = Registry::builtin().build("chain", &serde_json::json!({}), &limits).unwrap();
    check_policy("chain", &chain.needs(&limits), &bare).unwrap();
}
