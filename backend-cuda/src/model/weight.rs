//! Weights of dense products, and the product.

use crate::device::{Buffer, Dtype, Gemm, Gpu, Matrix, Ptr};
use crate::error::Result;
use crate::ops::dense::{Dense, DenseCall, Glu, Queries};
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
    few: Few,
}

/// Own kernels for few rows of bf16; none in f32.
pub(super) type Few = Option<Arc<Dense>>;

/// Elements of weights beyond which the library reads them faster, measured on an H200 (`benches/dense.rs`): a launch and the
/// sum over splits no longer count then.
const LARGE: usize = 16 << 20;

/// Rows up to which own kernels beat the library's in one product …
const ROWS: usize = 24;

/// … and where one launch does the work of two or three.
const ROWS_FUSED: usize = 40;

impl Weight {
    /// A weight that fills `data`.
    pub fn new(data: Buffer<u8>, out: usize, inp: usize, dtype: Dtype, few: Few) -> Self {
        Self { data: Arc::new(data), first: 0, out, inp, dtype, few }
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
        let x = Matrix::new(x, self.inp, self.dtype);
        let (w, y) = (Matrix::new(self.ptr(), self.inp, self.dtype), Matrix::new(y, self.out, dtype));
        product(gpu, &self.few, &Gemm { rows, outputs: self.out, inputs: self.inp, batch: 1, x, w, y, add })
    }

    /// z = silu(gate · x) · (up · x) in one launch, where this weight is gate above up, together with y = x · `also`ᵀ (f32)
    /// where there is one. None: there is no kernel for so many rows or such shapes.
    pub fn glu<'a>(&'a self, rows: usize, x: Ptr, z: Ptr, also: Option<(&Self, Ptr)>) -> Option<Fused<'a>> {
        let none = Matrix::new(Ptr::NULL, self.inp, self.dtype);
        let call = DenseCall {
            rows,
            inputs: self.inp,
            batch: 1,
            x: Matrix::new(x, self.inp, self.dtype),
            w: also.map_or(none, |(w, _)| Matrix::new(w.ptr(), w.inp, w.dtype)),
            outputs: also.map_or(0, |(w, _)| w.out),
            y: also.map_or(none, |(w, y)| Matrix::new(y, w.out, Dtype::F32)),
            add: false,
            glu: Some(Glu { w: self.ptr(), inner: self.out / 2, z }),
            queries: None,
        };
        let worth = rows <= ROWS_FUSED && self.out * self.inp <= LARGE;
        let few = self.few.as_ref().filter(|few| worth && few.serves(&call))?;
        Some(Fused { few, call })
    }
}

impl Weight {
    /// Queries of latent attention, scaled, turned and put in place in one launch. None: as for [`Weight::glu`].
    pub fn queries(&self, rows: usize, x: Ptr, y: Ptr, queries: Queries) -> Option<Fused<'_>> {
        let call = DenseCall {
            rows,
            inputs: self.inp,
            batch: 1,
            x: Matrix::new(x, self.inp, self.dtype),
            w: Matrix::new(self.ptr(), self.inp, self.dtype),
            outputs: self.out,
            y: Matrix::new(y, self.out, self.dtype),
            add: false,
            glu: None,
            queries: Some(queries),
        };
        let even = [queries.nope, queries.rope].iter().all(|n| n.is_multiple_of(2));
        let worth = rows <= ROWS_FUSED && self.out * self.inp <= LARGE;
        let few = self.few.as_ref().filter(|few| even && worth && few.serves(&call))?;
        Some(Fused { few, call })
    }
}

/// Products that one launch makes.
pub(super) struct Fused<'a> {
    few: &'a Dense,
    call: DenseCall,
}

impl Fused<'_> {
    pub fn run(&self, gpu: &Gpu) -> Result<()> {
        self.few.run(gpu, &self.call)
    }
}

/// A product by the own kernels where they serve it, else by the library.
pub(super) fn product(gpu: &Gpu, few: &Few, gemm: &Gemm) -> Result<()> {
    let Gemm { rows, outputs, inputs, batch, x, w, y, add } = *gemm;
    let call = DenseCall { rows, inputs, batch, x, w, outputs, y, add, glu: None, queries: None };
    let worth = rows <= ROWS && outputs * inputs * batch <= LARGE && !(add && y.dtype == Dtype::F32);
    match few {
        Some(few) if worth && few.serves(&call) => few.run(gpu, &call),
        _ => gpu.gemm(gemm),
    }
}

/// Rows of `count` heads of `width` side by side, as a batch of one matrix a head.
pub(super) fn per_head(at: Ptr, count: usize, width: usize, dtype: Dtype) -> Matrix {
    Matrix { at, stride: count * width, batch_stride: width, dtype }
}
