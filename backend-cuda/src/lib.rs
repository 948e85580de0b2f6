//! The CUDA engine: the same round as the CPU engine on an NVIDIA GPU, with trees of any budget in CUDA graphs.
//!
//! Layers, each using only those before it: `ffi` (libraries found at run time, typed errors) → `device` (memory, kernels,
//! graphs, products; a real GPU or the emulator) → `ops` (one kernel and its arguments a file) → `model` (families, loading,
//! sharding) → `engine` (slots, rounds, graphs by size).

pub mod device;
pub mod engine;
mod error;
mod ffi;
pub mod kernels;
pub mod model;
pub mod ops;
pub mod probe;
#[doc(hidden)]
pub mod testing;

pub use error::{CudaError, Result};
