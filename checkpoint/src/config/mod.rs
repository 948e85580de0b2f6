//! What a target model is, read from its `config.json` into one description for all families.
//!
//! A field that changes the maths and is not honoured is an error; so is any field that the family is not known to have.

mod common;
mod dflash;
mod eos;
mod gqa;
mod mla;
mod quant;
mod rope;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use dflash::DflashConfig;
pub use quant::{GROUP, Quantization};
pub use rope::{AttentionFactor, FactorSource, Llama3Scaling, Rope, RopeScaling, Yarn};

use crate::error::{Error, Result};
use crate::json::{Fields, parse, read_limited};

/// No `config.json` comes near this size.
pub(crate) const CONFIG_LIMIT: u64 = 16 << 20;

/// Model family, by `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `deepseek_v3`.
    DeepseekV3,
    /// `kimi_k2`: the DeepSeek-V3 architecture with other numbers.
    KimiK2,
    /// `kimi_k25` (K2.5, K2.6): a DeepSeek-V3 or Kimi K2 model nested under `text_config`, beside a vision tower that is not read.
    KimiK25,
    /// `qwen3`.
    Qwen3,
    /// `qwen3_moe`.
    Qwen3Moe,
    /// `llama`; also the family of autoregressive drafters.
    Llama,
}

impl Family {
    /// What stands before `model.…` and `lm_head.…` in the names of this family's tensors.
    pub fn tensor_prefix(self) -> &'static str {
        if self == Family::KimiK25 { "language_model." } else { "" }
    }

    /// Prefixes of tensors that the text model does not use.
    pub fn ignored_tensors(self) -> &'static [&'static str] {
        if self == Family::KimiK25 { &["vision_tower.", "mm_projector."] } else { &[] }
    }
}

/// A target model, or an autoregressive drafter, whatever its family.
#[derive(Debug, Clone)]
pub struct TargetConfig {
    /// The file that this was read from, for messages.
    pub path: PathBuf,
    /// Family.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// What each layer is; its length is the number of layers.
    pub layers: Vec<Layer>,
    /// Attention, the same in every layer but for [`Layer::window`].
    pub attention: Attention,
    /// Rotary embedding.
    pub rope: Rope,
    /// Epsilon of every RMSNorm.
    pub rms_eps: f64,
    /// Whether the head is the embedding, so that the checkpoint has no `lm_head.weight`.
    pub tied: bool,
    /// Longest context, in tokens.
    pub max_positions: usize,
    /// Beginning-of-sequence token, if the config names one.
    pub bos: Option<u32>,
    /// Tokens that end a response, ascending: those of `config.json` and of `generation_config.json` together; may be empty.
    pub eos: Vec<u32>,
    /// Multi-token-prediction layers that follow the others in the checkpoint (`model.layers.N.…` with N ≥ the number of
    /// layers); they are not part of the target.
    pub mtp_layers: usize,
    /// Packed INT4 modules, if the checkpoint has any.
    pub quantization: Option<Quantization>,
}

/// What differs from layer to layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Feed-forward part.
    pub ffn: Ffn,
    /// Sliding window: the query at position p sees positions greater than p − window, itself included. None: all.
    pub window: Option<usize>,
}

/// Attention of a family.
#[derive(Debug, Clone, PartialEq)]
pub enum Attention {
    /// Multi-head latent attention.
    Mla(Mla),
    /// Grouped-query attention.
    Gqa(Gqa),
}

/// Multi-head latent attention; sizes in elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Mla {
    /// Heads.
    pub heads: usize,
    /// Rank of the query projection; None: one full `q_proj`.
    pub q_lora: Option<usize>,
    /// Rank of the latent that is cached.
    pub kv_lora: usize,
    /// Dimensions of a query or key head without position.
    pub nope: usize,
    /// Dimensions with rotary position, shared by all heads of a key.
    pub rope: usize,
    /// Dimensions of a value head.
    pub v: usize,
}

/// Grouped-query attention; sizes in elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Gqa {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimensions of every head.
    pub head_dim: usize,
    /// RMSNorm over each head of q and k before the rotation (Qwen3, DFlash).
    pub qk_norm: bool,
    /// Whether the q, k, v and o projections have a bias.
    pub bias: bool,
}

/// Feed-forward part of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Ffn {
    /// SwiGLU.
    Dense {
        /// Width between the projections.
        intermediate: usize,
    },
    /// Mixture of experts.
    Moe(Moe),
}

/// Mixture of SwiGLU experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Routed experts.
    pub experts: usize,
    /// Routed experts that a token uses.
    pub top_k: usize,
    /// Width of one expert.
    pub intermediate: usize,
    /// Shared experts, stored as one SwiGLU of width `shared × intermediate`; 0: none.
    pub shared: usize,
    /// How experts are chosen and weighted.
    pub router: Router,
}

/// How the routed experts of a token are chosen and weighted.
#[derive(Debug, Clone, PartialEq)]
pub enum Router {
    /// DeepSeek-V3's `noaux_tc`: experts are chosen by sigmoid score plus `e_score_correction_bias`, inside the `topk_group`
    /// groups whose two best sums are largest, and weighted by the score without the bias.
    Sigmoid {
        /// Groups that the experts are split into.
        n_group: usize,
        /// Groups that may be chosen from.
        topk_group: usize,
        /// Whether the weights are divided by their sum.
        norm_topk: bool,
        /// Factor on the weights after that.
        scaling: f64,
    },
    /// Softmax over all experts, then the largest.
    Softmax {
        /// Whether the weights are divided by their sum.
        norm_topk: bool,
    },
}

impl TargetConfig {
    /// Reads `config.json` of a folder, and `generation_config.json` for more end-of-response tokens.
    ///
    /// # Errors
    /// A missing or damaged file; a field that is missing, out of range, unknown, or asks for what is not implemented.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let bytes = read_limited(&path, CONFIG_LIMIT)?;
        let mut config = Self::from_value(&parse(&bytes, &path)?, &path)?;
        let generation = dir.join("generation_config.json");
        if generation.exists() {
            let bytes = read_limited(&generation, CONFIG_LIMIT)?;
            eos::merge(&mut config.eos, config.vocab, &parse(&bytes, &generation)?, &generation)?;
        }
        Ok(config)
    }

    /// Reads the text of a `config.json`; `path` is for messages.
    ///
    /// # Errors
    /// As [`TargetConfig::from_dir`].
    pub fn from_json(text: &str, path: &Path) -> Result<Self> {
        Self::from_value(&parse(text.as_bytes(), path)?, path)
    }

    fn from_value(value: &Value, path: &Path) -> Result<Self> {
        let fields = Fields::new(path, "", value)?;
        match fields.str("model_type")? {
            "deepseek_v3" => mla::read(fields, Family::DeepseekV3),
            "kimi_k2" => mla::read(fields, Family::KimiK2),
            "kimi_k25" => mla::read_nested(fields),
            "qwen3" => gqa::read(fields, Family::Qwen3),
            "qwen3_moe" => gqa::read(fields, Family::Qwen3Moe),
            "llama" => gqa::read(fields, Family::Llama),
            other => Err(Error::field(
                path,
                "model_type",
                format!("\"{other}\" is not supported; deepseek_v3, kimi_k2, kimi_k25, qwen3, qwen3_moe and llama are"),
            )),
        }
    }

    /// Factor on q·k before the softmax, without [`Rope::attention_factor`]: head size to the power −½, under latent attention
    /// with YaRN also [`Rope::mla_scale_factor`].
    pub fn softmax_scale(&self) -> f64 {
        match &self.attention {
            Attention::Mla(m) => ((m.nope + m.rope) as f64).powf(-0.5) * self.rope.mla_scale_factor(),
            Attention::Gqa(g) => (g.head_dim as f64).powf(-0.5),
        }
    }
}
