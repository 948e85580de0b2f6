//! Weights of dense products, and the product.

use crate::device::{Buffer, Dtype, Gemm, Gpu, Matrix, Ptr};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// A weight \[out, in\] of a dense product on the device, or some rows of one.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    data: Arc<Buffer<u8>>,
    first: usize,
    pub out: usize,
    pub inp: usize,
    pub dtype: Dtype,
}

impl Weight {
    /// A weight that fills `data`.
    pub fn new(data: Buffer<u8>, out: usize, inp: usize, dtype: Dtype) -> Self {
        Self { data: Arc::new(data), first: 0, out, inp, dtype }
    }

    /// Some of its rows, in the same memory.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        Self { first: self.first + rows.start, out: rows.len(), ..self.clone() }
    }

    /// First element.
    pub fn ptr(&self) -> Ptr {
        self.data.at(self.first * self.inp * self.dtype.bytes())
    }

    /// y = x · wᵀ for `rows` rows without gaps, y in the type of x.
    pub fn apply(&self, gpu: &Gpu, rows: usize, x: Ptr, y: Ptr) -> Result<()> {
        self.product(gpu, rows, x, y, self.dtype, false)
    }

    /// y += x · wᵀ.
    pub fn add(&self, gpu: &Gpu, rows: usize, x: Ptr, y: Ptr) -> Result<()> {
        self.product(gpu, rows, x, y, self.dtype, true)
    }

    /// The same with y in f32.
    pub fn apply_f32(&self, gpu: &Gpu, rows: usize, x: Ptr, y: Ptr) -> Result<()> {
        self.product(gpu, rows, x, y, Dtype::F32, false)
    }

    fn product(&self, gpu: &Gpu, rows: usize, x: Ptr, y: Ptr, dtype: Dtype, add: bool) -> Result<()> {
        gpu.gemm(&Gemm {
            rows,
            outputs: self.out,
            inputs: self.inp,
            batch: 1,
            x: Matrix::new(x, self.inp, self.dtype),
            w: Matrix::new(self.ptr(), self.inp, self.dtype),
            y: Matrix::new(y, self.out, dtype),
            add,
        })
    }
}

/// Rows of `count` heads of `width` side by side, as a batch of one matrix a head.
pub(super) fn per_head(at: Ptr, count: usize, width: usize, dtype: Dtype) -> Matrix {
    Matrix { at, stride: count * width, batch_stride: width, dtype }
}
