//! Grouped-query attention of tree rows over the cache.

use super::gqa_tiles::GqaTiles;
use super::rows::{Bucket, RowsPtr};
use super::vector::{blocks, defines, widest};
use crate::device::{Arch, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Heads of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GqaShape {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// How the attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GqaForm {
    /// One warp a row and head, in f32: any shape, both types.
    Any,
    /// `mma.sync` in bfloat16: every architecture; heads of 64 or 128 dimensions.
    Portable,
    /// `wgmma` where a tile has more than 32 (row, head) pairs, else as [`GqaForm::Portable`]: Hopper; the same heads.
    Hopper,
}

impl GqaForm {
    /// The forms that serve this shape on this device, the fastest last. The emulator runs them all.
    #[must_use]
    pub fn all(gpu: &Gpu, dtype: Dtype, shape: GqaShape) -> Vec<Self> {
        let mut all = vec![Self::Any];
        if dtype == Dtype::Bf16 && [64, 128].contains(&shape.head_dim) {
            all.push(Self::Portable);
            if matches!(gpu.info().arch, Arch::Sm90a | Arch::Host) {
                all.push(Self::Hopper);
            }
        }
        all
    }
}

/// out = softmax(q · Kᵀ) · V over what each row sees: the past of its sequence (a window limits it), and the rows of the pass
/// that its mask names.
#[derive(Debug)]
pub struct GqaAttend {
    form: Form,
    heads: usize,
}

#[derive(Debug)]
enum Form {
    Any(Kernel),
    Tiles(GqaTiles),
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
    /// For these heads, and passes up to `max`. Owns its working memory, so one serves all layers of a model, one after the
    /// other; `max_context` tokens of a sequence need none.
    ///
    /// # Errors
    /// Heads that do not divide, no memory, the compiler's or the driver's.
    pub fn new(
        gpu: &Gpu,
        dtype: Dtype,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        max: Bucket,
        _max_context: usize,
    ) -> Result<Self> {
        let shape = GqaShape { heads, kv_heads, head_dim };
        let form = GqaForm::all(gpu, dtype, shape).pop().unwrap_or(GqaForm::Any);
        Self::with_form(gpu, form, dtype, shape, max, gpu.info().sms)
    }

    /// As [`GqaAttend::new`] in a given form, as if there were `sms` multiprocessors.
    ///
    /// # Errors
    /// As [`GqaAttend::new`]; a form that does not serve the shape.
    pub fn with_form(gpu: &Gpu, form: GqaForm, dtype: Dtype, shape: GqaShape, max: Bucket, sms: u32) -> Result<Self> {
        let GqaShape { heads, kv_heads, head_dim } = shape;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let why = format!("{heads} query heads do not share {kv_heads} key/value heads evenly");
            return Err(CudaError::Model(why));
        }
        let form = match form {
            GqaForm::Any => {
                let shapes = [
                    ("HEADS", heads as i64),
                    ("KV_HEADS", kv_heads as i64),
                    ("DIM", head_dim as i64),
                    ("VEC", widest(dtype, &[head_dim]) as i64),
                ];
                Form::Any(gpu.kernel("gqa_attend.cu", "gqa_attend", &defines(dtype, &shapes))?)
            }
            tiles if GqaForm::all(gpu, dtype, shape).contains(&tiles) => {
                Form::Tiles(GqaTiles::new(gpu, tiles == GqaForm::Hopper, shape, max, sms)?)
            }
            _ => return Err(CudaError::Model(format!("{shape:?} in {dtype:?} has no tensor-core attention here"))),
        };
        Ok(Self { form, heads })
    }

    /// Attends for the rows of a pass.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &GqaAttendCall) -> Result<()> {
        let kernel = match &self.form {
            Form::Tiles(tiles) => return tiles.run(gpu, bucket, call, tiles.height(bucket)),
            Form::Any(kernel) => kernel,
        };
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
        gpu.launch_early(kernel, Launch::flat(blocks(bucket.rows as usize * self.heads, 4), 128), &args)
    }

    /// Tiles that [`GqaAttend::run_with`] knows; 0 in a form without tiles.
    #[must_use]
    pub fn heights(&self) -> usize {
        match &self.form {
            Form::Any(_) => 0,
            Form::Tiles(tiles) => tiles.heights(),
        }
    }

    /// The tile that [`GqaAttend::run`] takes for a bucket.
    #[must_use]
    pub fn height(&self, bucket: Bucket) -> usize {
        match &self.form {
            Form::Any(_) => 0,
            Form::Tiles(tiles) => tiles.height(bucket),
        }
    }

    /// As [`GqaAttend::run`] with tile number `height` (of [`GqaAttend::heights`]) in place of the one that fits the bucket best.
    ///
    /// # Errors
    /// The driver's; no such tile.
    pub fn run_with(&self, gpu: &Gpu, bucket: Bucket, call: &GqaAttendCall, height: usize) -> Result<()> {
        match &self.form {
            Form::Tiles(tiles) if height < tiles.heights() => tiles.run(gpu, bucket, call, height),
            _ => Err(CudaError::Kernel { kernel: "gqa_attend".into(), why: format!("has no tile number {height}") }),
        }
    }
}
