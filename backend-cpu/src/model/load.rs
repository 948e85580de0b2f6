//! From checkpoint tensors to packed layers. Every tensor that is read is remembered, so that a surplus one is an error.

use super::attention::AttentionLayer;
use super::gqa::GqaLayer;
use super::mla::{LATENT_EPS, MlaLayer, Query};
use super::mlp::Mlp;
use super::moe::MoeLayer;
use super::norm::Norm;
use super::rope::Rotary;
use super::{FfnLayer, LayerWeights, Model};
use crate::error::Result;
use crate::kernel::Packed;
use crate::kv::KvShape;
use ndarray::{Array2, ArrayView2, Axis, Slice};
use std::collections::BTreeSet;
use std::path::Path;
use treeline_checkpoint::{
    Attention, Ffn, Gqa, Linear, Mla, Moe, PackedInt4, Quantization, Router, TargetConfig, Weights,
};

/// Reads tensors below a prefix.
pub(crate) struct Loader<'w> {
    weights: &'w Weights,
    prefix: String,
    quantization: Option<&'w Quantization>,
    used: BTreeSet<String>,
}

impl<'w> Loader<'w> {
    pub fn new(weights: &'w Weights, prefix: &str, quantization: Option<&'w Quantization>) -> Self {
        Self { weights, prefix: prefix.to_owned(), quantization, used: BTreeSet::new() }
    }

    /// A linear weight as it is stored.
    fn stored(&mut self, module: &str, out: usize, inp: usize) -> Result<Linear<'w>> {
        let module = format!("{}{module}", self.prefix);
        let linear = self.weights.linear(&module, out, inp, self.quantization)?;
        for suffix in ["weight", "weight_packed", "weight_scale", "weight_shape"] {
            self.used.insert(format!("{module}.{suffix}"));
        }
        Ok(linear)
    }

    /// A linear weight `[out, in]`, dequantised where it is packed.
    pub fn linear(&mut self, module: &str, out: usize, inp: usize) -> Result<Array2<f32>> {
        let data = self.stored(module, out, inp)?.to_f32()?;
        Ok(matrix(out, inp, data))
    }

    /// A vector.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>> {
        let name = format!("{}{name}", self.prefix);
        let data = self.weights.f32(&name, &[len])?;
        self.used.insert(name);
        Ok(data)
    }

    /// A norm's weight.
    pub fn norm(&mut self, module: &str, len: usize, eps: f32) -> Result<Norm> {
        Ok(Norm { weight: self.vector(&format!("{module}.weight"), len)?, eps })
    }

    /// A table that is read by row.
    pub fn table(&mut self, name: &str, rows: usize, columns: usize) -> Result<Array2<f32>> {
        let name = format!("{}{name}", self.prefix);
        let data = self.weights.f32(&name, &[rows, columns])?;
        self.used.insert(name);
        Ok(matrix(rows, columns, data))
    }

    /// A SwiGLU.
    pub fn mlp(&mut self, module: &str, hidden: usize, inner: usize) -> Result<Mlp> {
        let gate = self.stored(&format!("{module}.gate_proj"), inner, hidden)?;
        let up = self.stored(&format!("{module}.up_proj"), inner, hidden)?;
        let down = self.stored(&format!("{module}.down_proj"), hidden, inner)?;
        Ok(Mlp { gate_up: pack(&[gate, up])?, down: pack(&[down])? })
    }

    /// Grouped-query attention.
    pub fn gqa(&mut self, module: &str, hidden: usize, c: &Gqa, scale: f32, eps: f32) -> Result<GqaLayer> {
        let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut parts = Vec::new();
        let mut bias = Vec::new();
        for (name, out) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
            parts.push(self.linear(&format!("{module}.{name}"), out, hidden)?);
            if c.bias {
                bias.extend(self.vector(&format!("{module}.{name}.bias"), out)?);
            }
        }
        let norms = c.qk_norm.then_some(["q_norm", "k_norm"]);
        let mut norm =
            |i: usize| norms.map(|names| self.norm(&format!("{module}.{}", names[i]), c.head_dim, eps)).transpose();
        let (q_norm, k_norm) = (norm(0)?, norm(1)?);
        Ok(GqaLayer {
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            scale,
            qkv: Packed::concat(&[parts[0].view(), parts[1].view(), parts[2].view()]),
            qkv_bias: c.bias.then_some(bias),
            q_norm,
            k_norm,
            out: Packed::new(self.linear(&format!("{module}.o_proj"), hidden, q)?.view()),
            out_bias: if c.bias { Some(self.vector(&format!("{module}.o_proj.bias"), hidden)?) } else { None },
        })
    }

    fn mla(&mut self, module: &str, hidden: usize, c: &Mla, scale: f32) -> Result<MlaLayer> {
        let q_out = c.heads * (c.nope + c.rope);
        let kv_a = self.linear(&format!("{module}.kv_a_proj_with_mqa"), c.kv_lora + c.rope, hidden)?;
        let (query, down) = match c.q_lora {
            None => {
                let q = self.linear(&format!("{module}.q_proj"), q_out, hidden)?;
                (Query::Full(Packed::new(q.view())), Packed::new(kv_a.view()))
            }
            Some(rank) => {
                let q_a = self.linear(&format!("{module}.q_a_proj"), rank, hidden)?;
                let norm = self.norm(&format!("{module}.q_a_layernorm"), rank, LATENT_EPS)?;
                let up = Packed::new(self.linear(&format!("{module}.q_b_proj"), q_out, rank)?.view());
                (Query::Compressed { rank, norm, up }, Packed::concat(&[q_a.view(), kv_a.view()]))
            }
        };
        let both = c.nope + c.v;
        let kv_b = self.linear(&format!("{module}.kv_b_proj"), c.heads * both, c.kv_lora)?;
        let part = |from: usize, len: usize| -> ArrayView2<'_, f32> {
            kv_b.slice_axis(Axis(0), Slice::from(from..from + len))
        };
        let keys = |n: usize| Packed::new(part(n * both, c.nope).t());
        let values = |n: usize| Packed::new(part(n * both + c.nope, c.v));
        Ok(MlaLayer {
            heads: c.heads,
            nope: c.nope,
            rope: c.rope,
            v: c.v,
            kv_lora: c.kv_lora,
            scale,
            query,
            down,
            kv_norm: self.norm(&format!("{module}.kv_a_layernorm"), c.kv_lora, LATENT_EPS)?,
            absorb: (0..c.heads).map(keys).collect(),
            expand: (0..c.heads).map(values).collect(),
            out: Packed::new(self.linear(&format!("{module}.o_proj"), hidden, c.heads * c.v)?.view()),
        })
    }

    fn moe(&mut self, module: &str, hidden: usize, c: &Moe) -> Result<MoeLayer> {
        let gate = self.table(&format!("{module}.gate.weight"), c.experts, hidden)?;
        let bias = match c.router {
            Router::Sigmoid { .. } => self.vector(&format!("{module}.gate.e_score_correction_bias"), c.experts)?,
            Router::Softmax { .. } => Vec::new(),
        };
        let experts: Result<Vec<Mlp>> =
            (0..c.experts).map(|e| self.mlp(&format!("{module}.experts.{e}"), hidden, c.intermediate)).collect();
        let inner = c.shared * c.intermediate;
        let shared =
            (c.shared > 0).then(|| self.mlp(&format!("{module}.shared_experts"), hidden, inner)).transpose()?;
        Ok(MoeLayer {
            router: c.router.clone(),
            top_k: c.top_k,
            gate: Packed::new(gate.view()),
            bias,
            experts: experts?,
            shared,
        })
    }

    /// Fails on tensors that nothing has read.
    pub fn finish(self, ignored: &[&str]) -> Result<()> {
        Ok(self.weights.refuse_unused(|name| self.used.contains(name), ignored)?)
    }
}

/// Reads a model of any target family.
pub(super) fn model(dir: &Path) -> Result<Model> {
    let config = TargetConfig::from_dir(dir)?;
    let weights = Weights::open(dir)?;
    let mut load = Loader::new(&weights, config.family.tensor_prefix(), config.quantization.as_ref());
    let (hidden, eps) = (config.hidden, config.rms_eps as f32);
    let scale = config.softmax_scale() as f32;
    let embed = load.table("model.embed_tokens.weight", config.vocab, hidden)?;
    let mut layers = Vec::new();
    for (i, layer) in config.layers.iter().enumerate() {
        let p = format!("model.layers.{i}");
        let attention = match &config.attention {
            Attention::Mla(c) => AttentionLayer::Mla(load.mla(&format!("{p}.self_attn"), hidden, c, scale)?),
            Attention::Gqa(c) => AttentionLayer::Gqa(load.gqa(&format!("{p}.self_attn"), hidden, c, scale, eps)?),
        };
        let ffn = match &layer.ffn {
            Ffn::Dense { intermediate } => FfnLayer::Dense(load.mlp(&format!("{p}.mlp"), hidden, *intermediate)?),
            Ffn::Moe(c) => FfnLayer::Moe(load.moe(&format!("{p}.mlp"), hidden, c)?),
        };
        layers.push(LayerWeights {
            input_norm: load.norm(&format!("{p}.input_layernorm"), hidden, eps)?,
            attention,
            post_norm: load.norm(&format!("{p}.post_attention_layernorm"), hidden, eps)?,
            ffn,
            window: layer.window,
        });
    }
    let norm = load.norm("model.norm", hidden, eps)?;
    let head = match config.tied {
        true => Packed::new(embed.view()),
        false => Packed::new(load.linear("lm_head", config.vocab, hidden)?.view()),
    };
    let later: Vec<String> = (0..config.mtp_layers)
        .map(|i| format!("{}model.layers.{}.", config.family.tensor_prefix(), config.layers.len() + i))
        .collect();
    let mut ignored: Vec<&str> = config.family.ignored_tensors().to_vec();
    ignored.extend(later.iter().map(String::as_str));
    // Some exporters store the tied head a second time.
    let copy = format!("{}lm_head.weight", config.family.tensor_prefix());
    if config.tied {
        ignored.push(&copy);
    }
    load.finish(&ignored)?;
    let kv = match &config.attention {
        Attention::Mla(c) => {
            KvShape { layers: layers.len(), heads: 1, key_dim: c.kv_lora + c.rope, value_dim: c.kv_lora }
        }
        Attention::Gqa(c) => {
            KvShape { layers: layers.len(), heads: c.kv_heads, key_dim: c.head_dim, value_dim: c.head_dim }
        }
    };
    let rotary = Rotary::new(&config.rope);
    Ok(Model { config, embed, layers, norm, head, rotary, kv })
}

/// Packs linear layers side by side: as INT4 where all of them are.
fn pack(weights: &[Linear<'_>]) -> Result<Packed> {
    let int4: Option<Vec<PackedInt4<'_>>> = weights
        .iter()
        .map(|w| match w {
            Linear::Int4(packed) => Some(*packed),
            Linear::Dense(_) => None,
        })
        .collect();
    if let Some(int4) = int4 {
        return Ok(Packed::int4(&int4));
    }
    let wide = |w: &Linear<'_>| {
        let [rows, columns] = w.shape();
        Ok(matrix(rows, columns, w.to_f32()?))
    };
    let wide: Vec<Array2<f32>> = weights.iter().map(wide).collect::<Result<_>>()?;
    Ok(Packed::concat(&wide.iter().map(|w| w.view()).collect::<Vec<_>>()))
}

fn matrix(rows: usize, columns: usize, data: Vec<f32>) -> Array2<f32> {
    // The reader returned exactly rows × columns elements, so the shape always fits.
    Array2::from_shape_vec((rows, columns), data).unwrap_or_else(|_| Array2::zeros((rows, columns)))
}
