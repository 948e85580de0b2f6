//! What a launch of the few-row products computes.

use super::OUTPUTS;
use crate::device::{Matrix, Ptr};

/// What one launch computes, for each of `batch` problems. x and weights are bf16.
#[derive(Debug, Clone, Copy)]
pub struct DenseCall {
    /// Rows.
    pub rows: usize,
    /// Inputs of each.
    pub inputs: usize,
    /// Problems.
    pub batch: usize,
    /// Rows \[rows, inputs\].
    pub x: Matrix,
    /// Weight \[outputs, inputs\] without gaps.
    pub w: Matrix,
    /// Rows of `w`; 0 = none.
    pub outputs: usize,
    /// Result \[rows, outputs\], bf16 or f32.
    pub y: Matrix,
    /// Whether y is added to (bf16).
    pub add: bool,
    /// A SwiGLU of the same rows (batch 1).
    pub glu: Option<Glu>,
    /// y are the queries of latent attention (batch 1, bf16).
    pub queries: Option<Queries>,
}

/// What becomes of queries \[rows, heads, nope + rope\] of latent attention: all are scaled; the last `rope` of each head are
/// turned, neighbours together, and do not go to y but behind the head's absorbed query.
#[derive(Debug, Clone, Copy)]
pub struct Queries {
    /// Cosines, f32 \[positions, rope / 2\].
    pub cos: Ptr,
    /// Sines.
    pub sin: Ptr,
    /// Absolute positions, u32 \[rows\].
    pub position: Ptr,
    /// bf16 \[rows, heads, latent + rope\].
    pub absorbed: Ptr,
    /// Dimensions without position; even, as is `rope`.
    pub nope: usize,
    /// Dimensions with position.
    pub rope: usize,
    /// Width of the latent.
    pub latent: usize,
    /// Factor of the queries.
    pub scale: f32,
}

/// z = silu(gate · x) · (up · x).
#[derive(Debug, Clone, Copy)]
pub struct Glu {
    /// Gate, then up, bf16 \[2, inner, inputs\].
    pub w: Ptr,
    /// Width.
    pub inner: usize,
    /// Result, bf16 \[rows, inner\].
    pub z: Ptr,
}

impl DenseCall {
    /// Blocks that the outputs of one problem need.
    pub(super) fn tiles(&self) -> usize {
        self.outputs.div_ceil(OUTPUTS) + self.glu.map_or(0, |g| g.inner.div_ceil(OUTPUTS / 2))
    }
}
