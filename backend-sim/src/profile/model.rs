//! The target's shape: what a step reads and computes follows from it.

use std::fmt;
use std::path::Path;

use treeline_checkpoint::TargetConfig;

use super::load::{Doc, Fields};
use super::{ProfileError, Sources};

/// Bytes of an INT4 parameter in groups of 32 with one bf16 scale each: ½ + 2/32.
pub const INT4_GROUP32_BYTES: f64 = 0.5625;

/// The shape of a target model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Name of the profile, or the folder of its `config.json`.
    pub name: String,
    /// Transformer layers.
    pub layers: u32,
    /// Layers with a dense feed-forward part; all of them where there are no experts.
    pub dense_layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Vocabulary: rows of the embedding and of the head.
    pub vocab: u32,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Attention of every layer.
    pub attention: Attention,
    /// Width of a dense feed-forward part; 0 where no layer has one.
    pub dense_intermediate: u32,
    /// Experts of the other layers.
    pub moe: Option<Moe>,
    /// Bytes of a parameter that is not a routed expert's.
    pub bytes_per_param: f64,
    /// Longest context, tokens.
    pub max_context: u32,
    /// Where each field comes from.
    pub sources: Sources,
}

/// Attention of a model; sizes in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Multi-head latent attention: the cache holds one latent per token, shared by all heads.
    Mla {
        /// Query heads.
        heads: u32,
        /// Rank of the query projection; 0: one full projection.
        q_lora: u32,
        /// Rank of the cached latent.
        kv_lora: u32,
        /// Dimensions of a head without position.
        nope: u32,
        /// Rotary dimensions, cached once for all heads.
        rope: u32,
        /// Dimensions of a value head.
        v_head: u32,
    },
    /// Grouped-query attention.
    Gqa {
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Dimensions of a head.
        head_dim: u32,
    },
}

/// Mixture of SwiGLU experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moe {
    /// Routed experts of a layer.
    pub experts: u32,
    /// Routed experts of a token.
    pub top_k: u32,
    /// Shared experts, which every token uses.
    pub shared: u32,
    /// Width of one expert.
    pub intermediate: u32,
    /// Storage of the routed experts.
    pub quant: Quant,
    /// Bytes of a routed expert's parameter, scales included.
    pub bytes_per_param: f64,
}

/// How routed experts are stored; the key of the op tables' MoE measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quant {
    /// INT4 weights with bf16 activations.
    Int4,
    /// bf16.
    Bf16,
    /// FP8 weights and activations in blocks of 128.
    Fp8,
}

impl Quant {
    /// Name in the op tables.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Int4 => "int4_wo",
            Self::Bf16 => "bfloat16",
            Self::Fp8 => "fp8_block",
        }
    }

    /// Bytes of a parameter, scales included.
    #[must_use]
    pub fn bytes_per_param(self) -> f64 {
        match self {
            Self::Int4 => INT4_GROUP32_BYTES,
            Self::Bf16 => 2.0,
            // One f32 scale per 128 × 128 block.
            Self::Fp8 => 1.0 + 4.0 / (128.0 * 128.0),
        }
    }
}

impl Model {
    /// Reads a profile's text; `file` is for messages.
    ///
    /// # Errors
    /// A key that is missing, unknown or out of range, or fields that contradict each other.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let doc = Doc::parse(text, file)?;
        let (f, mut s) = (doc.root(), Sources::default());
        let s = &mut s;
        let name = f.text("name")?;
        let layers = f.size("layers", 4096, s)?;
        let dense_layers: u32 = f.field("dense_layers", s)?;
        let (hidden, vocab) = (f.size("hidden", 1 << 20, s)?, f.size("vocab", 1 << 24, s)?);
        let (tied, bytes_per_param) = (f.field("tied", s)?, f.positive("bytes_per_param", s)?);
        let max_context = f.size("max_context", u32::MAX, s)?;
        let attention = attention(f.need("attention")?, s)?;
        let dense_intermediate: u32 = f.field("dense_intermediate", s)?;
        let moe = f.table("moe")?.map(|m| moe(m, s)).transpose()?;
        if dense_layers > layers {
            return Err(f.error("dense_layers", format!("is {dense_layers}, but `layers` is {layers}")));
        }
        if moe.is_none() && dense_layers != layers {
            let problem = format!("is {dense_layers} of {layers} layers, but there is no `[moe]` for the others");
            return Err(f.error("dense_layers", problem));
        }
        if moe.is_some() && dense_layers == layers {
            return Err(f.error("moe", "describes experts, but every layer is dense: lower `dense_layers`"));
        }
        if (dense_layers > 0) != (dense_intermediate > 0) {
            let problem = format!("is {dense_intermediate} for {dense_layers} dense layers: both or neither are 0");
            return Err(f.error("dense_intermediate", problem));
        }
        f.finish()?;
        Ok(Self {
            name,
            layers,
            dense_layers,
            hidden,
            vocab,
            tied,
            attention,
            dense_intermediate,
            moe,
            bytes_per_param,
            max_context,
            sources: std::mem::take(s),
        })
    }

    /// The shape of a checkpoint's `config.json`; parameters outside routed experts are taken as bf16.
    ///
    /// # Errors
    /// A shape that this description cannot hold: dense layers of several widths, an attention window, quantised modules
    /// beside the routed experts.
    pub fn from_config(config: &TargetConfig, name: &str) -> Result<Self, ProfileError> {
        super::config::model(config, name)
    }

    /// Reads `config.json` of a checkpoint's folder, or that file.
    ///
    /// # Errors
    /// As [`Model::from_config`], and a config that is not understood.
    pub fn from_checkpoint(path: &Path) -> Result<Self, ProfileError> {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let config = if path.is_dir() {
            TargetConfig::from_dir(path)?
        } else {
            TargetConfig::from_json(&super::read_text(path)?, path)?
        };
        let name = folder.file_name().map_or("model".into(), |n| n.to_string_lossy().into_owned());
        Self::from_config(&config, &name)
    }

    /// Layers with experts.
    #[must_use]
    pub fn moe_layers(&self) -> u32 {
        self.layers - self.dense_layers
    }
}

fn attention(f: Fields<'_, '_>, s: &mut Sources) -> Result<Attention, ProfileError> {
    const MAX: u32 = 1 << 16;
    let attention = match f.text("kind")?.as_str() {
        "mla" => Attention::Mla {
            heads: f.size("heads", MAX, s)?,
            q_lora: f.field("q_lora", s)?,
            kv_lora: f.size("kv_lora", MAX, s)?,
            nope: f.size("nope", MAX, s)?,
            rope: f.size("rope", MAX, s)?,
            v_head: f.size("v_head", MAX, s)?,
        },
        "gqa" => {
            let (heads, kv_heads) = (f.size("heads", MAX, s)?, f.size("kv_heads", MAX, s)?);
            if !heads.is_multiple_of(kv_heads) {
                return Err(f.error("kv_heads", format!("{heads} heads cannot share {kv_heads} key heads evenly")));
            }
            Attention::Gqa { heads, kv_heads, head_dim: f.size("head_dim", MAX, s)? }
        }
        other => return Err(f.error("kind", format!("\"{other}\" is not known; \"mla\" and \"gqa\" are"))),
    };
    f.finish()?;
    Ok(attention)
}

fn moe(f: Fields<'_, '_>, s: &mut Sources) -> Result<Moe, ProfileError> {
    let quant: String = f.field("quant", s)?;
    let quant = match quant.as_str() {
        "int4-group32" => Quant::Int4,
        "bf16" => Quant::Bf16,
        "fp8-block128" => Quant::Fp8,
        other => {
            let known = "\"int4-group32\", \"fp8-block128\" and \"bf16\" are (NVFP4 is not modelled)";
            return Err(f.error("quant", format!("\"{other}\" is not known; {known}")));
        }
    };
    let moe = Moe {
        experts: f.size("experts", 1 << 16, s)?,
        top_k: f.size("top_k", 1 << 16, s)?,
        shared: f.field("shared", s)?,
        intermediate: f.size("intermediate", 1 << 20, s)?,
        quant,
        bytes_per_param: quant.bytes_per_param(),
    };
    if moe.top_k > moe.experts {
        return Err(f.error("top_k", format!("is {}, but there are {} experts", moe.top_k, moe.experts)));
    }
    f.finish()?;
    Ok(moe)
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model {}", self.name)?;
        writeln!(
            f,
            "  {:.2} G parameters, {:.1} GB of weights, {:.0} B of bf16 KV a token",
            self.params() / 1e9,
            self.bytes() / 1e9,
            self.kv_elements() * 2.0
        )?;
        write!(f, "{}", self.sources)
    }
}
