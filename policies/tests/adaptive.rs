//! The adaptive budget in closed loop: public faults of controllers, calibration, probes.

mod common;

use common::{Drive, row};
use serde_json::json;
use treeline_core::{CostCurve, Fault, StepCost, StepShape, StepTime};
use treeline_policies::adaptive::{best_end, with_hysteresis};

/// Cost of 0…3 nodes of public fault 47.
const STEPPED: [f64; 4] = [1.0, 1.9, 2.0, 2.05];

fn equal_gains(gain: f64) -> Vec<Option<f64>> {
    (0..4).map(|n| Some(gain * f64::from(n))).collect()
}

/// The rule of the papers: stop at the first end that does not improve.
fn first_stop(phi: &[Option<f64>], ms: &[f64]) -> usize {
    let rate = |i: usize| (1.0 + phi[i].unwrap()) / ms[i];
    (0..phi.len() - 1).find(|&i| rate(i + 1) <= rate(i)).unwrap_or(phi.len() - 1)
}

#[test]
fn fault_47_every_end_of_a_stepped_cost_is_compared() {
    assert_eq!(best_end(&equal_gains(0.6), &STEPPED), Some(3));
    assert_eq!(best_end(&equal_gains(0.3), &STEPPED), Some(0));
    assert_eq!(first_stop(&equal_gains(0.6), &STEPPED), 0, "the control: the first stop misses the last end");
}

/// The same through the whole policy: three nodes of path probability .6 (or .3), accepted as often as claimed.
#[test]
fn fault_47_in_closed_loop() {
    for (gain, budget) in [(0.6, 3), (0.3, 0)] {
        let cost = CostCurve::new(vec![1, 2, 3, 4], STEPPED.to_vec()).unwrap();
        let mut drive = Drive::new("adaptive", json!({}), 3, 3, 2, Box::new(cost));
        let rows = [row(&[gain, 1e-6]), row(&[1.0, 1e-9]), row(&[1.0, 1e-9])];
        let hits = |round: u64| (round * 7 % 10) < (gain * 10.0) as u64;
        let mut last = u32::MAX;
        for round in 0..60 {
            last = drive.round(&rows, |_| if hits(round) { Some(0) } else { None }).nodes;
        }
        assert_eq!(last, budget, "gain {gain}");
    }
}

/// Expected tokens 1 + Φ at two ends whose rates differ by exactly the margin: no move, in neither direction.
#[test]
fn fault_43_exactly_on_the_threshold_nothing_moves() {
    let ms = [1.0, 1.0];
    // 1.02 · 1.0 in binary is what the rule itself computes.
    let phi = [Some(0.0), Some(1.0 * (1.0 + 0.02) - 1.0)];
    assert_eq!(with_hysteresis(Some(0), &phi, &ms, 0.02), Some(0));
    assert_eq!(with_hysteresis(Some(1), &phi, &ms, 0.02), Some(1));
    let more = [Some(0.0), Some(0.0201)];
    assert_eq!(with_hysteresis(Some(0), &more, &ms, 0.02), Some(1));
}

/// Constant acceptance on break-even of two budgets: the estimate wavers around the threshold, the budget does not.
#[test]
fn fault_43_constant_acceptance_on_the_threshold_does_not_flip_flop() {
    let flips = |margin: f64| {
        // One node, accepted every second time: 1.5 tokens. A step costs 1.5 times a plain one: break-even.
        let cost = CostCurve::new(vec![1, 2, 3], vec![1.0, 1.5, 3.0]).unwrap();
        let params = json!({ "budgets": [0, 1], "margin": margin, "memory": 40.0, "probe": 0.5 });
        let mut drive = Drive::new("adaptive", params, 1, 1, 2, Box::new(cost));
        let mut budgets = Vec::new();
        for round in 0..3000u64 {
            // Runs of hits and misses of equal length: the mean is one half, the estimate swings by about a percent.
            let step = drive.round(&[row(&[0.5, 1e-6])], |_| if round % 6 < 3 { Some(0) } else { None });
            // With `probe = 0.5` every second round grows the largest tree.
            if step.nodes != 1 || round % 2 == 0 {
                budgets.push(step.nodes);
            }
        }
        budgets.windows(2).filter(|w| w[0] != w[1]).count()
    };
    assert!(flips(0.02) <= 1, "{}", flips(0.02));
    assert!(flips(0.0) > 20, "the control without hysteresis must flip-flop: {}", flips(0.0));
}

/// A flat cost would pin the choice to the largest tree, a missing one to nothing at all: both are refused.
#[test]
fn fault_44_a_flat_cost_is_refused() {
    struct Flat;
    impl StepCost for Flat {
        fn step(&self, _shape: &StepShape) -> StepTime {
            StepTime { verify_ms: 3.0, ..StepTime::default() }
        }
    }
    // The control, what a flat cost that is let through does: the last end, however little it adds.
    assert_eq!(best_end(&equal_gains(1e-9), &[3.0; 4]), Some(3));
    let mut drive = Drive::new("adaptive", json!({}), 8, 3, 4, Box::new(Flat));
    let step = drive.round(&[row(&[0.5, 0.2])], |_| Some(0));
    assert!(matches!(&step.fault, Some(Fault::Policy(why)) if why.contains("flat")), "{:?}", step.fault);

    struct Broken;
    impl StepCost for Broken {
        fn step(&self, shape: &StepShape) -> StepTime {
            StepTime { verify_ms: if shape.rows > 4 { f64::NAN } else { 1.0 }, ..StepTime::default() }
        }
    }
    let mut drive = Drive::new("adaptive", json!({}), 8, 3, 4, Box::new(Broken));
    let step = drive.round(&[row(&[0.5, 0.2])], |_| Some(0));
    assert!(matches!(&step.fault, Some(Fault::Policy(why)) if why.contains("NaN")), "{:?}", step.fault);
    // A cost that grows is not refused.
    let mut drive = Drive::new("adaptive", json!({}), 8, 3, 4, Box::new(rising()));
    assert_eq!(drive.round(&[row(&[0.5, 0.2])], |_| Some(0)).fault, None);
}

fn rising() -> CostCurve {
    CostCurve::new(vec![1, 2, 9, 65], vec![1.0, 1.5, 1.8, 4.0]).unwrap()
}

fn confident() -> [Vec<treeline_core::Candidate>; 4] {
    [row(&[0.8, 0.1]), row(&[0.7, 0.1]), row(&[0.7, 0.1]), row(&[0.6, 0.1])]
}

/// Good, bad, good again: the policy turns drafting off and comes back.
#[test]
fn fault_46_off_does_not_latch() {
    let run = |blind: bool| {
        let mut drive = Drive::new("adaptive", json!({ "memory": 64.0 }), 8, 4, 4, Box::new(rising()));
        drive.blind_probes = blind;
        let (mut on, mut off, mut back) = (0, 0, 0);
        for round in 0..3000u64 {
            let good = !(500..1500).contains(&round);
            let step = drive.round(&confident(), |_| good.then_some(0));
            let drafting = u32::from(step.asked > 0 && step.nodes > 0);
            match round {
                400..500 => on += drafting,
                1400..1500 => off += 1 - drafting,
                2900..3000 => back += drafting,
                _ => {}
            }
        }
        (on, off, back)
    };
    let (on, off, back) = run(false);
    assert_eq!(on, 100, "it drafts while drafts are accepted");
    assert!(off >= 95, "it stops when none is: off in {off} of 100 rounds");
    assert_eq!(back, 100, "it comes back");
    assert_eq!(run(true).2, 0, "the control: without probes out of `off` it never does");
}

/// Goodput: without a limit the large tree is the fastest; under one that only smaller trees respect, probes too keep to it.
#[test]
fn a_latency_limit_holds_for_probes_too() {
    let largest = |limit: Option<f64>| {
        let params = json!({ "budgets": [0, 1, 4, 8], "latency_ms": limit, "probe": 0.1 });
        let mut drive = Drive::new("adaptive", params, 8, 4, 4, Box::new(rising()));
        (0..200).map(|_| drive.round(&confident(), |_| Some(0)).nodes).max()
    };
    assert_eq!((largest(None), largest(Some(1.7)), largest(Some(0.5))), (Some(8), Some(4), Some(0)));
}

#[test]
fn probes_run_in_at_least_one_round_of_a_hundred() {
    for good in [true, false] {
        let mut drive = Drive::new("adaptive", json!({}), 8, 4, 4, Box::new(rising()));
        let rounds = 5000;
        let mut longest = 0;
        let mut since = 0;
        for _ in 0..rounds {
            let step = drive.round(&confident(), |_| good.then_some(0));
            since = if step.nodes == 8 { 0 } else { since + 1 };
            longest = longest.max(since);
        }
        assert!(longest < 100, "{longest} rounds without the largest tree");
    }
}

/// A drafter that claims .8 and is right three times in ten: after a while the tree expects what comes.
#[test]
fn claims_are_calibrated_by_outcomes() {
    let mut drive = Drive::new("adaptive", json!({ "budgets": [4] }), 4, 1, 4, Box::new(rising()));
    let rows = [row(&[0.8, 0.1, 0.05, 0.04])];
    let truth = |round: u64| match round % 10 {
        0..3 => Some(0),
        3..8 => Some(1),
        _ => None,
    };
    let first = drive.round(&rows, |_| truth(0)).expected;
    assert!((first - 0.99).abs() < 1e-6, "at first the claims stand: {first}");
    let mut expected = 0.0;
    for round in 1..2000 {
        expected = drive.round(&rows, |_| truth(round)).expected;
    }
    // Rank 1 comes five times in ten, but no rank may be held above the one before it: .3 and .3.
    assert!((expected - 0.6).abs() < 0.1, "{expected}");
}

/// Renewal reward adapts the budget to each round: over easy and hard rounds it is at least as fast as one budget for all.
#[test]
fn renewal_is_at_least_as_fast_as_the_ratio() {
    let speed = |objective: &str| {
        let cost = CostCurve::new(vec![1, 2, 3, 5, 9, 17], vec![1.0, 1.3, 1.5, 1.8, 2.2, 2.9]).unwrap();
        let params = json!({ "objective": objective, "budgets": [0, 1, 2, 4, 8, 16] });
        let mut drive = Drive::new("adaptive", params, 16, 4, 4, Box::new(cost.clone()));
        let easy = [row(&[0.9, 0.05]), row(&[0.9, 0.05]), row(&[0.9, 0.05]), row(&[0.9, 0.05])];
        let hard = [row(&[0.3, 0.2, 0.1]), row(&[0.3, 0.2]), row(&[0.3, 0.2]), row(&[0.3, 0.2])];
        let (mut tokens, mut ms) = (0.0, 0.0);
        for round in 0..4000u64 {
            let rows = if round % 2 == 0 { &easy } else { &hard };
            let step = drive.round(rows, |_| Some(0));
            if round > 500 {
                // The drafter's claims are the truth in expectation here, so Φ itself is scored.
                tokens += 1.0 + step.claimed;
                ms += cost.at(1 + step.nodes);
            }
        }
        tokens / ms
    };
    let (ratio, renewal) = (speed("ratio"), speed("renewal"));
    assert!(renewal >= ratio, "renewal {renewal}, ratio {ratio}");
}
