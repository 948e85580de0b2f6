//! Grouped-query attention: one product for queries, keys and values, preparation, attention, output projection.

use super::pass::Pass;
use super::weight::Weight;
use super::work::Widths;
use super::{LoadOptions, Part};
use crate::device::{Buffer, Dtype, Gpu, Ptr};
use crate::error::Result;
use crate::ops::gqa_attend::{GqaAttend, GqaAttendCall};
use crate::ops::gqa_prep::{GqaPrep, GqaPrepCall};
use crate::ops::rope::RopeTable;
use crate::ops::rows::Bucket;
use treeline_checkpoint::Gqa;

/// Weights of one layer's attention on this rank.
#[derive(Debug)]
pub(super) struct GqaLayer {
    /// Queries, keys, values, one below the other.
    pub qkv: Weight,
    pub qkv_bias: Option<Buffer<f32>>,
    pub q_norm: Option<Buffer<f32>>,
    pub k_norm: Option<Buffer<f32>>,
    pub out: Weight,
    /// Added once, behind the sum over ranks.
    pub out_bias: Option<Buffer<f32>>,
}

/// Kernels of grouped-query attention, the same for all layers.
#[derive(Debug)]
pub(super) struct GqaOps {
    pub prep: GqaPrep,
    pub rope: RopeTable,
    pub eps: f32,
    pub scale: f32,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Whether sliding windows also limit the rows of the pass: a target's do, a drafter's limit the context alone.
    pub window_tail: bool,
}

impl GqaOps {
    /// Kernels for one rank's heads.
    pub fn new(gpu: &Gpu, options: &LoadOptions, c: &Gqa, rope: RopeTable, eps: f32, scale: f32) -> Result<Self> {
        let heads = options.shard.split("attention heads", c.heads)?.len();
        let kv_heads = options.shard.share("key heads", c.kv_heads)?.len();
        let prep = GqaPrep::new(gpu, options.dtype, heads, kv_heads, c.head_dim, rope.interleaved())?;
        Ok(Self { prep, rope, eps, scale, heads, kv_heads, head_dim: c.head_dim, window_tail: true })
    }

    /// Attention with its memory, for passes up to `max`.
    pub fn attend(&self, gpu: &Gpu, dtype: Dtype, max: Bucket) -> Result<GqaAttend> {
        GqaAttend::new(gpu, dtype, self.heads, self.kv_heads, self.head_dim, max, self.rope.positions())
    }

    /// Sets the widths of the buffers that attention needs.
    pub fn widths(&self, widths: &mut Widths) {
        widths.down = (self.heads + 2 * self.kv_heads) * self.head_dim;
        widths.q = self.heads * self.head_dim;
        widths.values = widths.q;
    }

    /// Elements of a cache row, of keys and of values each.
    pub fn row(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Buffers and attention kernels of a pass-query attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct GqaPtrs<'a> {
    pub attend: &'a GqaAttend,
    /// \[rows\]\[heads + 2 · kv_heads\]\[head_dim\].
    pub qkv: Ptr,
    /// \[rows\]\[heads\]\[head_dim\].
    pub q: Ptr,
    /// \[rows\]\[heads\]\[head_dim\].
    pub values: Ptr,
}

/// Address of an optional vector.
pub(super) fn optional(vector: &Option<Buffer<f32>>) -> Ptr {
    vector.as_ref().map_or(Ptr::NULL, Buffer::ptr)
}

impl GqaLayer {
    /// y = attention of the normed rows h, this rank's part of the sum; writes the rows' keys and values to `kv`.
    pub fn run(&self, pass: &mut Pass<'_>, ops: &GqaOps, h: Ptr, kv: (Ptr, Ptr), w: GqaPtrs<'_>, y: Ptr) -> Result<()> {
        let (rows, at, bucket, window) = (pass.len(), pass.rows, pass.bucket, pass.window);
        pass.step(Part::Down, |gpu| self.qkv.apply(gpu, rows, h, w.qkv))?;
        pass.step(Part::Prepare, |gpu| {
            let call = GqaPrepCall {
                qkv: w.qkv,
                stride: self.qkv.out,
                bias: optional(&self.qkv_bias),
                q_norm: optional(&self.q_norm),
                k_norm: optional(&self.k_norm),
                eps: ops.eps,
                scale: ops.scale,
                position: at.position,
                kv_row: at.kv_row,
                seq: at.seq,
                q: w.q,
                k_cache: kv.0,
                v_cache: kv.1,
            };
            ops.prep.run(gpu, rows as u32, &ops.rope, &call)
        })?;
        pass.step(Part::Attend, |gpu| {
            let (q, out, window_tail) = (w.q, w.values, ops.window_tail);
            let call = GqaAttendCall { rows: at, q, k_cache: kv.0, v_cache: kv.1, out, window, window_tail };
            w.attend.run(gpu, bucket, &call)
        })?;
        pass.step(Part::Out, |gpu| self.out.apply(gpu, rows, w.values, y))
    }
}
