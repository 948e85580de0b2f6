//! Checkpoints in the form that model hubs hold them: config, safetensors, packed INT4, tokenizer, chat template.
//!
//! Every engine reads its models through this crate. Nothing is guessed: a tensor that is missing, truncated or of another shape,
//! or a config field that is not honoured, is an error that names the file and the tensor or field.
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
