//! Residual addition with RMSNorm, in one pass.

use super::vector::{check_unit, defines, threads, widest};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// x += add + add2 + bias; out = x / √(mean(x²) + eps) · weight.
#[derive(Debug)]
pub struct Norm {
    kernel: Kernel,
    dtype: Dtype,
    width: usize,
    vec: usize,
    threads: usize,
}

/// Operands of one [`Norm::run`]; whatever is [`Ptr::NULL`] is left out. Sizes are in elements.
#[derive(Debug, Clone, Copy, Default)]
pub struct NormCall {
    /// Residual stream, f32 \[rows, width\]; written only if something is added and there is no `index`. Without it the input
    /// is the sum of the addends.
    pub x: Ptr,
    /// First addend, act \[rows, width\].
    pub add: Ptr,
    /// Second addend, act \[rows, width\].
    pub add2: Ptr,
    /// Addend of every row, f32 \[width\].
    pub bias: Ptr,
    /// Weight, f32 \[width\].
    pub weight: Ptr,
    /// Added to the mean square.
    pub eps: f32,
    /// Normed rows, act; padding becomes zero.
    pub out: Ptr,
    /// Distance of the rows of `out`.
    pub out_stride: usize,
    /// Copy of the sum before the norm, act; padding becomes zero.
    pub tap: Ptr,
    /// Distance of the rows of `tap`.
    pub tap_stride: usize,
    /// Column of `tap` at which the copy starts.
    pub tap_column: usize,
    /// Row of the input that each row of `out` comes from, u32 \[rows\]; `u32::MAX` = padding.
    pub index: Ptr,
    /// Sequence of each row of the input, i32; negative = padding.
    pub seq: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormArgs {
    x: Ptr,
    add: Ptr,
    add2: Ptr,
    bias: Ptr,
    weight: Ptr,
    out: Ptr,
    tap: Ptr,
    index: Ptr,
    seq: Ptr,
    out_stride: u64,
    tap_stride: u64,
    eps: f32,
    unused: u32,
}

impl KernelArgs for NormArgs {}

impl Norm {
    /// For rows of `width` numbers with activations of this type.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, width: usize) -> Result<Self> {
        let vec = widest(dtype, &[width]);
        let threads = threads(width / vec, 1024);
        let items = (width / vec).div_ceil(threads);
        let shapes =
            [("WIDTH", width as i64), ("VEC", vec as i64), ("THREADS", threads as i64), ("ITEMS", items as i64)];
        let kernel = gpu.kernel("norm.cu", "rms_norm", &defines(dtype, &shapes))?;
        Ok(Self { kernel, dtype, width, vec, threads })
    }

    /// Width of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Norms `rows` rows.
    ///
    /// # Errors
    /// Strides that do not fit the width of the kernel's accesses, or the driver's.
    pub fn run(&self, gpu: &Gpu, rows: u32, call: &NormCall) -> Result<()> {
        let sizes = [("out_stride", call.out_stride), ("tap_stride", call.tap_stride), ("tap_column", call.tap_column)];
        check_unit("norm", self.vec, &sizes)?;
        let NormCall { x, add, add2, bias, weight, eps, out, index, seq, .. } = *call;
        let tap = if call.tap == Ptr::NULL { Ptr::NULL } else { call.tap.offset(call.tap_column * self.dtype.bytes()) };
        let args = NormArgs {
            x,
            add,
            add2,
            bias,
            weight,
            out,
            tap,
            index,
            seq,
            out_stride: call.out_stride as u64,
            tap_stride: call.tap_stride as u64,
            eps,
            unused: 0,
        };
        gpu.launch_early(&self.kernel, Launch::flat(rows, self.threads as u32), &args)
    }
}
