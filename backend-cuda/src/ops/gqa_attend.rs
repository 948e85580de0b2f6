//! Grouped-query attention of tree rows over the cache.

use super::rows::{Bucket, RowsPtr};
use super::vector::{blocks, defines, widest};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// out = softmax(q · Kᵀ) · V over what each row sees: the past of its sequence (a window limits it), and the rows of the pass
/// that its mask names.
#[derive(Debug)]
pub struct GqaAttend {
    kernel: Kernel,
    heads: usize,
}

/// Operands of [`GqaAttend::run`].
#[derive(Debug, Clone, Copy)]
pub struct GqaAttendCall {
    /// The rows of the pass.
    pub rows: RowsPtr,
    /// Queries, scaled, act \[rows, heads, head_dim\].
    pub q: Ptr,
    /// Keys, act \[cache rows, kv_heads, head_dim\]; the pass's own rows are in it already.
    pub k_cache: Ptr,
    /// Values, the same shape.
    pub v_cache: Ptr,
    /// act \[rows, heads, head_dim\]; zeros in padded rows.
    pub out: Ptr,
    /// The query at position p sees positions greater than p − window; 0 = no window.
    pub window: u32,
    /// Whether the window also limits the pass's own rows (a target), or the past alone (a drafter's block).
    pub window_tail: bool,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GqaAttendArgs {
    rows: RowsPtr,
    q: Ptr,
    k: Ptr,
    v: Ptr,
    out: Ptr,
    window: u32,
    window_tail: u32,
    count: u32,
    unused: u32,
}

impl KernelArgs for GqaAttendArgs {}

impl GqaAttend {
    /// For these heads, buckets up to `max` and at most `max_context` tokens of a sequence. Owns its working memory, so one
    /// serves all layers of a model, one after the other.
    ///
    /// # Errors
    /// Heads that do not divide, no memory, the compiler's or the driver's.
    pub fn new(
        gpu: &Gpu,
        dtype: Dtype,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        _max: Bucket,
        _max_context: usize,
    ) -> Result<Self> {
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(CudaError::Model(format!(
                "{heads} query heads do not share {kv_heads} key/value heads evenly"
            )));
        }
        let shapes = [
            ("HEADS", heads as i64),
            ("KV_HEADS", kv_heads as i64),
            ("DIM", head_dim as i64),
            ("VEC", widest(dtype, &[head_dim]) as i64),
        ];
        let kernel = gpu.kernel("gqa_attend.cu", "gqa_attend", &defines(dtype, &shapes))?;
        Ok(Self { kernel, heads })
    }

    /// Attends for the rows of a pass.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &GqaAttendCall) -> Result<()> {
        let GqaAttendCall { rows, q, k_cache, v_cache, out, window, window_tail } = *call;
        let args = GqaAttendArgs {
            rows,
            q,
            k: k_cache,
            v: v_cache,
            out,
            window,
            window_tail: u32::from(window_tail),
            count: bucket.rows,
            unused: 0,
        };
        gpu.launch(&self.kernel, Launch::flat(blocks(bucket.rows as usize * self.heads, 4), 128), &args)
    }
}
