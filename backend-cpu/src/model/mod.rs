//! A target model (or an autoregressive drafter) and its forward pass.

pub(crate) mod attention;
pub(crate) mod gqa;
pub(crate) mod load;
mod mla;
pub(crate) mod mlp;
mod moe;
pub(crate) mod norm;
pub(crate) mod rope;

use crate::error::Result;
use crate::kernel::Packed;
use crate::kv::{KvShape, SeqKv};
use crate::plan::Plan;
use attention::{AttentionLayer, AttentionWork, Pass};
use mlp::{Mlp, MlpWork};
use moe::{MoeLayer, MoeWork};
use ndarray::Array2;
use norm::Norm;
use rope::{Angles, Rotary};
use std::path::Path;
use treeline_checkpoint::TargetConfig;

/// Weights of one model, packed for the engine's kernels. Meant to be shared by any number of engines.
#[derive(Debug)]
pub struct Model {
    config: TargetConfig,
    embed: Array2<f32>,
    layers: Vec<LayerWeights>,
    norm: Norm,
    head: Packed,
    rotary: Rotary,
    kv: KvShape,
}

#[derive(Debug)]
struct LayerWeights {
    input_norm: Norm,
    attention: AttentionLayer,
    post_norm: Norm,
    ffn: FfnLayer,
    window: Option<usize>,
}

#[derive(Debug)]
enum FfnLayer {
    Dense(Mlp),
    Moe(MoeLayer),
}

/// Working memory of a forward pass; grows to the largest pass and is reused.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Residual stream, one row per row of the plan.
    pub x: Vec<f32>,
    /// Outputs of the tapped layers, side by side, one row per row of the plan.
    pub taps: Vec<f32>,
    /// Distinct experts per MoE layer.
    pub experts: Vec<u32>,
    normed: Vec<f32>,
    angles: Angles,
    attention: AttentionWork,
    mlp: MlpWork,
    moe: MoeWork,
}

impl Model {
    /// Loads a checkpoint folder.
    ///
    /// # Errors
    /// What [`treeline_checkpoint`] refuses, and tensors that the model has no place for.
    pub fn load(dir: &Path) -> Result<Self> {
        load::model(dir)
    }

    /// What the checkpoint's config says.
    #[must_use]
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    pub(crate) fn kv_shape(&self) -> KvShape {
        self.kv
    }

    pub(crate) fn embed(&self) -> &Array2<f32> {
        &self.embed
    }

    /// Makes one token's embedding NaN.
    #[cfg(test)]
    pub(crate) fn poison(&mut self, token: u32) {
        self.embed.row_mut(token as usize).fill(f32::NAN);
    }

    /// Number of layers with routed experts.
    #[must_use]
    pub fn moe_layers(&self) -> usize {
        self.layers.iter().filter(|l| matches!(l.ffn, FfnLayer::Moe(_))).count()
    }

    /// One pass over the rows of `plan`; leaves the residual stream in `work.x` and the outputs of the layers in `taps`
    /// in `work.taps`. Tokens must lie inside the vocabulary.
    pub(crate) fn forward(&self, plan: &Plan, kvs: &mut [SeqKv], taps: &[usize], work: &mut Work) {
        let (rows, hidden) = (plan.len(), self.config.hidden);
        for span in &plan.spans {
            kvs[span.seq].reserve(span.start + span.width);
        }
        let x = buffer(&mut work.x, rows * hidden);
        for (x, &token) in x.chunks_exact_mut(hidden).zip(&plan.tokens) {
            for (x, &e) in x.iter_mut().zip(self.embed.row(token as usize)) {
                *x = e;
            }
        }
        let normed = buffer(&mut work.normed, rows * hidden);
        let tapped = buffer(&mut work.taps, rows * hidden * taps.len());
        work.experts.clear();
        self.rotary.angles(&plan.positions, &mut work.angles);
        for (i, layer) in self.layers.iter().enumerate() {
            layer.input_norm.rows(x, normed);
            let pass = Pass { plan, rotary: &self.rotary, angles: &work.angles, layer: i, window: layer.window };
            layer.attention.forward(&pass, normed, kvs, &mut work.attention, x);
            layer.post_norm.rows(x, normed);
            match &layer.ffn {
                FfnLayer::Dense(mlp) => mlp.forward(normed, rows, &mut work.mlp, x, true),
                FfnLayer::Moe(moe) => work.experts.push(moe.forward(normed, rows, &mut work.moe, x)),
            }
            for (t, _) in taps.iter().enumerate().filter(|(_, tap)| **tap == i) {
                for (to, from) in tapped.chunks_exact_mut(hidden * taps.len()).zip(x.chunks_exact(hidden)) {
                    to[t * hidden..(t + 1) * hidden].copy_from_slice(from);
                }
            }
        }
    }

    /// Logits of `count` rows of a residual stream, written to `out` (vocabulary long each).
    pub(crate) fn logits(&self, x: &[f32], count: usize, scratch: &mut Vec<f32>, out: &mut [f32]) {
        let normed = buffer(scratch, count * self.config.hidden);
        self.norm.rows(&x[..normed.len()], normed);
        self.head(normed, count, out);
    }

    /// The head alone, for a drafter that shares it.
    pub(crate) fn head(&self, normed: &[f32], count: usize, out: &mut [f32]) {
        self.head.apply(normed, count, out, false);
    }
}

/// The first `len` numbers of a buffer that only ever grows.
pub(crate) fn buffer(v: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if v.len() < len {
        v.resize(len, 0.0);
    }
    &mut v[..len]
}
