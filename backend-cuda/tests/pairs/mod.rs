//! What the tests of the engine share: pairs of tiny fixtures on the device and on the CPU, requests, and runs.
#![allow(dead_code, reason = "every test file uses a part")]

pub mod alone;
pub mod passes;

use std::path::PathBuf;
use treeline_core::{
    End, Engine, Fault, Law, Limits, Request, Response, RoundView, RunSetup, Sampling, TreePolicy, Truth, run,
};
use treeline_cpu::{CpuPair, EngineSettings};
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::engine::{CudaEngine, CudaPair, CudaSettings, DrafterSource, PairOptions};
use treeline_policies::Registry;

/// Positions of every engine here.
pub const CONTEXT: u32 = 200;

/// A fixture of the CPU engine.
pub fn fixture(name: &str) -> PathBuf {
    let crate_dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(crate_dir).join("../backend-cpu/tests/fixtures").join(name)
}

/// A target with its drafter, by the names of their fixtures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    pub target: &'static str,
    pub drafter: &'static str,
    /// Levels, for an autoregressive drafter; 0 = a block drafter.
    pub depth: u32,
}

pub const QWEN: Names = Names { target: "qwen3", drafter: "dflash_qwen3", depth: 0 };
pub const KIMI: Names = Names { target: "kimi_k2", drafter: "dflash_kimi", depth: 0 };
pub const WINDOW: Names = Names { target: "qwen3_window", drafter: "llama", depth: 5 };

impl Names {
    pub fn on(self, gpu: &Gpu, dtype: Dtype) -> CudaPair {
        self.with_context(gpu, dtype, CONTEXT)
    }

    pub fn with_context(self, gpu: &Gpu, dtype: Dtype, context: u32) -> CudaPair {
        let dir = fixture(self.drafter);
        let drafter = match self.depth {
            0 => DrafterSource::Dflash { dir },
            depth => DrafterSource::Autoregressive { dir, depth },
        };
        let options = PairOptions { dtype, context };
        CudaPair::load(gpu, &fixture(self.target), &drafter, &options).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }

    pub fn on_cpu(self) -> CpuPair {
        let dir = fixture(self.drafter);
        let drafter = match self.depth {
            0 => treeline_cpu::DrafterSource::Dflash { dir },
            depth => treeline_cpu::DrafterSource::Autoregressive { dir, depth },
        };
        CpuPair::load(&fixture(self.target), &drafter).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }
}

/// Sizes for trees of at most 64 nodes.
pub fn settings(slots: u32) -> CudaSettings {
    CudaSettings { chunk: 16, width: 64, ..CudaSettings::new(slots, CONTEXT, 64) }
}

/// An engine with graphs.
pub fn engine(pair: &CudaPair, slots: u32) -> CudaEngine {
    pair.engine(settings(slots)).unwrap_or_else(|e| panic!("{e}"))
}

/// A small generator for test inputs.
pub struct Noise(pub u64);

impl Noise {
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    pub fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(60)).collect()
    }

    /// Parents of a tree of `rows` rows; each node hangs under one of the `span` newest rows.
    pub fn parents(&mut self, rows: usize, span: usize) -> Vec<u32> {
        (0..rows).map(|i| if i == 0 { 0 } else { (i - 1 - self.below(span.min(i) as u32) as usize) as u32 }).collect()
    }
}

/// Requests over tiny vocabularies; none of them ends early.
pub fn requests(count: usize, max_new: u32, sampling: Sampling) -> Vec<Request> {
    let mut noise = Noise(5);
    (0..count as u64)
        .map(|id| {
            let len = 1 + noise.below(40) as usize;
            Request { id, prompt: noise.tokens(len), max_new, eos: Vec::new(), sampling }
        })
        .collect()
}

/// A registered policy with these parameters, at this budget.
pub fn policy(kind: &str, params: &serde_json::Value, budget: u32, engine: &impl Engine) -> Box<dyn TreePolicy> {
    let info = engine.info();
    let limits = Limits { budget, depth: info.depth, width: info.width, concurrency: info.slots };
    Registry::builtin().build(kind, params, &limits).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

/// Runs requests, all slots in use.
pub fn respond<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    requests: &[Request],
    law: &Law<'_>,
    budget: u32,
    sink: &mut dyn FnMut(&RoundView<'_>),
) -> Vec<Response> {
    let setup = RunSetup { budget, concurrency: engine.info().slots, law, cost: None };
    run(engine, policy, requests, &setup, sink).unwrap_or_else(|e| panic!("{e}"))
}

/// The same, for requests that all end by their length: their tokens.
pub fn decode<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    requests: &[Request],
    law: &Law<'_>,
    budget: u32,
) -> Vec<Vec<u32>> {
    let responses = respond(engine, policy, requests, law, budget, &mut |_| {});
    let ended = |r: Response| {
        assert_eq!(r.end, Ok::<End, Fault>(End::Length), "request {}", r.request);
        r.tokens
    };
    responses.into_iter().map(ended).collect()
}

/// What the CPU engine emits by plain decoding: what every tree must reproduce.
pub fn plain_on_cpu(pair: &CpuPair, requests: &[Request], law: &Law<'_>) -> Vec<Vec<u32>> {
    let mut engine = pair.engine(EngineSettings { slots: 1, context: CONTEXT, chunk: 200 }).unwrap();
    decode(&mut engine, &mut treeline_core::testing::Shape::chain(0), requests, law, 0)
}

/// Sizes of a CPU engine.
pub fn cpu_settings(slots: u32) -> EngineSettings {
    EngineSettings { slots, context: CONTEXT, chunk: 16 }
}

/// Forced truth: the tokens that some run emitted.
pub struct Script {
    tokens: Vec<Vec<u32>>,
    prompts: Vec<u32>,
}

impl Script {
    /// `tokens` of each request, by id.
    pub fn of(tokens: &[Vec<u32>], requests: &[Request]) -> Self {
        Self { tokens: tokens.to_vec(), prompts: requests.iter().map(|r| r.prompt.len() as u32).collect() }
    }
}

impl Truth for Script {
    fn token(&self, request: u64, root: u32, depth: u32) -> Option<u32> {
        let at = (root + depth).checked_sub(self.prompts[request as usize])?;
        self.tokens[request as usize].get(at as usize).copied()
    }
}

/// Tokens of a run, and the accepted drafts of every step, request after request.
pub fn accepted<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    requests: &[Request],
    law: &Law<'_>,
    budget: u32,
) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut steps: Vec<(u64, u32, u32)> = Vec::new();
    let responses = respond(engine, policy, requests, law, budget, &mut |view| {
        for entry in &view.log.entries {
            steps.push((entry.request, entry.step, entry.result.as_ref().map_or(u32::MAX, |s| s.accepted())));
        }
    });
    steps.sort_unstable();
    (responses.into_iter().map(|r| r.tokens).collect(), steps.into_iter().map(|s| s.2).collect())
}
