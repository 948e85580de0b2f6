//! Tree programs on the device give the trees of the CPU's policies, bit for bit.

mod tree_scene;

use serde_json::{Value, json};
use tree_scene::{Kind, Scene, assert_same, compare};
use treeline_core::{Caps, Program, ProgramBudget, TreePolicy};
use treeline_cuda::device::Gpu;
use treeline_cuda::ops::tree::{Search, TreeOp, TreeSizes};
use treeline_cuda::testing::{Numbers, gpus};
use treeline_policies::Registry;

const SMALL: TreeSizes = TreeSizes { seqs: 8, levels: 3, width: 5, nodes: 9 };
const BLOCK8: TreeSizes = TreeSizes { seqs: 8, levels: 7, width: 16, nodes: 16 };
const BLOCK16: TreeSizes = TreeSizes { seqs: 4, levels: 15, width: 64, nodes: 64 };
const WIDE: TreeSizes = TreeSizes { seqs: 2, levels: 7, width: 300, nodes: 256 };
const KINDS: [Kind; 4] = [Kind::Smooth, Kind::Coarse, Kind::Rounding, Kind::Positive];

fn policy(kind: &str, params: &Value, sizes: TreeSizes) -> Box<dyn TreePolicy> {
    let scene = Scene::new(&mut Numbers(0), sizes, Kind::Smooth, false, false);
    Registry::builtin().build(kind, params, &scene.limits()).unwrap()
}

/// `rounds` random batches of each kind under one program.
fn check(gpu: &Gpu, kind: &str, params: &Value, program: Program, sizes: TreeSizes, search: Search, rounds: u64) {
    let mut policy = policy(kind, params, sizes);
    if kind != "top-k" || params.get("widths").is_some() {
        assert_eq!(policy.program().as_ref(), Some(&program), "{kind} {params}");
    }
    let op = TreeOp::with_search(gpu, &program, sizes, search).unwrap();
    let mut n = Numbers(rounds + sizes.nodes as u64);
    for round in 0..rounds {
        let what = format!("{kind} {params} {search:?} round {round} on {}", gpu.info().name);
        let scene = Scene::new(&mut n, sizes, KINDS[round as usize % 4], round % 3 > 0, round % 5 == 4);
        compare(gpu, &scene, &mut *policy, &program, &op, &what);
    }
}

fn best(spine: u32, budget: ProgramBudget) -> Program {
    Program::BestFirst { spine, budget }
}

#[test]
fn best_first_trees_are_the_policys() {
    for gpu in gpus() {
        let fixed = |s: TreeSizes| best(0, ProgramBudget::Fixed(s.nodes as u32));
        let deep = TreeSizes { levels: 20, ..BLOCK8 };
        for search in [Search::Queue, Search::Cut] {
            for (sizes, rounds) in [(SMALL, 80), (BLOCK8, 60), (BLOCK16, 24), (WIDE, 8), (deep, 8)] {
                check(&gpu, "best-first", &json!({}), fixed(sizes), sizes, search, rounds);
            }
        }
    }
}

#[test]
fn spine_first_trees_are_the_policys() {
    for gpu in gpus() {
        for spine in [1, 2, 7] {
            for search in [Search::Queue, Search::Cut] {
                let fixed = best(spine, ProgramBudget::Fixed(16));
                check(&gpu, "spine-first", &json!({ "spine": spine }), fixed, BLOCK8, search, 24);
            }
        }
    }
}

#[test]
fn one_budget_for_the_batch_is_split_as_the_policy_splits_it() {
    for gpu in gpus() {
        for (sizes, mean, rounds) in
            [(SMALL, 1, 40), (SMALL, 4, 60), (SMALL, 20, 8), (BLOCK8, 7, 40), (BLOCK16, 20, 12)]
        {
            let shared = best(0, ProgramBudget::Shared(mean));
            check(&gpu, "best-first", &json!({ "scope": "batch", "mean": mean }), shared, sizes, Search::Auto, rounds);
        }
    }
}

#[test]
fn chains_and_fixed_shapes_are_the_policys() {
    for gpu in gpus() {
        for sizes in [SMALL, BLOCK8, BLOCK16] {
            check(&gpu, "chain", &json!({}), Program::Chain, sizes, Search::Auto, 24);
            let widths = json!({ "widths": [3, 2, 1, 2] });
            let program = policy("top-k", &widths, sizes).program().unwrap();
            check(&gpu, "top-k", &widths, program, sizes, Search::Auto, 24);
        }
    }
}

/// Sequoia plans another shape for smaller caps, so its program stands for the whole budget alone.
#[test]
fn sequoias_shape_is_the_policys_at_full_caps() {
    for gpu in gpus() {
        let mut policy = policy("sequoia", &json!({ "acceptance": [0.6, 0.2, 0.1] }), BLOCK8);
        let program = policy.program().unwrap();
        let op = TreeOp::new(&gpu, &program, BLOCK8).unwrap();
        let mut n = Numbers(5);
        for round in 0..12 {
            let mut scene = Scene::new(&mut n, BLOCK8, KINDS[round % 4], round % 3 > 0, round % 5 == 4);
            scene.caps.fill(Caps { nodes: 16, depth: 7 });
            compare(&gpu, &scene, &mut *policy, &program, &op, &format!("sequoia, round {round}"));
        }
    }
}

#[test]
fn trees_by_levels_are_the_policys() {
    for gpu in gpus() {
        for (sizes, width, depth, rounds) in [
            (SMALL, 1, 3, 24),
            (SMALL, 3, 2, 40),
            (SMALL, 20, 3, 24),
            (BLOCK8, 4, 7, 40),
            (BLOCK8, 16, 5, 12),
            (BLOCK16, 8, 15, 8),
        ] {
            let program = Program::TopK { width, depth };
            let params = json!({ "width": width, "depth": depth });
            check(&gpu, "top-k", &params, program, sizes, Search::Auto, rounds);
        }
    }
}

/// Threshold trees are the best-first tree up to its last node that reaches the threshold (drafts of at most 0).
#[test]
fn threshold_trees_hold_every_prefix_that_reaches_it() {
    for gpu in gpus() {
        for threshold in [0.0, 0.02, 0.3, 1.0] {
            let program = best(0, ProgramBudget::Threshold(threshold));
            let op = TreeOp::new(&gpu, &program, BLOCK8).unwrap();
            let mut policy = policy("best-first", &json!({}), BLOCK8);
            let mut n = Numbers(3);
            for round in 0..12 {
                let scene = Scene::new(&mut n, BLOCK8, KINDS[round % 3], round % 2 == 1, false);
                let (mut forest, asks) = scene.host(&mut *policy);
                let nodes: Vec<u32> = scene.caps.iter().map(|c| c.nodes).collect();
                let levels: Vec<u32> = asks.iter().map(|a| a.depth).collect();
                for (s, (got, _)) in scene.device(&gpu, &op, &nodes, &levels).iter().enumerate() {
                    let scores = forest.tree(s).scores();
                    let rows =
                        scores.iter().skip(1).take_while(|&&x| threshold == 0.0 || x >= threshold.ln()).count() + 1;
                    forest.tree_mut(s).truncate(rows as u32);
                    assert_same(got, forest.tree(s), &format!("threshold {threshold}, round {round}, sequence {s}"));
                }
            }
        }
    }
}

/// A budget by slot is the sequence's limit; padded sequences have no row.
#[test]
fn budgets_by_slot_and_padding() {
    for gpu in gpus() {
        let budgets = vec![0, 1, 5, 16, 3, 9, 2, 16];
        let program = best(0, ProgramBudget::PerSlot(budgets.clone()));
        let op = TreeOp::new(&gpu, &program, BLOCK8).unwrap();
        let mut scene = Scene::new(&mut Numbers(11), BLOCK8, Kind::Smooth, false, false);
        for (cap, budget) in scene.caps.iter_mut().zip(&budgets) {
            cap.nodes = cap.nodes.min(*budget);
            cap.depth = if cap.nodes == 0 { 0 } else { cap.depth };
        }
        compare(&gpu, &scene, &mut *policy("best-first", &json!({}), BLOCK8), &program, &op, "by slot");
        let padded = [4, u32::MAX, 4, 4, 4, 4, u32::MAX, u32::MAX];
        let lattice = scene.upload(&gpu, &padded, &[7; 8]);
        let trees = treeline_cuda::ops::tree::Trees::new(&gpu, 8, 16).unwrap();
        op.run(&gpu, 8, &lattice.args(&trees)).unwrap();
        let rows: Vec<u32> = gpu.read(trees.ptrs().rows, 8).unwrap();
        assert_eq!(rows, [5, 0, 5, 5, 5, 5, 0, 0]);
    }
}

#[test]
fn programs_that_the_device_does_not_serve_are_refused() {
    for gpu in gpus() {
        let refused = |program: Program, sizes| TreeOp::new(&gpu, &program, sizes).unwrap_err().to_string();
        let bad = Program::Static { parents: vec![0, 2, 0], ranks: vec![0, 0, 1] };
        assert!(refused(bad, SMALL).contains("before its parent"));
        assert!(refused(Program::Chain, TreeSizes { nodes: 300, ..SMALL }).contains("program"));
        let long = Program::Static { parents: vec![0; 2000], ranks: vec![0; 2000] };
        assert!(refused(long, SMALL).contains("at most 1024"));
        assert!(refused(best(0, ProgramBudget::Threshold(f64::NAN)), SMALL).contains("no number"));
    }
}
