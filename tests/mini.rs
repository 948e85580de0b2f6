//! The mini pair, its prompts and every built-in policy, for tests over real models.

use crate::repo::{read, root};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use treeline_checkpoint::Tokenizer;
use treeline_core::{Engine, Law, Limits, Request, Response, RoundView, RunSetup, Sampling, TreePolicy, run};
use treeline_cpu::{CpuEngine, CpuPair, DrafterSource, EngineSettings, Model};
use treeline_policies::Registry;

/// Positions per request of every engine here.
pub const CONTEXT: u32 = 384;

/// Levels of the conditional drafters.
const LEVELS: u32 = 5;

/// Prompt files, taken in turn.
const FILES: [&str; 5] = ["humaneval", "gsm8k", "mtbench", "heldout-code", "heldout-prose"];

/// Where the mini pair lies.
pub fn models() -> PathBuf {
    root().join("experiments/models")
}

/// The target, loaded once.
pub fn target() -> Arc<Model> {
    static TARGET: OnceLock<Arc<Model>> = OnceLock::new();
    TARGET.get_or_init(|| Arc::new(Model::load(&models().join("mini-target")).unwrap())).clone()
}

/// Who drafts in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drafter {
    Dflash,
    Autoregressive,
    NGram,
}

/// An engine over the shared target.
pub fn engine(drafter: Drafter, slots: u32) -> CpuEngine {
    let source = match drafter {
        Drafter::Dflash => DrafterSource::Dflash { dir: models().join("mini-dflash") },
        Drafter::Autoregressive => DrafterSource::Autoregressive { dir: models().join("mini-ar"), depth: LEVELS },
        Drafter::NGram => DrafterSource::NGram { order: 4, depth: LEVELS },
    };
    let pair = CpuPair::with_target(target(), &source).unwrap();
    pair.engine(EngineSettings { slots, context: CONTEXT, chunk: 64 }).unwrap()
}

/// The first `n` prompts, one file after the other in turn, as requests for `max_new` tokens.
pub fn requests(n: usize, max_new: u32, temperature: f32) -> Vec<Request> {
    let tokenizer = Tokenizer::open(&models().join("mini-target")).unwrap();
    let files: Vec<Vec<String>> = FILES
        .iter()
        .map(|f| read(&root().join(format!("experiments/prompts/{f}.jsonl"))).lines().map(str::to_owned).collect())
        .collect();
    let request = |i: usize| {
        let line: Value = serde_json::from_str(&files[i % FILES.len()][i / FILES.len()]).unwrap();
        let prompt = tokenizer.encode(line["text"].as_str().unwrap(), true).unwrap();
        Request { id: i as u64, prompt, max_new, eos: vec![], sampling: Sampling::at(temperature) }
    };
    (0..n).map(request).collect()
}

/// A policy of the registry with parameters, a budget and the drafter that it is run with.
#[derive(Debug, Clone)]
pub struct Case {
    pub kind: &'static str,
    pub params: Value,
    pub budget: u32,
    pub drafter: Drafter,
}

/// Every built-in policy, typical parameters, over drafters of each kind.
pub fn cases() -> Vec<Case> {
    let registry = Registry::builtin();
    let mut cases: Vec<Case> = registry
        .kinds()
        .map(|kind| {
            let budget = match kind {
                "chain" => 7,
                "opt-tree" | "talon" => 12,
                "best-first" | "adaptive" | "cost-aware" | "batch-wide" => 24,
                _ => 16,
            };
            let drafter = match kind {
                "opt-tree" | "spec-exec" | "talon" => Drafter::Autoregressive,
                _ => Drafter::Dflash,
            };
            Case { kind, params: registry.example(kind).unwrap(), budget, drafter }
        })
        .collect();
    let best_first = registry.example("best-first").unwrap();
    cases.push(Case { kind: "best-first", params: best_first, budget: 12, drafter: Drafter::NGram });
    cases.push(Case { kind: "chain", params: json!({}), budget: 4, drafter: Drafter::Autoregressive });
    cases
}

/// The policy of a case for an engine.
pub fn policy(case: &Case, engine: &impl Engine, concurrency: u32) -> Box<dyn TreePolicy> {
    let info = engine.info();
    let limits = Limits { budget: case.budget, depth: info.depth, width: info.width, concurrency };
    Registry::builtin().build(case.kind, &case.params, &limits).unwrap()
}

/// What adaptive policies are charged: measured nowhere, it only has to be a plausible cost.
pub fn cost() -> treeline_core::CostCurve {
    treeline_core::CostCurve::new(vec![1, 9, 17, 33, 65], vec![3.0, 6.0, 8.0, 12.0, 20.0]).unwrap()
}

/// Runs `requests` under a case.
pub fn run_case<E: Engine>(
    engine: &mut E,
    case: &Case,
    requests: &[Request],
    law: &Law<'_>,
    concurrency: u32,
    sink: &mut dyn FnMut(&RoundView<'_>),
) -> Vec<Response> {
    let mut policy = policy(case, engine, concurrency);
    let cost = cost();
    let setup = RunSetup { budget: case.budget, concurrency, law, cost: Some(&cost) };
    run(engine, policy.as_mut(), requests, &setup, sink).unwrap()
}

/// Plain decoding of `requests`, four at a time.
pub fn plain(requests: &[Request], law: &Law<'_>) -> Vec<Response> {
    let case = Case { kind: "chain", params: json!({}), budget: 0, drafter: Drafter::Dflash };
    run_case(&mut engine(Drafter::Dflash, 4), &case, requests, law, 4, &mut |_| {})
}
