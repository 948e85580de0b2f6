//! Sizes by cost: the choosers against exhaustive search, the pool against a heap, the policies in closed loop.

mod common;

use common::{Drive, row};
use serde_json::json;
use treeline_core::{CostCurve, Fault, StepCost, StepShape, StepTime};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{Mix, limits, scene};
use treeline_policies::conformance::stage::play;
use treeline_policies::cost_aware::{
    Goal, Objective, Pool, Reliability, ReliabilityFit, Throughput, choose, per_request, totals,
};

const RATIO: Goal = Goal { objective: Objective::Ratio, latency_ms: None };
const RENEWAL: Goal = Goal { objective: Objective::Renewal, latency_ms: None };

fn end(goal: &Goal, g: Option<f64>, ends: &[(f64, f64)]) -> Option<(usize, bool)> {
    choose(goal, g, ends.iter().copied()).map(|c| (c.end, c.within))
}

/// Public fault 47: a stepped cost, where the first end that does not improve is not the last one worth looking at.
#[test]
fn fault_47_all_ends_are_compared() {
    let ends = [(1.0, 1.0), (1.6, 1.9), (2.2, 2.0), (2.8, 2.05)];
    assert_eq!(end(&RATIO, None, &ends), Some((3, true)));
    assert_eq!(end(&RENEWAL, Some(1.2), &ends), Some((3, true)));
    assert_eq!(end(&RENEWAL, None, &ends), Some((3, true)), "before the first step the ratio decides");
    // Time is dear: only the shortest step is worth its time.
    assert_eq!(end(&RENEWAL, Some(9.0), &ends), Some((0, true)));
}

#[test]
fn a_latency_limit_is_kept_and_a_broken_cost_passed_over() {
    let ends = [(1.0, 1.0), (1.6, 1.9), (2.2, 2.0), (2.8, 2.05)];
    let within = |limit| end(&Goal { latency_ms: Some(limit), ..RATIO }, None, &ends);
    assert_eq!(within(2.05), Some((3, true)));
    assert_eq!(within(2.01), Some((2, true)));
    assert_eq!(within(1.95), Some((0, true)));
    assert_eq!(within(0.5), Some((0, false)), "none respects it: the fastest, and it says so");
    assert_eq!(end(&RATIO, None, &[(1.0, f64::NAN), (2.0, 0.0), (1.0, f64::INFINITY), (1.0, 4.0)]), Some((3, true)));
    assert_eq!(end(&RATIO, None, &[(1.0, f64::NAN)]), None);
}

/// Long-run throughput of rounds whose Φ differ, by exhaustive search over all assignments of an end to each kind of round,
/// and by renewal with the running throughput.
#[test]
fn renewal_reaches_the_best_of_all_assignments() {
    let ms = [1.0, 1.7, 2.0, 2.05, 3.6];
    let kinds = [[1.0, 1.9, 2.7, 3.2, 4.8], [1.0, 1.2, 1.3, 1.35, 1.4], [1.0, 1.6, 2.0, 2.3, 3.0]];
    let mut best = 0.0f64;
    for code in 0..ms.len().pow(3) {
        let pick = [code % 5, code / 5 % 5, code / 25];
        let tokens: f64 = (0..3).map(|k| kinds[k][pick[k]]).sum();
        best = best.max(tokens / pick.iter().map(|&i| ms[i]).sum::<f64>());
    }
    let run = |goal: &Goal| {
        let (mut g, mut all) = (Throughput::new(64.0), Throughput::new(1e12));
        for round in 0..3000 {
            let tokens = &kinds[round % 3];
            let i = choose(goal, g.get(), tokens.iter().copied().zip(ms)).unwrap().end;
            g.push(tokens[i], ms[i]);
            if round >= 600 {
                all.push(tokens[i], ms[i]);
            }
        }
        all.get().unwrap()
    };
    assert!((run(&RENEWAL) / best - 1.0).abs() < 1e-6, "{} of {best}", run(&RENEWAL));
    assert!(run(&RATIO) < best * 0.999, "the control: the ratio of a step is not the long-run optimum");
}

/// All nodes of the batch, best first: (probability, request, place).
fn by_heap(requests: &[Vec<f32>]) -> Vec<(f32, usize)> {
    let mut all: Vec<(f32, usize, usize)> = Vec::new();
    for (r, list) in requests.iter().enumerate() {
        all.extend(list.iter().enumerate().map(|(i, &p)| (p, r, i)));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    all.into_iter().map(|(p, r, _)| (p, r)).collect()
}

#[test]
fn the_pool_is_one_heap_over_all_requests() {
    let mut mix = Mix::new(5);
    let mut pool = Pool::default();
    let mut counts = Vec::new();
    for case in 0..60 {
        let coarse = case % 3 == 0;
        let requests: Vec<Vec<f32>> = (0..1 + mix.below(20))
            .map(|_| {
                let mut list: Vec<f32> = (0..mix.below(50)).map(|_| mix.unit().powi(9) as f32).collect();
                if coarse {
                    // Ties, ones and zeros.
                    list.iter_mut().for_each(|p| *p = (*p * 4.0).round() / 4.0);
                }
                list.sort_by(|a, b| b.total_cmp(a));
                list
            })
            .collect();
        let order = by_heap(&requests);
        pool.clear();
        requests.iter().for_each(|list| pool.push(list.iter().copied()));
        assert_eq!(pool.nodes() as usize, order.len());
        let ends: Vec<u32> = (0..=order.len() as u32 + 3).step_by(1 + mix.below(7) as usize).collect();
        let mut phi = vec![0.0; ends.len()];
        pool.phi(&ends, &mut phi);
        for (&end, phi) in ends.iter().zip(&phi) {
            let head = &order[..(end as usize).min(order.len())];
            let expected: f64 = head.iter().map(|&(p, _)| f64::from(p)).sum();
            assert!((phi - expected).abs() < 1e-9, "case {case}, end {end}: {phi} against {expected}");
            pool.counts(end, &mut counts);
            let mut want = vec![0; requests.len()];
            head.iter().for_each(|&(_, r)| want[r] += 1);
            assert_eq!(counts, want, "case {case}, end {end}");
        }
    }
}

#[test]
fn the_pool_takes_what_is_no_descending_list() {
    let mut pool = Pool::default();
    pool.push([0.5, 0.9, f32::NAN, 0.2]);
    let (mut phi, mut counts) = ([0.0; 5], Vec::new());
    pool.phi(&[0, 1, 2, 3, 4], &mut phi);
    assert_eq!(phi, [0.0, 0.5, 1.0, 1.0, 1.0], "in its own order, never rising, NaN as 0");
    pool.counts(3, &mut counts);
    assert_eq!(counts, [3]);
}

#[test]
fn ends_are_those_of_the_buckets() {
    let mut ends = Vec::new();
    totals(&[1, 2, 4, 8, 16, 32], 3, 20, &mut ends);
    assert_eq!(ends, [1, 5, 13, 20]);
    per_request(&[1, 2, 4, 8, 16, 32], 3, 20, &mut ends);
    assert_eq!(
        ends,
        [0, 1, 4, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
        "beyond the last graph nothing is padded"
    );
    totals(&[], 3, 4, &mut ends);
    assert_eq!(ends, [0, 1, 2, 3, 4]);
    totals(&[8], 16, 0, &mut ends);
    assert_eq!(ends, [0]);
    // Many nodes: evenly spaced, and wherever all requests have as many; always ascending, never more than a few hundred.
    for (buckets, requests, most) in [(&[][..], 64, 4096), (&[1, 64, 96][..], 64, 4096), (&[512][..], 256, 16384)] {
        totals(buckets, requests, most, &mut ends);
        assert!(ends.len() <= 200 + most as usize / requests as usize, "{} ends", ends.len());
        assert!(ends.windows(2).all(|w| w[0] < w[1]) && ends.last() == Some(&most), "{ends:?}");
        let last = buckets.last().map_or(0, |b| b - requests);
        assert!((1..most / requests).map(|n| n * requests).filter(|n| *n > last).all(|n| ends.contains(&n)));
    }
}

/// Claims that are wrong by a known law are put right; the curve never falls as the claim rises.
#[test]
fn reliability_recovers_a_known_law() {
    let truth = |q: f64| 0.9 * q.powf(1.4);
    let mut fit = ReliabilityFit::default();
    let mut mix = Mix::new(3);
    for _ in 0..400_000 {
        let x = -6.0 * mix.unit();
        fit.add(x as f32, mix.unit() < truth(x.exp()));
    }
    let curve = fit.finish();
    let mut before = 0.0;
    for i in (0..=4000).rev() {
        let x = -f64::from(i) / 250.0;
        let p = curve.probability(x as f32);
        assert!(p >= before - 1e-7 && p <= 1.0, "{x}: {p} below {before}");
        before = p;
    }
    for x in [-5.0, -3.0, -2.0, -1.0, -0.3] {
        let (p, want) = (f64::from(curve.probability(x as f32)), truth(f64::exp(x)));
        assert!((p - want).abs() < 0.02 * want + 0.004, "{x}: {p} against {want}");
    }
    // Without observations, and by default, claims stand.
    for curve in [ReliabilityFit::default().finish(), Reliability::default()] {
        for x in [-20.0f32, -7.3, -1.0, 0.0] {
            assert!((curve.probability(x) / x.exp() - 1.0).abs() < 2e-3, "{x}: {}", curve.probability(x));
        }
    }
    let given = Reliability::through(&[[-2.0, 0.1], [-1.0, 0.2]]).unwrap();
    assert!((given.probability(-1.5) - 0.15).abs() < 1e-3 && given.probability(0.0) <= 1.0);
    assert!(Reliability::through(&[]).is_err() && Reliability::through(&[[0.5, 0.1]]).is_err());
}

/// `batch-wide` that fills 3 × 9 nodes is the existing one heap over the batch with a mean of 9.
#[test]
fn batch_wide_is_the_shared_heap_of_its_size() {
    for levels in [0, 4] {
        let mut scene = scene(7, 3, limits(24, 7, 12), false, levels);
        // Rows cost next to nothing up to 30, and then everything: the choice fills the step.
        scene.cost = CostCurve::new(vec![1, 30, 31], vec![1.0, 1.000_001, 1e6]).unwrap();
        let registry = Registry::builtin();
        let claimed = json!({ "calibration": "claimed", "off": false, "objective": "ratio" });
        let mut wide = registry.build("batch-wide", &claimed, &scene.limits).unwrap();
        let shared = json!({ "scope": "batch", "mean": 9 });
        let mut heap = registry.build("best-first", &shared, &scene.limits).unwrap();
        let a = play(wide.as_mut(), &scene, 1).unwrap();
        let b = play(heap.as_mut(), &scene, 1).unwrap();
        assert_eq!(a[0].trees, b[0].trees, "levels {levels}");
        assert_eq!(a[0].trees.iter().map(treeline_core::Tree::nodes).sum::<u32>(), 27);
        // Each request by itself, as if all were like it.
        let mut each = registry.build("cost-aware", &claimed, &scene.limits).unwrap();
        let c = play(each.as_mut(), &scene, 1).unwrap();
        assert_eq!(c[0].trees.iter().map(treeline_core::Tree::nodes).collect::<Vec<_>>(), [9, 9, 9]);
    }
}

fn rising() -> CostCurve {
    CostCurve::new(vec![1, 2, 9, 65], vec![1.0, 1.5, 1.8, 4.0]).unwrap()
}

/// Good, bad, good again: drafting stops and begins again.
#[test]
fn fault_46_off_does_not_latch() {
    let confident = [row(&[0.8, 0.1]), row(&[0.7, 0.1]), row(&[0.7, 0.1]), row(&[0.6, 0.1])];
    for kind in ["cost-aware", "batch-wide"] {
        for calibration in ["claimed", "learned"] {
            let params = json!({ "memory": 32.0, "calibration": calibration });
            let mut drive = Drive::new(kind, params, 8, 4, 4, Box::new(rising()));
            let (mut on, mut off, mut back) = (0, 0, 0);
            for round in 0..4000u64 {
                let good = !(500..1500).contains(&round);
                let step = drive.round(&confident, |_| good.then_some(0));
                let drafting = u32::from(step.asked > 0);
                match round {
                    400..500 => on += drafting,
                    1400..1500 => off += 1 - drafting,
                    3900..4000 => back += drafting,
                    _ => {}
                }
            }
            assert_eq!((on, back), (100, 100), "{kind} {calibration}: drafts while it pays");
            assert!(off >= 95, "{kind} {calibration}: off in {off} of 100 rounds");
        }
    }
}

/// Public fault 44: a flat cost would pin every choice to the largest tree.
#[test]
fn fault_44_a_flat_cost_is_refused() {
    struct Flat;
    impl StepCost for Flat {
        fn step(&self, _shape: &StepShape) -> StepTime {
            StepTime { verify_ms: 3.0, ..StepTime::default() }
        }
    }
    for kind in ["cost-aware", "batch-wide"] {
        let mut drive = Drive::new(kind, json!({}), 8, 3, 4, Box::new(Flat));
        let fault = drive.round(&[row(&[0.5, 0.2])], |_| Some(0)).fault;
        assert!(matches!(&fault, Some(Fault::Policy(why)) if why.contains("flat")), "{kind}: {fault:?}");
    }
}

/// Easy and hard rounds in turn, a concave cost: sizes follow the round, and the long-run rate is above that of every
/// fixed budget and of the ratio.
#[test]
fn sizes_follow_the_round() {
    let easy = [row(&[0.9, 0.05]), row(&[0.9, 0.05]), row(&[0.9, 0.05]), row(&[0.9, 0.05])];
    let hard = [row(&[0.3, 0.2, 0.1]), row(&[0.3, 0.2]), row(&[0.3, 0.2]), row(&[0.3, 0.2])];
    let cost = CostCurve::new(vec![1, 2, 3, 5, 9, 17], vec![1.0, 1.3, 1.5, 1.8, 2.2, 2.9]).unwrap();
    let speed = |kind: &str, params: serde_json::Value, budget: u32| {
        let mut drive = Drive::new(kind, params, budget, 4, 4, Box::new(cost.clone()));
        let (mut tokens, mut ms) = (0.0, 0.0);
        let mut sizes = [0, 0];
        for round in 0..3000u64 {
            let kind = (round % 2) as usize;
            // Truth by the claims: the spine is right with its own probability, spread evenly over the rounds.
            let step = drive.round(if kind == 0 { &easy } else { &hard }, |d| {
                let q: f64 = if kind == 0 { 0.9 } else { 0.3 };
                ((((round / 2) * 7 + d as u64 * 31) % 100) as f64 / 100.0 < q).then_some(0)
            });
            if round > 500 {
                tokens += 1.0 + step.claimed;
                ms += cost.at(1 + step.nodes);
                sizes[kind] = step.nodes;
            }
        }
        (tokens / ms, sizes)
    };
    let claimed = |objective: &str| json!({ "objective": objective, "calibration": "claimed", "off": false });
    let (renewal, sizes) = speed("batch-wide", claimed("renewal"), 16);
    assert!(sizes[0] > sizes[1], "{sizes:?}");
    for budget in 1..=16 {
        let (fixed, _) = speed("best-first", json!({}), budget);
        assert!(renewal > fixed, "budget {budget}: {fixed} against {renewal}");
    }
    let (ratio, _) = speed("batch-wide", claimed("ratio"), 16);
    assert!(renewal >= ratio, "{ratio} against {renewal}");
    assert_eq!(speed("cost-aware", claimed("renewal"), 16).0, renewal, "alone in the batch both are the same");
}

/// Sequoia's size by cost: that of the best rate among all sizes, 0 where no size pays, within a limit where there is one.
#[test]
fn sequoia_takes_the_size_that_its_cost_pays() {
    let acceptance = [0.6, 0.15, 0.05];
    let rows = [row(&[0.6, 0.15, 0.05]), row(&[0.6, 0.15, 0.05]), row(&[0.6, 0.15, 0.05])];
    let table = treeline_policies::sequoia::Table::new(&acceptance, 12, 3);
    let size = |cost: CostCurve, limit: Option<f64>| {
        let params = json!({ "acceptance": acceptance, "size": "cost", "latency_ms": limit });
        let mut drive = Drive::new("sequoia", params, 12, 3, 3, Box::new(cost.clone()));
        let best = (0..=12u32)
            .filter(|&n| limit.is_none_or(|l| cost.at(1 + n) <= l))
            .max_by(|&a, &b| {
                let rate = |n: u32| table.best(n, 3).0 / cost.at(1 + n);
                rate(a).total_cmp(&rate(b)).then(b.cmp(&a))
            })
            .unwrap();
        assert_eq!(drive.round(&rows, |_| Some(0)).nodes, best);
        best
    };
    let stepped = CostCurve::new(vec![1, 2, 3, 4, 8, 13], vec![1.0, 1.9, 2.0, 2.05, 2.1, 4.0]).unwrap();
    let dear = CostCurve::new(vec![1, 2, 13], vec![1.0, 3.0, 30.0]).unwrap();
    assert_eq!(size(stepped.clone(), None), 7);
    assert_eq!(size(stepped, Some(2.05)), 3);
    assert_eq!(size(dear, None), 0);
}
