//! Latent attention (MLA in its absorbed form) of the rows of a pass: past and draft tree in one softmax.

use super::rows::{Bucket, RowsPtr};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// out\[r, h\] = Σ_k softmax_k(q\[r, h\] · key_k) · value_k over the keys that row r sees; a key is a row of the cache, its
/// value the first `kv_lora` numbers of the same row.
#[derive(Debug)]
pub struct MlaAttend {
    any: Kernel,
    heads: usize,
}

/// Operands of one [`MlaAttend::run`]. Padded rows of `out` become zero.
#[derive(Debug, Clone, Copy)]
pub struct MlaCall {
    /// Rows of the pass.
    pub rows: RowsPtr,
    /// Queries, act \[rows, heads, kv_lora + rope\], already scaled.
    pub q: Ptr,
    /// Cache of the layer, act \[cache rows, kv_lora + rope\]; the rows of this pass are in it.
    pub cache: Ptr,
    /// Output, act \[rows, heads, kv_lora\].
    pub out: Ptr,
    /// A row sees keys at positions above its own minus this; 0 = all.
    pub window: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AnyArgs {
    rows: RowsPtr,
    q: Ptr,
    cache: Ptr,
    out: Ptr,
    window: u32,
    unused: u32,
}

impl KernelArgs for AnyArgs {}

impl MlaAttend {
    /// For passes up to `max_bucket` over at most `max_context` keys a sequence.
    ///
    /// # Errors
    /// A shape of zero, the compiler's or the driver's.
    pub fn new(
        gpu: &Gpu,
        dtype: Dtype,
        heads: usize,
        kv_lora: usize,
        rope: usize,
        max_bucket: Bucket,
        max_context: usize,
    ) -> Result<Self> {
        if heads * kv_lora * rope == 0 || max_bucket.rows == 0 || max_bucket.seqs == 0 || max_context == 0 {
            let why = format!("latent attention needs heads, sizes and rows: {heads} heads of {kv_lora} + {rope}");
            return Err(CudaError::Model(why));
        }
        let mut shapes = vec![("HEADS", heads as i64), ("KV_LORA", kv_lora as i64), ("ROPE", rope as i64)];
        if dtype == Dtype::Bf16 {
            shapes.push(("ACT_BF16", 1));
        }
        Ok(Self { any: gpu.kernel("mla_attend_any.cu", "mla_attend_any", &shapes)?, heads })
    }

    /// Queues it; the launch depends on `bucket` alone.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &MlaCall) -> Result<()> {
        let launch = Launch { grid: [self.heads as u32, bucket.rows, 1], block: 64, shared: 0 };
        let args = AnyArgs {
            rows: call.rows,
            q: call.q,
            cache: call.cache,
            out: call.out,
            window: call.window,
            unused: 0,
        };
        gpu.launch(&self.any, launch, &args)
    }
}
