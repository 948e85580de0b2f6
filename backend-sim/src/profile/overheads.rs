//! Times of a deployment that no op table has.

use super::load::Fields;
use super::{ProfileError, Sources};

/// Times that no op table has.
#[derive(Debug, Clone, PartialEq)]
pub struct Overheads {
    /// Host work of a step that the GPU waits for, ms.
    pub host_ms: f64,
    /// Further host work of a speculative round that the GPU waits for, ms.
    pub round_host_ms: f64,
    /// One launch in eager execution, µs.
    pub launch_us: f64,
    /// Launches of a layer in eager execution.
    pub launches_per_layer: u32,
    /// A kernel too small for any other limit inside a graph, µs.
    pub small_kernel_us: f64,
    /// Such kernels of a layer around attention: norms, rotation, cache write; the absorbed products are priced apart.
    pub attention_small_kernels: u32,
    /// Such kernels of a layer around the feed-forward part: norm, choice of experts, activation, sum.
    pub ffn_small_kernels: u32,
    /// Final norm, gather of the head's parts and sampling, µs a step.
    pub sample_us: f64,
    /// Building the trees of a batch, µs a round.
    pub tree_us: f64,
    /// Walking the verdict, µs a round.
    pub walk_us: f64,
    /// Moving the cache entries of accepted rows, µs a round.
    pub commit_us: f64,
}

impl Overheads {
    pub(super) fn read(f: Fields<'_, '_>, s: &mut Sources) -> Result<Self, ProfileError> {
        let overheads = Self {
            host_ms: f.amount("host_ms", s)?,
            round_host_ms: f.amount("round_host_ms", s)?,
            launch_us: f.amount("launch_us", s)?,
            launches_per_layer: f.field("launches_per_layer", s)?,
            small_kernel_us: f.amount("small_kernel_us", s)?,
            attention_small_kernels: f.field("attention_small_kernels", s)?,
            ffn_small_kernels: f.field("ffn_small_kernels", s)?,
            sample_us: f.amount("sample_us", s)?,
            tree_us: f.amount("tree_us", s)?,
            walk_us: f.amount("walk_us", s)?,
            commit_us: f.amount("commit_us", s)?,
        };
        f.finish()?;
        Ok(overheads)
    }
}
