//! Best-first and spine-first trees against brute force: every prefix is listed, sorted by the exact order, and cut.

use serde_json::{Value, json};
use std::cmp::Ordering;
use treeline_core::{Limits, Tree};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{Mix, limits, scene};
use treeline_policies::conformance::stage::{Player, Scene, path_scale, play};

/// A prefix: its rank tuple and its score.
type Prefix = (Vec<u32>, f64);

/// Every prefix of finite score, in no order.
fn prefixes(player: &Player, conditional: bool, depth: usize, width: usize) -> Vec<Prefix> {
    let mut all: Vec<Prefix> = Vec::new();
    let mut level = vec![(Vec::new(), 0.0)];
    for row in &player.rows[..depth.min(player.rows.len())] {
        let mut next = Vec::new();
        for (path, score) in &level {
            let scale = if conditional { path_scale(path) } else { 1.0 };
            for (rank, c) in (0u32..).zip(row.iter().take(width)) {
                if c.logp > f32::NEG_INFINITY {
                    let logp = if conditional { c.logp * scale } else { c.logp };
                    let mut path = path.clone();
                    path.push(rank);
                    next.push((path, score + f64::from(logp)));
                }
            }
        }
        all.extend(next.iter().cloned());
        level = next;
    }
    all
}

/// `Vec`'s order is lexicographic with a prefix before its extension: the tie rule itself.
fn order(a: &Prefix, b: &Prefix) -> Ordering {
    b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0))
}

fn as_prefixes(tree: &Tree) -> Vec<Prefix> {
    let path = |n: u32| tree.path(n).iter().map(|&n| tree.ranks()[n as usize]).collect();
    (1..tree.rows()).map(|n| (path(n), tree.scores()[n as usize])).collect()
}

fn trees(kind: &str, params: &Value, scene: &Scene) -> Vec<Tree> {
    let mut policy = Registry::builtin().build(kind, params, &scene.limits).unwrap();
    let outcomes = play(policy.as_mut(), scene, 1).unwrap();
    assert!(outcomes[0].faults.iter().all(Option::is_none), "{:?}", outcomes[0].faults);
    outcomes.into_iter().next().unwrap().trees
}

/// A scene small enough to list, of a shape that depends on the seed; two of three have many ties, and a row may end in −∞.
fn small_scene(seed: u64, requests: usize, conditional: bool) -> Scene {
    let mut mix = Mix::new(seed ^ 0xABCD);
    let (depth, width) = (1 + mix.below(4) as u32, 1 + mix.below(4) as u32);
    let budget = 1 + mix.below(40) as u32;
    let levels = [0, 2, 5][mix.below(3) as usize];
    let mut scene = scene(seed, requests, limits(budget, depth, width), conditional, levels);
    for row in scene.players.iter_mut().flat_map(|p| &mut p.rows) {
        if mix.below(8) == 0 {
            let keep = mix.below(u64::from(width) + 1) as usize;
            row[keep..].iter_mut().for_each(|c| c.logp = f32::NEG_INFINITY);
        }
    }
    scene
}

fn brute(player: &Player, scene: &Scene) -> Vec<Prefix> {
    let Limits { budget, depth, width, .. } = scene.limits;
    // A tree of `budget` nodes is no deeper than that.
    let mut all = prefixes(player, scene.conditional, depth.min(budget) as usize, width as usize);
    all.sort_by(order);
    all.truncate(budget as usize);
    all
}

#[test]
fn best_first_equals_brute_force_on_ten_thousand_lattices() {
    let mut ties = 0;
    for seed in 0..10_000 {
        let scene = small_scene(seed, 1, false);
        let expected = brute(&scene.players[0], &scene);
        ties += usize::from(expected.windows(2).any(|w| w[0].1 == w[1].1));
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), expected, "seed {seed}");
    }
    assert!(ties > 3000, "the tie rule was hardly met: {ties}");
}

/// The tie rule matters: with ties broken the other way the expectation of the test above would not hold.
#[test]
fn a_wrong_tie_rule_is_noticed() {
    let wrong = |a: &Prefix, b: &Prefix| b.1.total_cmp(&a.1).then_with(|| b.0.cmp(&a.0));
    let differs = (0..300).any(|seed| {
        let scene = small_scene(seed, 1, false);
        let mut all = brute(&scene.players[0], &scene);
        all.sort_by(wrong);
        as_prefixes(&trees("best-first", &json!({}), &scene)[0]) != all
    });
    assert!(differs);
}

#[test]
fn on_a_conditional_draft_the_tree_is_exact_whatever_the_beam() {
    for seed in 0..1500 {
        let scene = small_scene(seed, 2, true);
        for beam in [1, 3, 1000] {
            let trees = trees("best-first", &json!({ "beam": beam }), &scene);
            for (tree, player) in trees.iter().zip(&scene.players) {
                assert_eq!(as_prefixes(tree), brute(player, &scene), "seed {seed}, beam {beam}");
            }
        }
    }
}

#[test]
fn batch_wide_best_first_takes_the_globally_best_nodes() {
    for seed in 0..1500 {
        for conditional in [false, true] {
            let scene = small_scene(seed, 3, conditional);
            let mean = 1 + seed as u32 % scene.limits.budget;
            // Each request's own order, merged: best head first, ties to the lower request, nobody above the cap.
            let heads: Vec<Vec<Prefix>> = scene.players.iter().map(|p| brute(p, &scene)).collect();
            let mut taken = [0usize; 3];
            for _ in 0..mean * 3 {
                let head = |r: &usize| heads[*r].get(taken[*r]).map(|p| p.1);
                let best = (0..3)
                    .filter(|r| head(r).is_some())
                    .max_by(|a, b| head(a).unwrap().total_cmp(&head(b).unwrap()).then(b.cmp(a)));
                let Some(best) = best else { break };
                taken[best] += 1;
            }
            let trees = trees("best-first", &json!({ "scope": "batch", "mean": mean }), &scene);
            for r in 0..3 {
                assert_eq!(as_prefixes(&trees[r]), heads[r][..taken[r]], "seed {seed}, request {r}");
            }
        }
    }
}

#[test]
fn spine_first_is_the_spine_and_then_the_best_of_the_rest() {
    for seed in 0..3000 {
        for conditional in [false, true] {
            let scene = small_scene(seed, 1, conditional);
            let Limits { budget, depth, width, .. } = scene.limits;
            let mut rest = prefixes(&scene.players[0], conditional, depth.min(budget) as usize, width as usize);
            rest.sort_by(order);
            let mut expected: Vec<Prefix> = rest.iter().filter(|p| p.0.iter().all(|&r| r == 0)).cloned().collect();
            expected.sort_by_key(|p| p.0.len());
            expected.truncate(budget as usize);
            // Best-first over what is left: the best prefix whose parent is in the tree, again and again.
            while expected.len() < budget as usize {
                let inside = |path: &[u32]| path.is_empty() || expected.iter().any(|p| p.0 == path);
                let next = rest.iter().find(|p| !inside(&p.0) && inside(&p.0[..p.0.len() - 1]));
                let Some(next) = next.cloned() else { break };
                expected.push(next);
            }
            let tree = &trees("spine-first", &json!({ "beam": 2 }), &scene)[0];
            assert_eq!(as_prefixes(tree), expected, "seed {seed}");
        }
    }
}

/// Set inclusion: with a budget of at least the depth, the spine-first tree holds the chain, so whatever the truth is it
/// accepts at least as many tokens at every position.
#[test]
fn spine_first_contains_the_chain() {
    for seed in 0..500 {
        let mut scene = small_scene(seed, 2, false);
        scene.limits.budget = scene.limits.budget.max(scene.limits.depth);
        let chain = trees("chain", &json!({}), &scene);
        let spine = trees("spine-first", &json!({}), &scene);
        for (chain, spine) in chain.iter().zip(&spine) {
            let spine = as_prefixes(spine);
            assert!(as_prefixes(chain).iter().all(|p| spine.contains(p)), "seed {seed}");
        }
    }
    // Best-first has no such promise; if it had, the test above would say nothing.
    let misses = (0..500).any(|seed| {
        let mut scene = small_scene(seed, 1, false);
        scene.limits.budget = scene.limits.budget.max(scene.limits.depth);
        let best = as_prefixes(&trees("best-first", &json!({}), &scene)[0]);
        as_prefixes(&trees("chain", &json!({}), &scene)[0]).iter().any(|p| !best.contains(p))
    });
    assert!(misses);
}

/// Public fault 9: a tree of width 1 equals the chain bit for bit. (The conformance suite asks it of every policy; here
/// the whole chain is asked for.)
#[test]
fn fault_09_width_one_is_the_whole_chain() {
    let kinds = [
        ("best-first", json!({})),
        ("spine-first", json!({})),
        ("top-k", json!({ "width": 1 })),
        ("top-k", json!({ "widths": [1, 1, 1, 1, 1, 1, 1] })),
        ("sequoia", json!({ "acceptance": [0.7] })),
        ("opt-tree", json!({ "delta": 0.0 })),
        ("spec-exec", json!({})),
        ("talon", json!({})),
    ];
    for seed in 0..50 {
        for conditional in [false, true] {
            let scene = scene(seed, 2, limits(9, 7, 1), conditional, 0);
            let chain = trees("chain", &json!({}), &scene);
            assert_eq!(chain[0].nodes(), 7);
            for (kind, params) in &kinds {
                assert_eq!(trees(kind, params, &scene), chain, "{kind}, seed {seed}");
            }
        }
    }
}

/// Best-first by its definition: of all candidates whose parent is in the tree, the best by the exact order, again and
/// again. Other than brute force it also says what happens when rounding lifts a log-probability above 0.
fn greedy(scene: &Scene) -> Vec<Prefix> {
    let rows = &scene.players[0].rows;
    let child = |path: &[u32], score: f64, rank: u32| {
        let c = rows.get(path.len())?.get(rank as usize).filter(|c| c.logp > f32::NEG_INFINITY)?;
        Some(([path, &[rank]].concat(), score + f64::from(c.logp)))
    };
    let mut frontier: Vec<(Prefix, f64)> = child(&[], 0.0, 0).map(|p| (p, 0.0)).into_iter().collect();
    let mut tree: Vec<Prefix> = Vec::new();
    while tree.len() < scene.limits.budget as usize && !frontier.is_empty() {
        let best = (0..frontier.len()).min_by(|&a, &b| order(&frontier[a].0, &frontier[b].0)).unwrap();
        let ((path, score), above) = frontier.swap_remove(best);
        let (last, parent) = path.split_last().unwrap();
        frontier.extend(child(parent, above, last + 1).map(|p| (p, above)));
        frontier.extend(child(&path, score, 0).map(|p| (p, score)));
        tree.push((path, score));
    }
    tree
}

/// Rows of very different scales: adding a large log-probability rounds away a difference between two prefixes, and their
/// children tie though they do not. The rank tuple decides then, not the parents' order.
#[test]
fn sums_that_rounding_makes_equal_follow_the_tie_rule() {
    let mut rounded = 0;
    for seed in 0..3000 {
        let mut scene = small_scene(seed, 1, false);
        let mut mix = Mix::new(seed ^ 0x5CA1E);
        for row in &mut scene.players[0].rows {
            let scale = [1.0, 2f32.powi(-40), 2f32.powi(-70)][mix.below(3) as usize];
            row.iter_mut().for_each(|c| c.logp *= scale);
        }
        let expected = greedy(&scene);
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), expected, "seed {seed}");
        let score = |path: &[u32]| expected.iter().find(|p| p.0 == path).map_or(0.0, |p| p.1);
        let parent = |p: &Prefix| score(&p.0[..p.0.len() - 1]);
        rounded += usize::from(expected.windows(2).any(|w| {
            w[0].0.len() == w[1].0.len()
                && w[0].1 == w[1].1
                && parent(&w[0]) < parent(&w[1])
                && w[0].0.last() == w[1].0.last()
        }));
    }
    assert!(rounded > 20, "no tie of that kind came up: {rounded}");
}

/// Trees of full size out of rows in which many candidates tie, or differ by less than the queue's keys can tell: the order
/// is the exact one.
#[test]
fn ties_and_near_ties_at_full_size() {
    let (mut ties, mut near) = (0, 0);
    for seed in 0..60 {
        let levels = [1, 2, 3, 6, 20, 0][seed as usize % 6];
        let mut scene = scene(seed, 1, limits(64, 7, 64), false, levels);
        if seed >= 30 {
            for row in &mut scene.players[0].rows[1..] {
                row.iter_mut().for_each(|c| c.logp *= 2f32.powi(-46));
            }
        }
        let expected = greedy(&scene);
        assert_eq!(expected.len(), 64, "seed {seed}");
        for (a, b) in expected.iter().zip(&expected[1..]) {
            ties += usize::from(a.1 == b.1);
            near += usize::from(a.1 > b.1 && a.1 - b.1 < 1e-12);
        }
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), expected, "seed {seed}");
    }
    assert!(ties > 300 && near > 100, "{ties} ties, {near} near ones: too few to say anything");
}

/// A log-probability that rounding lifts above 0 is no fault: a child may then come right behind its parent.
#[test]
fn probabilities_above_one_by_rounding_are_served() {
    for seed in 0..1000 {
        let mut scene = small_scene(seed, 1, false);
        scene.players[0].rows.iter_mut().filter(|r| r[0].logp > -0.4).for_each(|r| r[0].logp = 6e-8);
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), greedy(&scene), "seed {seed}");
        for (kind, params) in [("top-k", json!({ "width": 3 })), ("opt-tree", json!({})), ("spec-exec", json!({}))] {
            assert_eq!(trees(kind, &params, &scene)[0].nodes() > 0, !greedy(&scene).is_empty(), "{kind}, seed {seed}");
        }
    }
}

/// Deeper than any block: the fast form hands over to the plain heap.
#[test]
fn deep_drafts_are_served() {
    for depth in [31, 32, 33, 40] {
        let scene = scene(3, 1, limits(90, depth, 5), false, 3);
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), greedy(&scene), "depth {depth}");
    }
    for seed in 0..30 {
        let scene = scene(seed, 1, limits(300, 15, 64), false, [0, 6][seed as usize % 2]);
        assert_eq!(as_prefixes(&trees("best-first", &json!({}), &scene)[0]), greedy(&scene), "seed {seed}");
    }
}

#[test]
fn minus_infinity_is_never_placed_and_ends_quietly() {
    // Public fault 5: a row with two finite entries and −∞ behind them.
    let mut scene = scene(1, 1, limits(64, 3, 4), false, 0);
    for row in &mut scene.players[0].rows {
        row[2..].iter_mut().for_each(|c| c.logp = f32::NEG_INFINITY);
    }
    let tree = &trees("best-first", &json!({}), &scene)[0];
    assert_eq!(tree.nodes(), 2 + 4 + 8);
    assert!(tree.scores().iter().all(|s| s.is_finite()));
}
