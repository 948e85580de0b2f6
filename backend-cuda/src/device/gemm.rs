//! Dense matrix products in the layout of checkpoints.

use super::Ptr;

/// Type of the elements of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// A row-major matrix in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// First element.
    pub at: Ptr,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements from one matrix of a batch to the next; 0 where all share it.
    pub batch_stride: usize,
    /// Element type.
    pub dtype: Dtype,
}

impl Matrix {
    /// Rows of `columns` elements without gaps, the same for the whole batch.
    #[must_use]
    pub fn new(at: Ptr, columns: usize, dtype: Dtype) -> Self {
        Self { at, stride: columns, batch_stride: 0, dtype }
    }
}

/// y\[r, o\] = Σ_i x\[r, i\] · w\[o, i\] (+ y\[r, o\]), summed in f32, for each of `batch` problems.
///
/// x and w have one type, f32 (no TF32) or bf16; y has that type or f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemm {
    /// Rows of x and y.
    pub rows: usize,
    /// Rows of w, columns of y.
    pub outputs: usize,
    /// Columns of x and w.
    pub inputs: usize,
    /// Problems.
    pub batch: usize,
    /// Input.
    pub x: Matrix,
    /// Weight, as a checkpoint stores it.
    pub w: Matrix,
    /// Output.
    pub y: Matrix,
    /// Whether y is added to.
    pub add: bool,
}
