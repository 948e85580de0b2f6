//! Sequoia's table against exhaustive search, OPT-Tree and top-k against brute force, SpecExec and TALON by their rules.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use treeline_core::{Program, Tree};
use treeline_policies::Registry;
use treeline_policies::conformance::scene::{Mix, limits, row, scene};
use treeline_policies::conformance::stage::{Scene, play};
use treeline_policies::sequoia::Table;
use treeline_policies::shape::Shape;

fn trees(kind: &str, params: &Value, scene: &Scene) -> Vec<Tree> {
    let mut policy = Registry::builtin().build(kind, params, &scene.limits).unwrap();
    let outcome = play(policy.as_mut(), scene, 1).unwrap().remove(0);
    assert!(outcome.faults.iter().all(Option::is_none), "{:?}", outcome.faults);
    outcome.trees
}

/// Expected tokens of a fixed shape, bonus included: Σ over rows of the product of acceptances on the path.
fn value(shape: &Shape, p: &[f64]) -> f64 {
    let mut reach = vec![1.0];
    for node in 1..shape.rows() as usize {
        reach.push(reach[shape.parents()[node] as usize] * p[shape.ranks()[node] as usize]);
    }
    reach.iter().sum()
}

/// The best value of any ordered tree of `rows` rows, `levels` levels and branches `0..p.len()`: every shape is tried.
fn exhaustive(rows: usize, levels: usize, p: &[f64]) -> f64 {
    // All ways to give children of ranks b.. to a root that has `rows` rows left for them.
    fn children(left: usize, levels: usize, b: usize, p: &[f64]) -> f64 {
        if left == 0 {
            return 0.0;
        }
        if levels == 0 || b == p.len() {
            return f64::NEG_INFINITY;
        }
        (1..=left)
            .map(|size| p[b] * (1.0 + children(size - 1, levels - 1, 0, p)) + children(left - size, levels, b + 1, p))
            .fold(f64::NEG_INFINITY, f64::max)
    }
    1.0 + children(rows - 1, levels, 0, p)
}

#[test]
fn sequoia_equals_exhaustive_search() {
    let mut mix = Mix::new(7);
    for _ in 0..40 {
        let ranks = 1 + mix.below(3) as usize;
        let mut p: Vec<f64> = (0..ranks).map(|_| mix.unit() / ranks as f64).collect();
        p.sort_by(|a, b| b.total_cmp(a));
        for budget in 0..=8u32 {
            for depth in 0..=4u32 {
                let table = Table::new(&p, budget, depth);
                let best = (1..=budget as usize + 1)
                    .map(|rows| exhaustive(rows, depth as usize, &p))
                    .fold(f64::NEG_INFINITY, f64::max);
                let shape = table.shape(budget, depth);
                assert!((table.best(budget, depth).0 - best).abs() < 1e-12, "{p:?} B {budget} D {depth}");
                assert!((value(&shape, &p) - best).abs() < 1e-12, "{p:?} B {budget} D {depth}: {shape:?}");
                assert!(shape.nodes() <= budget && shape.depth() <= depth);
            }
        }
    }
}

/// The size counts the root in the paper: a budget of B nodes is a table of B + 1 rows, not B.
#[test]
fn sequoia_uses_the_whole_budget() {
    let shape = Table::new(&[0.5, 0.2], 6, 6).shape(6, 6);
    assert_eq!((shape.nodes(), shape.rows()), (6, 7));
}

#[test]
fn sequoia_cuts_its_shape_to_a_short_response() {
    let mut scene = scene(3, 2, limits(12, 6, 4), false, 0);
    scene.players[1].left = 3;
    let p = [0.6, 0.2, 0.1];
    let trees = trees("sequoia", &json!({ "acceptance": p }), &scene);
    let table = Table::new(&p, 12, 6);
    assert_eq!(trees[0].parents(), table.shape(12, 6).parents());
    assert_eq!(trees[1].parents(), table.shape(12, 2).parents(), "the best tree of two levels, not a cut one");
}

#[test]
fn static_widths_are_placed_level_by_level() {
    let shape = Shape::of_widths(&[2, 3, 1], 100);
    assert_eq!(shape.parents(), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(shape.ranks(), [0, 0, 1, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Shape::of_widths(&[2, 3, 1], 4).parents(), [0, 0, 0, 1, 1], "cut in level and rank order");
    for conditional in [false, true] {
        let tree = &trees("top-k", &json!({ "widths": [2, 3, 1] }), &scene(1, 1, limits(64, 5, 8), conditional, 0))[0];
        assert_eq!((tree.parents(), tree.ranks()), (shape.parents(), shape.ranks()));
    }
}

#[test]
fn programs_describe_the_same_trees() {
    let limits = limits(16, 7, 8);
    let program = |kind, params| Registry::builtin().build(kind, &params, &limits).unwrap().program();
    assert_eq!(program("chain", json!({})), Some(Program::Chain));
    assert_eq!(program("opt-tree", json!({})), None);
    for (kind, params) in [("top-k", json!({ "widths": [3, 2] })), ("sequoia", json!({ "acceptance": [0.5, 0.2] }))] {
        let Some(Program::Static { parents, ranks }) = program(kind, params.clone()) else { panic!("{kind}") };
        let tree = &trees(kind, &params, &scene(1, 1, limits, false, 0))[0];
        assert_eq!((tree.parents(), tree.ranks()), (&parents[..], &ranks[..]));
    }
}

/// The rank tuples of a tree.
fn paths(tree: &Tree) -> BTreeSet<Vec<u32>> {
    (1..tree.rows()).map(|n| tree.path(n).iter().map(|&n| tree.ranks()[n as usize]).collect()).collect()
}

/// All prefixes up to `depth` and `width` on a block draft, with their scores, best first by the exact order.
fn prefixes(scene: &Scene, depth: u32, width: u32) -> Vec<(Vec<u32>, f64)> {
    let mut all: Vec<(Vec<u32>, f64)> = Vec::new();
    let mut level = vec![(Vec::new(), 0.0)];
    for row in &scene.players[0].rows[..depth as usize] {
        let grow = |(path, score): &(Vec<u32>, f64)| {
            let extended = |(rank, c): (u32, &treeline_core::Candidate)| {
                ([path.as_slice(), &[rank]].concat(), score + f64::from(c.logp))
            };
            (0u32..).zip(row.iter().take(width as usize)).map(extended).collect::<Vec<_>>()
        };
        level = level.iter().flat_map(grow).collect();
        all.extend(level.iter().cloned());
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

/// With δ = 0 on a small draft, OPT-Tree is the n largest path weights of all prefixes.
#[test]
fn opt_tree_equals_brute_force() {
    for seed in 0..800 {
        for levels in [0, 3] {
            let scene = scene(seed, 1, limits(1 + seed as u32 % 12, 3, 3), false, levels);
            let budget = scene.limits.budget;
            let expected: BTreeSet<_> =
                prefixes(&scene, 3.min(budget), 3).into_iter().take(budget as usize).map(|p| p.0).collect();
            assert_eq!(paths(&trees("opt-tree", &json!({ "delta": 0.0 }), &scene)[0]), expected, "seed {seed}");
        }
    }
}

/// It stops with the first level that raises the sum of the n largest weights by less than δ.
#[test]
fn opt_tree_stops_when_a_level_gains_too_little() {
    let mut stopped = 0;
    for seed in 0..300 {
        let scene = scene(seed, 1, limits(6, 4, 3), false, 0);
        let gain_of = |depth| prefixes(&scene, depth, 3).iter().take(6).map(|p| p.1.exp()).sum::<f64>();
        let mut depth = 1;
        while depth < 4 {
            depth += 1;
            if gain_of(depth) - gain_of(depth - 1) < 0.3 {
                stopped += 1;
                break;
            }
        }
        let expected: BTreeSet<_> = prefixes(&scene, depth, 3).into_iter().take(6).map(|p| p.0).collect();
        assert_eq!(paths(&trees("opt-tree", &json!({ "delta": 0.3 }), &scene)[0]), expected, "seed {seed}");
    }
    assert!(stopped > 20 && stopped < 280, "{stopped}");
}

/// Literal EAGLE-2: k children of each of the k best of a level, then the best of everything.
#[test]
fn top_k_equals_a_literal_form() {
    for seed in 0..500 {
        for conditional in [false, true] {
            let scene = scene(seed, 1, limits(9, 4, 5), conditional, if seed % 2 == 0 { 3 } else { 0 });
            let k = 3;
            let order = |a: &(Vec<u32>, f64), b: &(Vec<u32>, f64)| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0));
            let mut frontier = vec![(Vec::new(), 0.0)];
            let mut pool = Vec::new();
            for row in &scene.players[0].rows {
                let mut level = Vec::new();
                for (path, score) in &frontier {
                    let scale = treeline_policies::conformance::stage::path_scale(path);
                    for (rank, c) in (0u32..).zip(row.iter().take(k)) {
                        let logp = if conditional { c.logp * scale } else { c.logp };
                        level.push(([path.as_slice(), &[rank]].concat(), score + f64::from(logp)));
                    }
                }
                level.sort_by(order);
                pool.extend(level.iter().cloned());
                level.truncate(k);
                frontier = level;
            }
            pool.sort_by(order);
            pool.truncate(9);
            let tree = &trees("top-k", &json!({ "width": k }), &scene)[0];
            let scores: Vec<f64> = tree.scores()[1..].to_vec();
            assert_eq!(scores, pool.iter().map(|p| p.1).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(paths(tree), pool.into_iter().map(|p| p.0).collect(), "seed {seed}");
        }
    }
}

/// A beam that is wider than the tree is best-first, and its pool does not grow as width to the power of depth: 64 ranks
/// over 7 levels would be 4·10¹² candidates.
#[test]
fn top_k_with_a_beam_of_any_width_is_best_first() {
    for seed in 0..200 {
        for conditional in [false, true] {
            let scene = scene(seed, 1, limits(9, 4, 5), conditional, if seed % 2 == 0 { 3 } else { 0 });
            for width in [9, 40, u32::MAX] {
                let wide = &trees("top-k", &json!({ "width": width }), &scene)[0];
                let best = &trees("best-first", &json!({}), &scene)[0];
                assert_eq!(wide, best, "seed {seed}, width {width}");
            }
        }
    }
    let deep = scene(1, 1, limits(8, 7, 64), false, 0);
    let wide = &trees("top-k", &json!({ "width": u32::MAX }), &deep)[0];
    assert_eq!(wide, &trees("best-first", &json!({}), &deep)[0]);
}

/// Without discount, with a wide beam and enough waves SpecExec finds the best-first tree; a discount prefers shallow nodes.
#[test]
fn spec_exec_discounts_depth() {
    let (mut shallower, mut cases) = (0, 0);
    for seed in 0..200 {
        for conditional in [false, true] {
            let scene = scene(seed, 1, limits(12, 5, 6), conditional, 0);
            let plain = &trees("spec-exec", &json!({ "decay": 1.0, "beam": 100 }), &scene)[0];
            let best = &trees("best-first", &json!({}), &scene)[0];
            assert_eq!(plain, best, "seed {seed}");
            let discounted = &trees("spec-exec", &json!({ "decay": 0.4, "beam": 100 }), &scene)[0];
            let mean = |t: &Tree| f64::from(t.depths().iter().sum::<u32>()) / f64::from(t.nodes());
            assert!(mean(discounted) <= mean(best) + 1e-12, "seed {seed}");
            shallower += usize::from(mean(discounted) < mean(best));
            cases += 1;
        }
    }
    assert!(shallower * 4 > cases, "the discount did nothing: {shallower} of {cases}");
}

#[test]
fn spec_exec_stops_after_its_waves() {
    let scene = scene(1, 1, limits(40, 6, 4), true, 0);
    let mut policy = Registry::builtin().build("spec-exec", &json!({ "waves": 2 }), &scene.limits).unwrap();
    let outcome = play(policy.as_mut(), &scene, 1).unwrap().remove(0);
    assert_eq!((outcome.waves, outcome.trees[0].depth()), (2, 2));
}

#[test]
fn talon_keeps_what_is_close_to_the_level_best() {
    let mu: f64 = 0.2;
    let mut cut = 0;
    for seed in 0..300 {
        let scene = scene(seed, 1, limits(30, 4, 6), false, 0);
        let tree = &trees("talon", &json!({ "width": 2, "mu": mu }), &scene)[0];
        assert!((1..tree.rows()).filter(|&n| tree.depths()[n as usize] == 1).count() == 2);
        let kept = paths(tree);
        for depth in 2..=tree.depth() as usize {
            let level: Vec<_> = prefixes(&scene, depth as u32, 6)
                .into_iter()
                .filter(|p| p.0.len() == depth && kept.contains(&p.0[..depth - 1]))
                .collect();
            let least = level[0].1 + mu.ln();
            let expected: Vec<_> = level.iter().filter(|p| p.1 >= least).map(|p| p.0.clone()).collect();
            let found = expected.iter().filter(|p| kept.contains(*p)).count();
            let here = kept.iter().filter(|p| p.len() == depth).count();
            assert_eq!(found, here, "seed {seed}: a node below the threshold");
            if tree.nodes() < 30 {
                assert_eq!(found, expected.len(), "seed {seed}: a node is missing though there is room");
                cut += usize::from(expected.len() < level.len());
            }
        }
    }
    assert!(cut > 50, "the threshold never mattered: {cut}");
}

#[test]
fn rows_of_the_suite_are_ranked_and_distinct() {
    let mut mix = Mix::new(5);
    for levels in [0, 4] {
        let row = row(&mut mix, 64, levels);
        assert_eq!(treeline_core::draft::check_row(&row, 1, true, true), Ok(()));
    }
}
