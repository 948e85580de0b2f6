//! Checkpoints in the form that model hubs hold them: config, safetensors, packed INT4, tokenizer, chat template.
//!
//! Every engine reads its models through this crate. Nothing is guessed: a tensor that is missing, truncated or of another shape,
//! or a config field that is not honoured, is an error that names the file and the tensor or field.
//!
//! ```
//! use std::path::Path;
//! use treeline_checkpoint::{Attention, TargetConfig};
//!
//! let text = r#"{"model_type": "llama", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 128,
//!     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
//!     "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}"#;
//! let config = TargetConfig::from_json(text, Path::new("config.json"))?;
//! assert!(matches!(config.attention, Attention::Gqa(gqa) if gqa.head_dim == 16));
//!
//! // What is not honoured is an error, not a guess.
//! let capped = text.replacen('{', r#"{"attn_logit_softcapping": 50.0, "#, 1);
//! let error = TargetConfig::from_json(&capped, Path::new("config.json")).unwrap_err();
//! assert!(error.to_string().starts_with("config.json: `attn_logit_softcapping`: not a field that this model family"));
//! # Ok::<(), treeline_checkpoint::Error>(())
//! ```
//!
//! A folder is read with [`TargetConfig::from_dir`] or [`DflashConfig::from_dir`], [`Weights::open`], [`Tokenizer::open`] and
//! [`ChatTemplate::open`]; [`digest()`] names what was read.
//!
//! The one `unsafe` is the memory map of a shard.

#![deny(unsafe_code)]

mod config;
mod error;
mod int4;
mod json;
mod tokenizer;
mod weights;

pub use config::{
    Attention, AttentionFactor, DflashConfig, FactorSource, Family, Ffn, GROUP, Gqa, Layer, Llama3Scaling, Mla, Moe,
    Quantization, Rope, RopeScaling, Router, TargetConfig, Yarn,
};
pub use error::{Error, Result};
pub use int4::PackedInt4;
pub use tokenizer::{ChatTemplate, Message, Prompt, TextStream, Tokenizer};
pub use weights::{Digest, Dtype, FileDigest, Linear, TensorView, Thoroughness, Weights, digest};
