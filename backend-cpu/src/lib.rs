//! The reference engine: real models on the CPU in f32.
//!
//! A row's logits depend on its path only, bit for bit, whatever the batch, the tree and the chunking. So greedy output
//! under every tree equals plain decoding, and a trace recorded from plain decoding replays every policy exactly.
#![forbid(unsafe_code)]

mod error;
mod kernel;
mod kv;
mod model;
mod plan;
mod scorer;

pub use error::{CpuError, Result};
pub use model::Model;
pub use scorer::Scorer;

