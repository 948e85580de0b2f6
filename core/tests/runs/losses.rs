//! Where tokens were lost, from live runs: tracker, waterfall and tally agree with each other and with the model.

use super::common::{VOCAB, plain, requests, shapes};
use treeline_core::metrics::{Bootstrap, Rooted, Tally, TruthTracker, Waterfall, oracle, reachable};
use treeline_core::testing::{MockEngine, Script, Shape};
use treeline_core::{Law, RunSetup, Sampling, run};

const WARM: Sampling = Sampling { temperature: 0.7, top_k: 0, top_p: 1.0 };
const LAW: Law<'_> = Law::SampleMatch { seed: 3 };

/// Runs `shape` over ten requests: every root with its request and truth, and the tally.
fn track(script: &Script, shape: &Shape, budget: u32) -> (Vec<(usize, Rooted)>, Tally) {
    let list = requests(10, 40, WARM);
    let (mut tracker, mut tally) = (TruthTracker::new(8), Tally::new());
    let setup = RunSetup { budget, concurrency: 3, law: &LAW, cost: None };
    let mut engine = MockEngine::new(script.clone());
    let responses = run(&mut engine, &mut shape.clone(), &list, &setup, &mut |view| {
        tracker.add(view);
        tally.add_view(view);
    })
    .unwrap();
    let mut roots = Vec::new();
    for (index, (response, request)) in responses.iter().zip(&list).enumerate() {
        assert_eq!(response.tokens, plain(script, request, 3));
        let own = tracker.finish(index, request.prompt.len() as u32, &response.tokens);
        for root in &own {
            // The truth behind a root ends with the response; there may be one token more than drafts could have it.
            let left = response.tokens.len() - 1 - (root.start as usize - request.prompt.len());
            assert_eq!(root.position.truth.len(), root.position.ends.len().min(left));
        }
        assert_eq!(tracker.finish(index, 0, &[]), []);
        roots.extend(own.into_iter().map(|root| (index, root)));
    }
    (roots, tally)
}

#[test]
fn every_depth_is_accounted_for_and_the_oracle_is_the_ceiling() {
    for shape in shapes() {
        let (roots, tally) = track(&Script::new(VOCAB), &shape, shape.nodes());
        let mut fall = Waterfall::default();
        for (_, root) in &roots {
            let truth = &root.position.truth;
            assert!(root.accepted <= oracle(truth, root.budget), "{root:?}");
            fall.add(truth, root.budget, root.accepted);
        }
        assert_eq!(fall.unlisted + fall.unreachable + fall.surrogate + fall.accepted, fall.depths);
        assert_eq!(fall.accepted, tally.accepted());
        // Steps without a draft (one token left) leave no root behind.
        assert!(fall.rounds <= tally.steps() && fall.rounds >= tally.steps() - 10);
        assert!(fall.oracle_tau().unwrap() + 1e-12 >= 1.0 + fall.accepted as f64 / fall.rounds as f64);
        assert!(fall.accepted > 0 && fall.unlisted > 0, "{fall:?}");
    }
}

/// The chain is rank-monotone: what it accepts is reachable, and with enough budget it is all that is reachable by rank 0.
#[test]
fn a_chain_accepts_the_leading_hits_of_rank_0() {
    let (roots, _) = track(&Script::new(VOCAB), &Shape::chain(7), 7);
    for (_, root) in roots {
        let hits = root.position.truth.iter().take_while(|r| **r == Some(0)).count() as u32;
        assert_eq!(root.accepted, hits, "{root:?}");
        assert!(reachable(&root.position.truth, root.budget) >= root.accepted);
    }
}

/// Plain decoding drafts at every position when a policy asks for drafts and uses none: what a trace is recorded from. Its
/// truth ranks predict the chain's accepted length at every root of a live run.
#[test]
fn truth_from_plain_decoding_predicts_a_live_chain() {
    let silent = Shape::silent(7, 8);
    let (plain, tally) = track(&Script::new(VOCAB), &silent, 7);
    assert_eq!(tally.tau(), Some(1.0));
    let (live, _) = track(&Script::new(VOCAB), &Shape::chain(7), 7);
    for (request, root) in &live {
        let same = plain.iter().find(|(index, p)| index == request && p.start == root.start).unwrap();
        let hits = same.1.position.truth.iter().take_while(|r| **r == Some(0)).count();
        assert_eq!(hits as u32, root.accepted);
    }
    assert!(live.len() > 100 && plain.len() > live.len());
}

#[test]
fn tallies_of_paired_cells_give_a_paired_interval() {
    let tau = |noise| track(&Script { noise, ..Script::new(VOCAB) }, &Shape::chain(7), 7).1;
    let (poor, good) = (tau(3.0), tau(0.5));
    let difference = Bootstrap::default().paired_difference(&Tally::paired_tau(&poor, &good)).unwrap();
    assert!((difference.mid - (good.tau().unwrap() - poor.tau().unwrap())).abs() < 1e-12);
    assert!(difference.lo > 0.0, "{difference:?}");
    assert_eq!(difference.n, 10);
    // The first depth is judged in every drafted step; rates fall where the drafter does not know the target.
    assert_eq!(poor.depths()[0].reached, poor.steps() - poor.skipped());
    assert!(poor.depths()[0].rate() < good.depths()[0].rate());
    assert_eq!(poor.hits()[0].iter().sum::<u64>() + poor.misses()[0], poor.steps() - poor.skipped());
}
