//! What stands between the products of latent attention and its cache: norms of the two latents, rotation, scale.

use super::rope::RopeTable;
use super::vector::{blocks, check_unit, defines, pairs, threads, widest};
use crate::device::{Define, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Epsilon of the norms over the two latents: the published models fix it, whatever `rms_norm_eps` says.
pub const LATENT_EPS: f32 = 1e-6;

/// Sizes of latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MlaShape {
    /// Heads of this rank.
    pub heads: usize,
    /// Width of the queries' latent; 0 = queries are not compressed.
    pub q_rank: usize,
    /// Width of the keys' and values' latent.
    pub kv_lora: usize,
    /// Dimensions of a head without position.
    pub nope: usize,
    /// Rotated dimensions of a head.
    pub rope: usize,
    /// Whether neighbours turn together, or halves.
    pub interleaved: bool,
}

/// Both steps.
#[derive(Debug)]
pub struct MlaPrep {
    latent: Kernel,
    query: Kernel,
    shape: MlaShape,
    threads: usize,
    unit: usize,
}

/// Operands of [`MlaPrep::latent`].
#[derive(Debug, Clone, Copy)]
pub struct MlaLatentCall {
    /// act: row r starts at `stride` · r and holds the queries' latent \[q_rank\], the latent \[kv_lora\], the key \[rope\].
    pub down: Ptr,
    /// Distance of the rows of `down`, in elements.
    pub stride: usize,
    /// Weight of the queries' norm, f32 \[q_rank\]; not read when `q_rank` is 0.
    pub q_norm: Ptr,
    /// Weight of the latent's norm, f32 \[kv_lora\].
    pub kv_norm: Ptr,
    /// Absolute positions, u32 \[rows\].
    pub position: Ptr,
    /// Cache rows that are written, u32 \[rows\].
    pub kv_row: Ptr,
    /// Sequences, i32 \[rows\]: where negative, zeros are written; [`Ptr::NULL`] = no padding.
    pub seq: Ptr,
    /// Normed latent of the queries, act \[rows, q_rank\]; not written when `q_rank` is 0.
    pub q_low: Ptr,
    /// act \[cache rows, kv_lora + rope\].
    pub cache: Ptr,
}

/// Operands of [`MlaPrep::query`].
#[derive(Debug, Clone, Copy)]
pub struct MlaQueryCall {
    /// act \[rows, heads, nope + rope\]; the first `nope` of each head are scaled in place.
    pub q: Ptr,
    /// act \[rows, heads, kv_lora + rope\]; the last `rope` of each head are written: rotated and scaled.
    pub absorbed: Ptr,
    /// Factor: what the softmax scores are scaled by.
    pub scale: f32,
    /// Absolute positions, u32 \[rows\].
    pub position: Ptr,
    /// Sequences, i32 \[rows\]: where negative, zeros are written; [`Ptr::NULL`] = no padding.
    pub seq: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MlaLatentArgs {
    down: Ptr,
    q_norm: Ptr,
    kv_norm: Ptr,
    cos: Ptr,
    sin: Ptr,
    position: Ptr,
    kv_row: Ptr,
    seq: Ptr,
    q_low: Ptr,
    cache: Ptr,
    stride: u64,
    eps: f32,
    unused: u32,
}

impl KernelArgs for MlaLatentArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MlaQueryArgs {
    q: Ptr,
    absorbed: Ptr,
    cos: Ptr,
    sin: Ptr,
    position: Ptr,
    seq: Ptr,
    rows: u32,
    scale: f32,
}

impl KernelArgs for MlaQueryArgs {}

impl MlaPrep {
    /// For these shapes.
    ///
    /// # Errors
    /// Sizes that are odd, the compiler's or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, shape: MlaShape) -> Result<Self> {
        let MlaShape { heads, q_rank, kv_lora, nope, rope, interleaved } = shape;
        let all = [q_rank, kv_lora, nope, rope];
        if let Some(odd) = all.iter().find(|n| !n.is_multiple_of(2)) {
            return Err(CudaError::Model(format!("latent attention with a part of {odd} dimensions: must be even")));
        }
        let (vec, pairs) = (widest(dtype, &all), pairs(rope / 2, &all));
        let threads = threads(q_rank.max(kv_lora) / vec, 512);
        let shared: [Define; 6] = [
            ("Q_RANK", q_rank as i64),
            ("KV_LORA", kv_lora as i64),
            ("ROPE", rope as i64),
            ("INTERLEAVED", i64::from(interleaved)),
            ("VEC", vec as i64),
            ("PAIRS", pairs as i64),
        ];
        let with = |own: &[Define]| defines(dtype, &[&shared, own].concat());
        Ok(Self {
            latent: gpu.kernel("mla_prep.cu", "mla_latent", &with(&[("THREADS", threads as i64)]))?,
            query: gpu.kernel("mla_prep.cu", "mla_query", &with(&[("HEADS", heads as i64), ("NOPE", nope as i64)]))?,
            shape,
            threads,
            unit: vec.max(2 * pairs),
        })
    }

    /// Norms both latents, rotates the key, and writes the cache.
    ///
    /// # Errors
    /// A rope table of another width, a stride that does not fit the kernel's accesses, or the driver's.
    pub fn latent(&self, gpu: &Gpu, rows: u32, rope: &RopeTable, call: &MlaLatentCall) -> Result<()> {
        self.check(rope)?;
        check_unit("mla_latent", self.unit, &[("stride", call.stride)])?;
        let MlaLatentCall { down, stride, q_norm, kv_norm, position, kv_row, seq, q_low, cache } = *call;
        let (cos, sin) = (rope.cos(), rope.sin());
        let stride = stride as u64;
        let args = MlaLatentArgs {
            down,
            q_norm,
            kv_norm,
            cos,
            sin,
            position,
            kv_row,
            seq,
            q_low,
            cache,
            stride,
            eps: LATENT_EPS,
            unused: 0,
        };
        let parts = if self.shape.q_rank > 0 { 3 } else { 2 };
        let launch = Launch { grid: [rows, parts, 1], block: self.threads as u32, shared: 0 };
        gpu.launch_early(&self.latent, launch, &args)
    }

    /// Scales the queries and rotates their last part into the absorbed queries.
    ///
    /// # Errors
    /// A rope table of another width, or the driver's.
    pub fn query(&self, gpu: &Gpu, rows: u32, rope: &RopeTable, call: &MlaQueryCall) -> Result<()> {
        self.check(rope)?;
        let MlaQueryCall { q, absorbed, scale, position, seq } = *call;
        let args = MlaQueryArgs { q, absorbed, cos: rope.cos(), sin: rope.sin(), position, seq, rows, scale };
        gpu.launch_early(&self.query, Launch::flat(blocks(rows as usize * self.shape.heads, 4), 128), &args)
    }

    fn check(&self, rope: &RopeTable) -> Result<()> {
        if rope.half() * 2 == self.shape.rope && rope.interleaved() == self.shape.interleaved {
            return Ok(());
        }
        let why = format!("the rope table holds {} pairs, the kernel was compiled for {:?}", rope.half(), self.shape);
        Err(CudaError::Kernel { kernel: "mla_prep".into(), why })
    }
}
