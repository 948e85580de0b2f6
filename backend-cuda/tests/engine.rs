//! Whole runs on the device against the CPU engine.

mod pairs;

use pairs::alone::Alone;
use pairs::{KIMI, QWEN, WINDOW, decode, engine, plain_on_cpu, policy, requests, respond};
use serde_json::json;
use treeline_core::testing::Shape;
use treeline_core::{
    Ask, DraftView, Engine, Forest, Grow, Law, Limits, Needs, NodeRef, Program, ProgramBudget, Round, Sampling, Tree,
    TreePolicy,
};
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::testing::gpus;

/// Policies of every device program, with their parameters and budgets.
fn policies(engine: &impl Engine) -> Vec<(String, u32, Box<dyn TreePolicy>)> {
    [
        ("chain", json!({}), 7),
        ("chain", json!({}), 3),
        ("best-first", json!({}), 16),
        ("best-first", json!({}), 64),
        ("best-first", json!({ "scope": "batch", "mean": 6 }), 20),
        ("spine-first", json!({}), 16),
        ("top-k", json!({ "widths": [3, 2, 1] }), 9),
        ("sequoia", json!({ "acceptance": [0.6, 0.2, 0.1] }), 12),
    ]
    .into_iter()
    .map(|(kind, params, budget)| {
        let policy = policy(kind, &params, budget, engine);
        (format!("{kind} {params} {budget}"), budget, policy)
    })
    .collect()
}

/// Greedy text under a policy of each sort equals the CPU engine's plain decoding, in batches, with ragged ends.
#[test]
fn greedy_text_equals_the_cpu_engines() {
    for gpu in gpus() {
        for names in [QWEN, KIMI, WINDOW] {
            let pair = names.on(&gpu, Dtype::F32);
            let requests = requests(4, 14, Sampling::GREEDY);
            let want = plain_on_cpu(&names.on_cpu(), &requests, &Law::Greedy);
            let mut engine = engine(&pair, 3);
            let got = decode(&mut engine, &mut Shape::chain(0), &requests, &Law::Greedy, 0);
            assert_eq!(got, want, "{names:?}: plain");
            for (kind, budget) in [("chain", 7), ("best-first", 16)] {
                let mut policy = policy(kind, &json!({}), budget, &engine);
                let got = decode(&mut engine, &mut *policy, &requests, &Law::Greedy, budget);
                assert_eq!(got, want, "{names:?}: {kind}");
            }
            assert_eq!(engine.free(), 3);
        }
    }
}

/// What a run did: tokens, and every round's trees.
type Course = (Vec<Vec<u32>>, Vec<Vec<Tree>>);

fn course(engine: &mut impl Engine, policy: &mut dyn TreePolicy, law: &Law<'_>, budget: u32, heat: f32) -> Course {
    let requests = requests(4, 12, Sampling::at(heat));
    let mut trees = Vec::new();
    let responses = respond(engine, policy, &requests, law, budget, &mut |view| {
        trees.push(view.forest.trees().to_vec());
    });
    (responses.into_iter().map(|r| r.tokens).collect(), trees)
}

/// A device round and a staged one give the same trees and tokens, whatever the program, the law, and the batch.
#[test]
fn fused_and_staged_rounds_are_the_same() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        for slots in [1, 3] {
            let mut engine = engine(&pair, slots);
            for (name, budget, mut policy) in policies(&engine) {
                let before = engine.device_rounds();
                let fused = course(&mut engine, &mut *policy, &Law::Greedy, budget, 0.0);
                assert!(engine.device_rounds() > before, "{name}: nothing ran on the device");
                let between = engine.device_rounds();
                let staged = course(&mut engine, &mut Alone(&mut *policy), &Law::Greedy, budget, 0.0);
                assert_eq!(engine.device_rounds(), between);
                assert_eq!(fused.0, staged.0, "{name}: tokens");
                let differ = fused.1.iter().zip(&staged.1).position(|(a, b)| a != b);
                assert_eq!(differ, None, "{name}: a round with other trees");
                assert_eq!(fused.1.len(), staged.1.len(), "{name}: rounds");
            }
            let law = Law::SampleMatch { seed: 11 };
            let mut policy = policy("best-first", &json!({}), 16, &engine);
            let fused = course(&mut engine, &mut *policy, &law, 16, 0.8);
            assert!(fused == course(&mut engine, &mut Alone(&mut *policy), &law, 16, 0.8), "sampled");
        }
    }
}

/// A program without a staged form: on the host it grows nothing.
struct Published(Program);

impl TreePolicy for Published {
    fn kind(&self) -> &str {
        "published"
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth, width: limits.width, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        ask.extend(round.caps.iter().map(|_| Ask { depth: 0, width: 0, draw: round.draw }));
    }

    fn grow(&mut self, _: &Round<'_>, _: &dyn DraftView, _: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        Grow::Done
    }

    fn program(&self) -> Option<Program> {
        Some(self.0.clone())
    }
}

/// Programs that no policy of the registry publishes: by slot, by threshold (whose rows are counted on the way), and by level.
/// Their trees keep the text, and the limits that they name.
#[test]
fn every_program_keeps_the_text() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        let requests = requests(3, 10, Sampling::GREEDY);
        let want = plain_on_cpu(&QWEN.on_cpu(), &requests, &Law::Greedy);
        let mut engine = engine(&pair, 2);
        let best = |budget| Program::BestFirst { spine: 0, budget };
        for program in [
            best(ProgramBudget::PerSlot(vec![2, 11])),
            best(ProgramBudget::Threshold(0.05)),
            Program::TopK { width: 3, depth: 4 },
        ] {
            let before = engine.device_rounds();
            let mut rows = Vec::new();
            let got = respond(&mut engine, &mut Published(program.clone()), &requests, &Law::Greedy, 20, &mut |view| {
                for (entry, tree) in view.log.entries.iter().zip(view.forest.trees()) {
                    assert_eq!(entry.rows, tree.rows());
                    rows.push((entry.slot, tree.nodes(), tree.scores().last().copied().unwrap_or(0.0)));
                }
            });
            assert!(engine.device_rounds() > before, "{program:?}: nothing ran on the device");
            let tokens: Vec<Vec<u32>> = got.into_iter().map(|r| r.tokens).collect();
            assert_eq!(tokens, want, "{program:?}");
            for (slot, nodes, worst) in rows {
                match &program {
                    Program::BestFirst { budget: ProgramBudget::PerSlot(most), .. } => {
                        assert!(nodes <= most[slot as usize]);
                    }
                    Program::BestFirst { budget: ProgramBudget::Threshold(least), .. } => {
                        assert!(worst.exp() >= *least * 0.999, "{worst}");
                    }
                    _ => assert!(nodes <= 20),
                }
            }
        }
    }
}

/// At a temperature, with and without filters, the tokens are the CPU engine's: the same numbers from the same stream.
#[test]
fn sampled_text_equals_the_cpu_engines() {
    for gpu in gpus() {
        let pair = KIMI.on(&gpu, Dtype::F32);
        let mut engine = engine(&pair, 3);
        let law = Law::SampleMatch { seed: 3 };
        let plain = Sampling::at(0.9);
        for sampling in [plain, Sampling { top_k: 5, ..plain }, Sampling { top_p: 0.8, ..plain }] {
            let requests = requests(4, 12, sampling);
            let want = plain_on_cpu(&KIMI.on_cpu(), &requests, &law);
            let mut policy = policy("best-first", &json!({}), 12, &engine);
            assert_eq!(decode(&mut engine, &mut *policy, &requests, &law, 12), want, "{sampling:?}");
        }
    }
}

/// Laws of drawn candidates are judged from the device's logits and distributions: with the seed of a CPU run they give its
/// tokens.
#[test]
fn drawn_candidates_give_the_cpu_engines_text() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        for law in [Law::Residual { replace: true, seed: 5 }, Law::Traversal { seed: 5 }] {
            let requests = requests(3, 10, Sampling::at(0.9));
            let mut on_cpu = QWEN.on_cpu().engine(pairs::cpu_settings(3)).unwrap();
            let mut policy = policy("chain", &json!({}), 5, &on_cpu);
            let want = decode(&mut on_cpu, &mut *policy, &requests, &law, 5);
            let got = decode(&mut engine(&pair, 3), &mut *policy, &requests, &law, 5);
            assert_eq!(got, want, "{}", law.kind());
        }
    }
}

/// Under a forced law τ is the trace's, exactly, staged and on the device.
#[test]
fn forced_acceptance_is_exact() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        let requests = requests(3, 16, Sampling::GREEDY);
        let truth = pairs::Script::of(&plain_on_cpu(&QWEN.on_cpu(), &requests, &Law::Greedy), &requests);
        let law = Law::Forced(&truth);
        let mut engine = engine(&pair, 2);
        let mut policy = policy("best-first", &json!({}), 16, &engine);
        let (fused, a) = pairs::accepted(&mut engine, &mut *policy, &requests, &law, 16);
        let (staged, b) = pairs::accepted(&mut engine, &mut Alone(&mut *policy), &requests, &law, 16);
        let (greedy, c) = pairs::accepted(&mut engine, &mut *policy, &requests, &Law::Greedy, 16);
        assert_eq!((&fused, &a), (&staged, &b));
        assert_eq!((&fused, &a), (&greedy, &c), "the trace is the greedy text");
        assert!(a.iter().sum::<u32>() > 0, "nothing was accepted");
    }
}

/// Engines of one pair move with it from thread to thread.
#[test]
fn pairs_are_shared_between_threads() {
    fn share<T: Send + Sync>() {}
    share::<treeline_cuda::engine::CudaPair>();
    share::<Gpu>();
}
