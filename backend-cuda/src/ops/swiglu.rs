//! The activation of a SwiGLU.

use super::vector::{blocks, defines, threads, widest};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// out = silu(gate) · up.
#[derive(Debug)]
pub struct Swiglu {
    kernel: Kernel,
    threads: usize,
    columns: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SwigluArgs {
    gate_up: Ptr,
    seq: Ptr,
    out: Ptr,
}

impl KernelArgs for SwigluArgs {}

impl Swiglu {
    /// For `inner` gates.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, inner: usize) -> Result<Self> {
        let vec = widest(dtype, &[inner]);
        let threads = threads(inner / vec, 256);
        let shapes = [("INNER", inner as i64), ("VEC", vec as i64), ("THREADS", threads as i64)];
        let kernel = gpu.kernel("swiglu.cu", "swiglu", &defines(dtype, &shapes))?;
        Ok(Self { kernel, threads, columns: blocks(inner / vec, threads) })
    }

    /// `gate_up` act \[rows, 2, inner\] → `out` act \[rows, inner\]. Where `seq` (i32 \[rows\], or [`Ptr::NULL`]) is negative,
    /// zeros.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, rows: u32, seq: Ptr, gate_up: Ptr, out: Ptr) -> Result<()> {
        let launch = Launch { grid: [rows, self.columns, 1], block: self.threads as u32, shared: 0 };
        gpu.launch_early(&self.kernel, launch, &SwigluArgs { gate_up, seq, out })
    }
}
