//! The kernel `check.cu`, its arguments, and what it computes.

use bytemuck::{Pod, Zeroable};
use treeline_cuda::device::{Gpu, Kernel, KernelArgs, Ptr};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Check {
    pub x: Ptr,
    pub y: Ptr,
    pub count: u32,
    pub words: u32,
    pub scale: f32,
    pub repeats: u32,
}

impl KernelArgs for Check {}

pub const THREADS: u32 = 256;

pub fn kernel(gpu: &Gpu) -> Kernel {
    gpu.kernel("check.cu", "check", &[]).unwrap()
}
