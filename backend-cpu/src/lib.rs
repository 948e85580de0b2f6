//! The reference engine: real models on the CPU in f32.
//!
//! A row's logits depend on its path only, bit for bit, whatever the batch, the tree and the chunking. So greedy output
//! under every tree equals plain decoding, and a trace recorded from plain decoding replays every policy exactly.
#![forbid(unsafe_code)]

mod clock;
mod draft;
mod engine;
mod error;
mod features;
mod kernel;
mod kv;
mod model;
mod pair;
mod plan;
mod scorer;
mod seeded;
mod verifier;

pub use draft::{CpuDrafter, CpuDrafts};
pub use engine::{CpuEngine, EngineSettings};
pub use error::{CpuError, Result};
pub use features::CpuFeatures;
pub use model::Model;
pub use pair::{CpuPair, DrafterSource};
pub use scorer::Scorer;
pub use verifier::{CpuVerdict, CpuVerifier};

#[cfg(test)]
mod tests;
