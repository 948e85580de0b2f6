//! Forced acceptance: every round's trees and accepted lengths are those that the host computes from the round's lattice
//! and the trace, exactly.

use crate::pairs::alone::Alone;
use crate::pairs::{Script, policy};
use crate::subject::{Subject, subjects};
use serde_json::{Value, json};
use treeline_core::round::caps;
use treeline_core::{
    Caps, Engine, Forest, Law, Limits, Request, Round, RoundView, RunSetup, Sampling, TreePolicy, Truth, run,
};
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::CudaEngine;

/// Counts of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    rounds: usize,
    steps: u64,
    accepted: u64,
    longest: u32,
    tokens: u64,
}

/// The host's side of a run: its own policy over the same drafts, and a walk along the truth.
struct Host<'t> {
    truth: &'t dyn Truth,
    policy: Box<dyn TreePolicy>,
    limits: Limits,
    context: u32,
    sums: Sums,
}

impl Host<'_> {
    fn check(&mut self, name: &str, view: &RoundView<'_>) {
        let all: Vec<Caps> = view.batch.iter().map(|seq| caps(seq, &self.limits, self.context)).collect();
        let mut forest = Forest::default();
        forest.reset(view.batch, &all);
        let draw = treeline_core::Draw::Ranked;
        let round =
            Round { index: view.log.round, batch: view.batch, caps: &all, limits: &self.limits, draw, cost: None };
        self.policy.ask(&round, &mut Vec::new());
        self.policy.grow(&round, view.drafts.unwrap(), &mut forest, &mut Vec::new());
        for (at, (seq, entry)) in view.batch.iter().zip(&view.log.entries).enumerate() {
            let what = || format!("{name}: round {}, request {}", view.log.round, seq.request);
            let tree = forest.tree(at);
            assert_eq!(view.forest.tree(at), tree, "{}: another tree", what());
            let (mut node, mut accepted, mut emitted) = (0, 0, Vec::new());
            while let Some(token) = self.truth.token(seq.request, seq.start, accepted + 1) {
                emitted.push(token);
                let Some(child) = tree.child(node, token) else { break };
                (node, accepted) = (child, accepted + 1);
            }
            let step = entry.result.as_ref().unwrap_or_else(|e| panic!("{}: {e}", what()));
            assert_eq!(step.accepted(), accepted, "{}: accepted", what());
            assert_eq!(step.emitted, emitted, "{}: emitted", what());
            assert_eq!((entry.rows, entry.depth), (tree.rows(), tree.depth()));
            let sums = &mut self.sums;
            sums.steps += 1;
            sums.accepted += u64::from(accepted);
            sums.tokens += emitted.len() as u64;
            sums.longest = sums.longest.max(accepted);
        }
        self.sums.rounds += 1;
    }
}

/// Policy, parameters, budgets of the mini pair, and one budget of the fixture.
fn cases() -> Vec<(&'static str, Value, Vec<u32>, u32)> {
    let edges = vec![0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256];
    vec![
        ("chain", json!({}), vec![0, 1, 3, 7, 64], 7),
        ("best-first", json!({}), edges, 16),
        ("best-first", json!({ "scope": "batch", "mean": 9 }), vec![16, 64], 20),
        ("spine-first", json!({}), vec![7, 24, 256], 16),
        ("top-k", json!({ "widths": [4, 3, 2, 1] }), vec![10, 64], 9),
        ("sequoia", json!({ "acceptance": [0.6, 0.2, 0.1] }), vec![12, 100], 12),
    ]
}

fn follow(
    subject: &Subject,
    engine: &mut CudaEngine,
    requests: &[Request],
    truth: &Script,
    case: (&str, &Value, u32),
    staged: bool,
) -> Sums {
    let (kind, params, budget) = case;
    let info = engine.info();
    let limits = Limits { budget, depth: info.depth, width: info.width, concurrency: info.slots };
    let mut own = policy(kind, params, budget, engine);
    let host_policy = policy(kind, params, budget, engine);
    let mut host = Host { truth, policy: host_policy, limits, context: info.context, sums: Sums::default() };
    let law = Law::Forced(truth);
    let setup = RunSetup { budget, concurrency: info.slots, law: &law, cost: None };
    let name = format!("{}: {kind} {params} {budget}, {}", subject.name(), if staged { "staged" } else { "fused" });
    let mut sink = |view: &RoundView<'_>| host.check(&name, view);
    let responses = match staged {
        true => run(engine, &mut Alone(&mut *own), requests, &setup, &mut sink),
        false => run(engine, &mut *own, requests, &setup, &mut sink),
    };
    for (request, response) in requests.iter().zip(responses.unwrap()) {
        assert!(response.end.is_ok(), "{name}: {:?}", response.end);
        let want: Vec<u32> =
            (0..request.max_new).map_while(|i| truth.token(request.id, request.prompt.len() as u32, i)).collect();
        assert_eq!(response.tokens, want, "{name}: request {}", request.id);
    }
    host.sums
}

/// The truth is what the CPU engine sampled at T = 0.7, so that it has neither loops nor anything of the device.
#[test]
fn forced_acceptance_is_that_of_lattice_and_trace() {
    for subject in subjects(Dtype::Bf16) {
        let requests = subject.requests(subject.either(10, 3), subject.either(48, 10), Sampling::at(0.7));
        let law = Law::SampleMatch { seed: 21 };
        let truth = Script::of(&subject.plain(&requests, &law), &requests);
        let mut engine = subject.engine(subject.either(4, 2), subject.either(256, 64));
        let mut best = Vec::new();
        for (kind, params, budgets, tiny) in cases() {
            for budget in subject.either(budgets, vec![tiny]) {
                let before = engine.device_rounds();
                let fused = follow(&subject, &mut engine, &requests, &truth, (kind, &params, budget), false);
                let on_device = engine.device_rounds() - before;
                assert!(budget == 0 || on_device > 0, "{kind} {budget}: nothing ran on the device");
                let staged = follow(&subject, &mut engine, &requests, &truth, (kind, &params, budget), true);
                assert_eq!(engine.device_rounds(), before + on_device);
                assert_eq!(fused.tokens, staged.tokens);
                if (kind, params.as_object().is_some_and(|p| p.is_empty())) == ("best-first", true) {
                    best.push((budget, fused.tokens as f64 / fused.steps as f64));
                }
                println!(
                    "{}: {kind} {params} {budget}: {} rounds ({on_device} on the device), tau {:.4} fused, {:.4} staged, \
                     at most {} accepted",
                    subject.name(),
                    fused.rounds,
                    fused.tokens as f64 / fused.steps as f64,
                    staged.tokens as f64 / staged.steps as f64,
                    fused.longest
                );
            }
        }
        // The truth is not a foregone conclusion: larger trees hold more of it.
        if subject.real() {
            assert_eq!(best[0].1, 1.0);
            assert!(best[best.len() - 1].1 > 1.3 * best[4].1, "{best:?}");
        }
    }
}
