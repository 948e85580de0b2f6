//! What the integration tests share: fixtures and comparisons.
#![allow(dead_code)]

pub mod expected;

use std::path::PathBuf;
use std::sync::Arc;
use treeline_core::testing::Shape;
use treeline_core::{End, Engine, Law, Request, RunSetup, Sampling, TreePolicy};
use treeline_cpu::{CpuEngine, CpuPair, DrafterSource, EngineSettings, Model};

/// Target fixtures, one of every family.
pub const TARGETS: [&str; 7] =
    ["deepseek_v3", "deepseek_v3_plain", "kimi_k2", "qwen3", "qwen3_window", "qwen3_moe", "llama"];

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub fn model(name: &str) -> Arc<Model> {
    Arc::new(Model::load(&fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Largest difference of a row from the reference, relative to the reference's largest entry.
pub fn relative_error(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    got.iter().zip(want).fold(0.0f32, |m, (a, b)| m.max((a - b).abs() / scale))
}

/// Bits of a row, for equality without tolerance.
pub fn bits(row: ndarray::ArrayView1<'_, f32>) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// A small generator for test inputs, so that they do not depend on a crate's version.
pub struct Noise(pub u64);

impl Noise {
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    pub fn tokens(&mut self, n: usize, vocab: u32) -> Vec<u32> {
        (0..n).map(|_| self.below(vocab)).collect()
    }

    /// Parents of a tree of `rows` rows; each node hangs under one of the `span` newest rows.
    pub fn parents(&mut self, rows: usize, span: usize) -> Vec<u32> {
        (0..rows).map(|i| if i == 0 { 0 } else { (i - 1 - self.below(span.min(i) as u32) as usize) as u32 }).collect()
    }
}

/// Pairs of fixtures: name, target, drafter.
pub fn pairs() -> Vec<(&'static str, CpuPair)> {
    let dflash = |name| DrafterSource::Dflash { dir: fixture(name) };
    let llama = DrafterSource::Autoregressive { dir: fixture("llama"), depth: 5 };
    let sources = [
        ("dflash on qwen3", "qwen3", dflash("dflash_qwen3")),
        ("dflash on kimi_k2", "kimi_k2", dflash("dflash_kimi")),
        ("llama on qwen3_window", "qwen3_window", llama),
        ("n-gram on deepseek_v3", "deepseek_v3", DrafterSource::NGram { order: 3, depth: 6 }),
    ];
    let load = |target: &str, source| CpuPair::load(&fixture(target), source).unwrap_or_else(|e| panic!("{e}"));
    sources.iter().map(|(name, target, source)| (*name, load(target, source))).collect()
}

/// Requests over tiny vocabularies; none of them ends early.
pub fn requests(count: usize, max_new: u32, sampling: Sampling) -> Vec<Request> {
    let mut noise = Noise(5);
    (0..count as u64)
        .map(|id| {
            let len = 1 + noise.below(40) as usize;
            Request { id, prompt: noise.tokens(len, 60), max_new, eos: Vec::new(), sampling }
        })
        .collect()
}

/// Runs requests and returns their tokens; checks that every one ended as it should and that no slot leaks.
pub fn decode(
    engine: &mut CpuEngine,
    policy: &mut dyn TreePolicy,
    requests: &[Request],
    law: &Law<'_>,
    budget: u32,
) -> Vec<Vec<u32>> {
    let concurrency = engine.info().slots;
    let setup = RunSetup { budget, concurrency, law, cost: None };
    let responses = treeline_core::run(engine, policy, requests, &setup, &mut |_| {}).unwrap();
    assert_eq!(engine.free(), concurrency);
    responses
        .into_iter()
        .map(|r| {
            assert_eq!(r.end, Ok(End::Length), "request {}", r.request);
            r.tokens
        })
        .collect()
}

/// Plain decoding, one request at a time: what every tree must reproduce.
pub fn plain(pair: &CpuPair, requests: &[Request], law: &Law<'_>) -> Vec<Vec<u32>> {
    let mut engine = pair.engine(EngineSettings { slots: 1, context: 200, chunk: 200 }).unwrap();
    decode(&mut engine, &mut Shape::chain(0), requests, law, 0)
}
