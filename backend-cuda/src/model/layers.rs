//! What one layer is made of, and how it is read, whatever the family and the source.

use super::Shard;
use super::ffn::Mlp;
use super::gqa::GqaLayer;
use super::mla::MlaLayer;
use super::moe::{MoeConfig, MoeLayer};
use super::source::{Piece, Source, scaled};
use super::weight::{Few, Weight};
use crate::device::{Buffer, Dtype, Gpu};
use crate::error::Result;
use crate::ops::swiglu::Swiglu;
use std::ops::Range;
use treeline_checkpoint::{Attention, Ffn, Gqa, Layer, Mla, TargetConfig};

/// One layer's weights on this rank.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub input_norm: Buffer<f32>,
    pub attention: AttentionLayer,
    pub post_norm: Buffer<f32>,
    pub ffn: FfnLayer,
    /// Sliding window in positions; 0 = none.
    pub window: u32,
}

/// Attention of one layer.
#[derive(Debug)]
pub(super) enum AttentionLayer {
    Mla(MlaLayer),
    Gqa(GqaLayer),
}

/// Feed-forward part of one layer.
#[derive(Debug)]
pub(super) enum FfnLayer {
    Dense(Mlp),
    Moe(Box<MoeLayer>),
}

impl FfnLayer {
    /// Width of its SwiGLU buffers.
    pub fn inner(&self) -> usize {
        match self {
            Self::Dense(mlp) => mlp.down.inp,
            Self::Moe(moe) => moe.inner(),
        }
    }
}

/// Reads layers.
#[derive(Debug)]
pub(super) struct Reader<'a, 'w> {
    pub gpu: &'a Gpu,
    pub source: Source<'w>,
    pub dtype: Dtype,
    pub shard: Shard,
    pub hidden: usize,
    /// Sizes of this rank's mixtures, where the model has any.
    pub moe: Option<&'a MoeConfig>,
    /// Kernels for few rows.
    pub few: Few,
}

impl Reader<'_, '_> {
    /// Layer `i` of a target.
    pub fn layer(&mut self, config: &TargetConfig, i: usize, layer: &Layer) -> Result<LayerWeights> {
        let p = format!("model.layers.{i}");
        let attention = match &config.attention {
            Attention::Mla(c) => AttentionLayer::Mla(self.mla(&format!("{p}.self_attn"), c)?),
            Attention::Gqa(c) => AttentionLayer::Gqa(self.gqa(&format!("{p}.self_attn"), c, None)?),
        };
        let ffn = match &layer.ffn {
            Ffn::Dense { intermediate } => FfnLayer::Dense(self.mlp(&format!("{p}.mlp"), *intermediate)?),
            Ffn::Moe(c) => FfnLayer::Moe(Box::new(MoeLayer::read(self, &format!("{p}.mlp"), c)?)),
        };
        Ok(LayerWeights {
            input_norm: self.norm(&format!("{p}.input_layernorm"))?,
            attention,
            post_norm: self.norm(&format!("{p}.post_attention_layernorm"))?,
            ffn,
            window: window(layer.window),
        })
    }

    /// A weight of the residual stream's norm.
    pub fn norm(&mut self, module: &str) -> Result<Buffer<f32>> {
        self.source.norm(self.gpu, module, self.hidden)
    }

    /// Weights that read the same input.
    pub fn dense(&mut self, pieces: &[Piece]) -> Result<Weight> {
        self.source.dense(self.gpu, self.dtype, pieces, &self.few)
    }

    /// A SwiGLU of width `inner`, split over ranks.
    pub fn mlp(&mut self, module: &str, inner: usize) -> Result<Mlp> {
        let mine = self.shard.split("columns of a feed-forward part", inner)?;
        let up = |name: &str| Piece::whole(format!("{module}.{name}"), inner, self.hidden).rows(mine.clone());
        let pieces = [up("gate_proj"), up("up_proj")];
        let gate_up = self.dense(&pieces)?;
        let down = Piece::whole(format!("{module}.down_proj"), self.hidden, inner).columns(mine.clone());
        Ok(Mlp { gate_up, down: self.dense(&[down])?, activate: Swiglu::new(self.gpu, self.dtype, mine.len())? })
    }

    /// The pieces of queries, keys and values, one below the other, split over ranks by head.
    pub fn qkv_pieces(&self, module: &str, c: &Gqa) -> Result<[Piece; 3]> {
        let heads = self.shard.split("attention heads", c.heads)?;
        let kv_heads = self.shard.share("key heads", c.kv_heads)?;
        let piece = |name: &str, n: usize, mine: &Range<usize>| {
            let rows = scaled(mine, c.head_dim);
            Piece::whole(format!("{module}.{name}"), n * c.head_dim, self.hidden).rows(rows)
        };
        let (q, kv) = (c.heads, c.kv_heads);
        Ok([piece("q_proj", q, &heads), piece("k_proj", kv, &kv_heads), piece("v_proj", kv, &kv_heads)])
    }

    /// Grouped-query attention, split over ranks by head; `qkv` where it was read before.
    pub fn gqa(&mut self, module: &str, c: &Gqa, qkv: Option<Weight>) -> Result<GqaLayer> {
        let (d, hidden) = (c.head_dim, self.hidden);
        let pieces = self.qkv_pieces(module, c)?;
        let (qkv_bias, out_bias) = match c.bias {
            true => {
                let bias = |p: &Piece| (format!("{}.bias", p.module), p.out, p.rows.clone());
                let out = (format!("{module}.o_proj.bias"), hidden, 0..hidden);
                let qkv = self.source.vectors(self.gpu, &pieces.each_ref().map(bias))?;
                (Some(qkv), Some(self.source.vectors(self.gpu, &[out])?))
            }
            false => (None, None),
        };
        let mut norm = |name: &str| match c.qk_norm {
            true => self.source.norm(self.gpu, &format!("{module}.{name}"), d).map(Some),
            false => Ok(None),
        };
        let (q_norm, k_norm) = (norm("q_norm")?, norm("k_norm")?);
        let out = Piece::whole(format!("{module}.o_proj"), hidden, c.heads * d).columns(pieces[0].rows.clone());
        let qkv = match qkv {
            Some(qkv) => qkv,
            None => self.dense(&pieces)?,
        };
        Ok(GqaLayer { qkv, qkv_bias, q_norm, k_norm, out: self.dense(&[out])?, out_bias })
    }

    fn mla(&mut self, module: &str, c: &Mla) -> Result<MlaLayer> {
        let hidden = self.hidden;
        let heads = self.shard.split("attention heads", c.heads)?;
        let head = c.nope + c.rope;
        let query = |name: &str, inp: usize| {
            Piece::whole(format!("{module}.{name}"), c.heads * head, inp).rows(scaled(&heads, head))
        };
        let kv_a = Piece::whole(format!("{module}.kv_a_proj_with_mqa"), c.kv_lora + c.rope, hidden);
        let (down, query, q_norm) = match c.q_lora {
            None => (self.dense(&[kv_a])?, self.dense(&[query("q_proj", hidden)])?, None),
            Some(rank) => {
                let q_a = Piece::whole(format!("{module}.q_a_proj"), rank, hidden);
                let norm = self.source.norm(self.gpu, &format!("{module}.q_a_layernorm"), rank)?;
                (self.dense(&[q_a, kv_a])?, self.dense(&[query("q_b_proj", rank)])?, Some(norm))
            }
        };
        let kv_norm = self.source.norm(self.gpu, &format!("{module}.kv_a_layernorm"), c.kv_lora)?;
        let (absorb, expand) = self.source.latent(self.gpu, self.dtype, &format!("{module}.kv_b_proj"), c, &heads)?;
        let out = Piece::whole(format!("{module}.o_proj"), hidden, c.heads * c.v).columns(scaled(&heads, c.v));
        let few = self.few.clone();
        Ok(MlaLayer { down, query, q_norm, kv_norm, absorb, expand, out: self.dense(&[out])?, few })
    }
}

/// A sliding window as kernels take it.
pub(super) fn window(window: Option<usize>) -> u32 {
    window.map_or(0, |w| u32::try_from(w).unwrap_or(u32::MAX))
}
