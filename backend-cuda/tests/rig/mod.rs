//! What the tests of models share: fixtures, a model with its cache and buffers, and passes over some sequences.
#![allow(dead_code)]

#[path = "../../../backend-cpu/tests/common/expected.rs"]
pub mod expected;

use std::path::PathBuf;
use std::sync::Arc;
use treeline_cpu::{Model, Scorer};
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::model::{Cache, Head, LoadOptions, Shard, Target, Work};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::Numbers;

/// Target fixtures, one of every family.
pub const TARGETS: [&str; 7] =
    ["deepseek_v3", "deepseek_v3_plain", "kimi_k2", "qwen3", "qwen3_window", "qwen3_moe", "llama"];

/// Cache rows of a sequence.
pub const STRIDE: u32 = 100;

/// A folder of the CPU engine's fixtures.
pub fn fixture(name: &str) -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(here).join("../backend-cpu/tests/fixtures").join(name)
}

/// Rows of one sequence in a pass.
#[derive(Debug, Clone)]
pub struct Span {
    pub slot: u32,
    pub start: u32,
    pub tokens: Vec<u32>,
    /// Parents of a tree; none: a prompt chunk.
    pub parents: Option<Vec<u32>>,
}

impl Span {
    pub fn chunk(slot: u32, start: u32, tokens: &[u32]) -> Self {
        Self { slot, start, tokens: tokens.to_vec(), parents: None }
    }

    pub fn tree(slot: u32, start: u32, tokens: &[u32], parents: &[u32]) -> Self {
        Self { slot, start, tokens: tokens.to_vec(), parents: Some(parents.to_vec()) }
    }
}

/// A target with a cache of some sequences and buffers.
pub struct Rig {
    pub gpu: Gpu,
    pub target: Target,
    pub cache: Cache,
    pub work: Work,
    pub plan: RowPlan,
}

impl Rig {
    pub fn new(gpu: &Gpu, name: &str, dtype: Dtype) -> Self {
        Self::with(gpu, name, dtype, Shard::ONE, &[])
    }

    pub fn with(gpu: &Gpu, name: &str, dtype: Dtype, shard: Shard, taps: &[usize]) -> Self {
        let options = LoadOptions { dtype, shard, positions: STRIDE as usize };
        let target = Target::load(gpu, &fixture(name), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        Self::of(gpu, target, taps)
    }

    pub fn of(gpu: &Gpu, target: Target, taps: &[usize]) -> Self {
        let (slots, max) = (4, Bucket { rows: 160, seqs: 4 });
        let sink = slots * STRIDE;
        let cache = target.cache(gpu, sink as usize + 1).unwrap();
        let work = target.work(gpu, max, taps).unwrap();
        let plan = RowPlan::new(gpu, max.rows as usize, max.seqs as usize, sink).unwrap();
        Self { gpu: gpu.clone(), target, cache, work, plan }
    }

    /// Fills the plan and pads it.
    pub fn plan(&mut self, spans: &[Span], pad: Bucket) -> Bucket {
        self.plan.clear();
        for span in spans {
            let sight = span.parents.as_ref().map_or(Sight::Causal, |p| Sight::Tree(p));
            self.plan.add(span.slot * STRIDE, span.start, &span.tokens, sight).unwrap();
        }
        let bucket = Bucket { rows: self.plan.len() as u32 + pad.rows, seqs: spans.len() as u32 + pad.seqs };
        self.plan.push(&self.gpu, bucket).unwrap();
        bucket
    }

    /// Logits of all rows of a pass, padded by `pad`.
    pub fn padded(&mut self, spans: &[Span], pad: Bucket) -> Vec<Vec<f32>> {
        let bucket = self.plan(spans, pad);
        self.target.forward(&self.gpu, bucket, self.plan.ptrs(), &self.cache, &self.work, Head::All).unwrap();
        let mut rows = self.logits(bucket.rows);
        rows.truncate(self.plan.len());
        rows
    }

    /// Logits of all rows of a pass.
    pub fn run(&mut self, spans: &[Span]) -> Vec<Vec<f32>> {
        self.padded(spans, Bucket { rows: 0, seqs: 0 })
    }

    /// The first rows of the logits.
    pub fn logits(&self, rows: u32) -> Vec<Vec<f32>> {
        let width = self.target.logits_width();
        let all: Vec<f32> = self.gpu.read(self.work.logits(), rows as usize * width).unwrap();
        all.chunks_exact(width).map(<[f32]>::to_vec).collect()
    }

    /// Distinct experts of the last pass.
    pub fn experts(&self) -> Vec<u32> {
        self.gpu.read(self.work.experts(), self.target.moe_layers()).unwrap()
    }
}

/// The CPU engine's model.
pub fn model(name: &str) -> Arc<Model> {
    Arc::new(Model::load(&fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// The CPU engine's logits of `tokens` behind `prefix`, as a tree or a chunk.
pub fn reference(model: &Arc<Model>, prefix: &[u32], tokens: &[u32], parents: Option<&[u32]>) -> Vec<Vec<f32>> {
    let mut scorer = Scorer::new(model.clone());
    if !prefix.is_empty() {
        scorer.extend(prefix);
    }
    let logits = match parents {
        Some(parents) => scorer.tree(tokens, parents),
        None => scorer.extend(tokens),
    };
    logits.rows().into_iter().map(|r| r.to_vec()).collect()
}

/// Largest difference of a row from the reference, relative to the reference's largest entry; NaN gives infinity.
pub fn worst(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let error = |(a, b): (&f32, &f32)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() / scale };
    got.iter().zip(want).map(error).fold(0.0, f32::max)
}

/// Random tokens.
pub fn tokens(noise: &mut Numbers, n: usize) -> Vec<u32> {
    (0..n).map(|_| noise.below(60) as u32).collect()
}

/// Parents of a tree of `rows` rows; each node hangs under one of the `span` newest rows.
pub fn parents(noise: &mut Numbers, rows: usize, span: usize) -> Vec<u32> {
    (0..rows).map(|i| if i == 0 { 0 } else { (i - 1 - noise.below(span.min(i) as u64) as usize) as u32 }).collect()
}

/// Root to `node` of a tree, as rows.
pub fn path(parents: &[u32], node: usize) -> Vec<usize> {
    let mut path = vec![node];
    while path[path.len() - 1] > 0 {
        path.push(parents[path[path.len() - 1]] as usize);
    }
    path.reverse();
    path
}

/// Bits of rows, for equality without tolerance.
pub fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect()
}
