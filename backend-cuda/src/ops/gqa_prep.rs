//! From the product of queries, keys and values to rotated queries and the cache.

use super::rope::RopeTable;
use super::vector::{blocks, check_unit, defines, pairs};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Per head: bias, RMSNorm (queries and keys), rotation (queries and keys), scale (queries); keys and values go to the cache.
#[derive(Debug)]
pub struct GqaPrep {
    kernel: Kernel,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    unit: usize,
}

/// Operands of [`GqaPrep::run`]. Sizes are in elements.
#[derive(Debug, Clone, Copy)]
pub struct GqaPrepCall {
    /// Products, act: row r starts at `stride` · r and holds queries \[heads, head_dim\], keys and values
    /// \[kv_heads, head_dim\] each.
    pub qkv: Ptr,
    /// Distance of the rows of `qkv`.
    pub stride: usize,
    /// f32 \[heads + 2 · kv_heads, head_dim\], or [`Ptr::NULL`].
    pub bias: Ptr,
    /// Weight of the queries' norm, f32 \[head_dim\], or [`Ptr::NULL`].
    pub q_norm: Ptr,
    /// Weight of the keys' norm, f32 \[head_dim\], or [`Ptr::NULL`].
    pub k_norm: Ptr,
    /// Added to the mean square in both norms.
    pub eps: f32,
    /// Factor of the queries: what the softmax scores are scaled by.
    pub scale: f32,
    /// Absolute positions, u32 \[rows\].
    pub position: Ptr,
    /// Cache rows that are written, u32 \[rows\]; the sink for padding.
    pub kv_row: Ptr,
    /// Sequences, i32 \[rows\]: where negative, zeros are written; [`Ptr::NULL`] = no padding.
    pub seq: Ptr,
    /// Queries, act \[rows, heads, head_dim\].
    pub q: Ptr,
    /// Keys, act \[cache rows, kv_heads, head_dim\].
    pub k_cache: Ptr,
    /// Values, act \[cache rows, kv_heads, head_dim\].
    pub v_cache: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GqaPrepArgs {
    qkv: Ptr,
    bias: Ptr,
    q_norm: Ptr,
    k_norm: Ptr,
    cos: Ptr,
    sin: Ptr,
    position: Ptr,
    kv_row: Ptr,
    seq: Ptr,
    q: Ptr,
    k_cache: Ptr,
    v_cache: Ptr,
    stride: u64,
    rows: u32,
    eps: f32,
    scale: f32,
    unused: u32,
}

impl KernelArgs for GqaPrepArgs {}

impl GqaPrep {
    /// For these heads; `heads` = 0 leaves the queries out (a drafter's context). `interleaved` is that of the rope table.
    ///
    /// # Errors
    /// An odd `head_dim`, the compiler's or the driver's.
    pub fn new(
        gpu: &Gpu,
        dtype: Dtype,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        interleaved: bool,
    ) -> Result<Self> {
        if !head_dim.is_multiple_of(2) {
            return Err(CudaError::Model(format!("rotary embedding of heads of {head_dim} dimensions: must be even")));
        }
        let pairs = pairs(head_dim / 2, &[]);
        let shapes = [
            ("HEADS", heads as i64),
            ("KV_HEADS", kv_heads as i64),
            ("DIM", head_dim as i64),
            ("PAIRS", pairs as i64),
            ("INTERLEAVED", i64::from(interleaved)),
        ];
        let kernel = gpu.kernel("gqa_prep.cu", "gqa_prep", &defines(dtype, &shapes))?;
        Ok(Self { kernel, heads, kv_heads, head_dim, unit: 2 * pairs })
    }

    /// Prepares `rows` rows.
    ///
    /// # Errors
    /// A rope table of another width, a stride that does not fit the kernel's accesses, or the driver's.
    pub fn run(&self, gpu: &Gpu, rows: u32, rope: &RopeTable, call: &GqaPrepCall) -> Result<()> {
        if rope.half() * 2 != self.head_dim {
            let why = format!("{} rotated dimensions in heads of {}", rope.half() * 2, self.head_dim);
            return Err(CudaError::Kernel { kernel: "gqa_prep".into(), why });
        }
        check_unit("gqa_prep", self.unit, &[("stride", call.stride)])?;
        let c = *call;
        let args = GqaPrepArgs {
            qkv: c.qkv,
            bias: c.bias,
            q_norm: c.q_norm,
            k_norm: c.k_norm,
            cos: rope.cos(),
            sin: rope.sin(),
            position: c.position,
            kv_row: c.kv_row,
            seq: c.seq,
            q: c.q,
            k_cache: c.k_cache,
            v_cache: c.v_cache,
            stride: c.stride as u64,
            rows,
            eps: c.eps,
            scale: c.scale,
            unused: 0,
        };
        let heads = rows as usize * (self.heads + 2 * self.kv_heads);
        gpu.launch_early(&self.kernel, Launch::flat(blocks(heads, 4), 128), &args)
    }
}
