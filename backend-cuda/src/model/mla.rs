//! Multi-head latent attention, absorbed: queries are taken into the latent space, so that the cache holds one latent and one
//! rotary key per token, shared by all heads (DeepSeek-V2, arXiv 2405.04434).

use super::pass::Pass;
use super::weight::{Few, Fused, Weight, per_head, product as run};
use super::work::Widths;
use super::{LoadOptions, Part};
use crate::device::{Buffer, Dtype, Gemm, Gpu, Matrix, Ptr};
use crate::error::Result;
use crate::ops::dense::Queries;
use crate::ops::mla_attend::{MlaAttend, MlaCall};
use crate::ops::mla_prep::{MlaLatentCall, MlaPrep, MlaQueryCall, MlaShape};
use crate::ops::rope::RopeTable;
use crate::ops::rows::Bucket;
use treeline_checkpoint::Mla;

/// Weights of one layer's attention on this rank.
#[derive(Debug)]
pub(super) struct MlaLayer {
    /// Latent and rotary key, behind the query's down-projection where there is one.
    pub down: Weight,
    /// Queries from their latent, or from the layer's input where they are not compressed.
    pub query: Weight,
    pub q_norm: Option<Buffer<f32>>,
    pub kv_norm: Buffer<f32>,
    /// \[heads\]\[kv_lora, nope\].
    pub absorb: Buffer<u8>,
    /// \[heads\]\[v, kv_lora\].
    pub expand: Buffer<u8>,
    pub out: Weight,
    /// Kernels for few rows.
    pub few: Few,
}

/// Kernels of latent attention and its sizes on this rank, the same for all layers.
#[derive(Debug)]
pub(super) struct MlaOps {
    pub prep: MlaPrep,
    pub rope: RopeTable,
    pub scale: f32,
    pub heads: usize,
    pub nope: usize,
    pub rotated: usize,
    pub v: usize,
    pub kv_lora: usize,
    /// 0 = queries are not compressed.
    pub q_lora: usize,
}

impl MlaOps {
    /// Kernels for one rank's heads.
    pub fn new(gpu: &Gpu, options: &LoadOptions, c: &Mla, rope: RopeTable, scale: f32) -> Result<Self> {
        let heads = options.shard.split("attention heads", c.heads)?.len();
        let q_rank = c.q_lora.unwrap_or(0);
        let (kv_lora, nope, interleaved) = (c.kv_lora, c.nope, rope.interleaved());
        let shape = MlaShape { heads, q_rank, kv_lora, nope, rope: c.rope, interleaved };
        let prep = MlaPrep::new(gpu, options.dtype, shape)?;
        Ok(Self { prep, rope, scale, heads, nope, rotated: c.rope, v: c.v, kv_lora, q_lora: q_rank })
    }

    /// Attention with its memory, for passes up to `max`.
    pub fn attend(&self, gpu: &Gpu, dtype: Dtype, max: Bucket) -> Result<MlaAttend> {
        MlaAttend::new(gpu, dtype, self.heads, self.kv_lora, self.rotated, max, self.rope.positions())
    }

    /// Sets the widths of the buffers that attention needs.
    pub fn widths(&self, widths: &mut Widths) {
        widths.down = self.q_lora + self.row();
        widths.low = self.q_lora;
        widths.q = self.heads * (self.nope + self.rotated);
        widths.absorbed = self.heads * self.row();
        widths.mixed = self.heads * self.kv_lora;
        widths.values = self.heads * self.v;
    }

    /// Elements of a cache row.
    pub fn row(&self) -> usize {
        self.kv_lora + self.rotated
    }
}

/// Buffers and attention kernels of a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct MlaPtrs<'a> {
    pub attend: &'a MlaAttend,
    /// \[rows\]\[q_lora + kv_lora + rope\].
    pub down: Ptr,
    /// \[rows\]\[q_lora\].
    pub low: Ptr,
    /// \[rows\]\[heads\]\[nope + rope\].
    pub q: Ptr,
    /// \[rows\]\[heads\]\[kv_lora + rope\].
    pub absorbed: Ptr,
    /// \[rows\]\[heads\]\[kv_lora\].
    pub mixed: Ptr,
    /// \[rows\]\[heads\]\[v\].
    pub values: Ptr,
}

impl MlaLayer {
    /// y = attention of the normed rows h, this rank's part of the sum; writes the rows' latents and keys to `cache`.
    pub fn run(&self, pass: &mut Pass<'_>, ops: &MlaOps, h: Ptr, cache: Ptr, w: MlaPtrs<'_>, y: Ptr) -> Result<()> {
        let (rows, at, bucket, window) = (pass.len(), pass.rows, pass.bucket, pass.window);
        let dtype = self.down.dtype;
        let (n, head, latent) = (ops.heads, ops.nope + ops.rotated, ops.kv_lora + ops.rotated);
        pass.step(Part::Down, |gpu| self.down.apply(gpu, rows, h, w.down))?;
        pass.step(Part::Prepare, |gpu| {
            let call = MlaLatentCall {
                down: w.down,
                stride: self.down.out,
                q_norm: self.q_norm.as_ref().map_or(Ptr::NULL, Buffer::ptr),
                kv_norm: self.kv_norm.ptr(),
                position: at.position,
                kv_row: at.kv_row,
                seq: at.seq,
                q_low: w.low,
                cache,
            };
            ops.prep.latent(gpu, rows as u32, &ops.rope, &call)
        })?;
        let from = if self.q_norm.is_some() { w.low } else { h };
        match self.fused_queries(rows, ops, from, w, at.position) {
            Some(fused) => pass.step(Part::QueryUp, |gpu| fused.run(gpu))?,
            None => {
                pass.step(Part::QueryUp, |gpu| self.query.apply(gpu, rows, from, w.q))?;
                pass.step(Part::QueryPrepare, |gpu| {
                    let (position, seq) = (at.position, at.seq);
                    let call = MlaQueryCall { q: w.q, absorbed: w.absorbed, scale: ops.scale, position, seq };
                    ops.prep.query(gpu, rows as u32, &ops.rope, &call)
                })?;
            }
        }
        let product = |outputs: usize, inputs: usize, x: Matrix, weight: &Buffer<u8>, y: Matrix| Gemm {
            rows,
            outputs,
            inputs,
            batch: n,
            x,
            w: Matrix { at: weight.ptr(), stride: inputs, batch_stride: outputs * inputs, dtype },
            y,
            add: false,
        };
        pass.step(Part::Absorb, |gpu| {
            let (x, y) = (per_head(w.q, n, head, dtype), per_head(w.absorbed, n, latent, dtype));
            run(gpu, &self.few, &product(ops.kv_lora, ops.nope, x, &self.absorb, y))
        })?;
        pass.step(Part::Attend, |gpu| {
            w.attend.run(gpu, bucket, &MlaCall { rows: at, q: w.absorbed, cache, out: w.mixed, window })
        })?;
        pass.step(Part::Expand, |gpu| {
            let (x, y) = (per_head(w.mixed, n, ops.kv_lora, dtype), per_head(w.values, n, ops.v, dtype));
            run(gpu, &self.few, &product(ops.v, ops.kv_lora, x, &self.expand, y))
        })?;
        pass.step(Part::Out, |gpu| self.out.apply(gpu, rows, w.values, y))
    }

    /// The queries in one launch, where there is a kernel for it.
    fn fused_queries(&self, rows: usize, ops: &MlaOps, x: Ptr, w: MlaPtrs<'_>, position: Ptr) -> Option<Fused<'_>> {
        let queries = Queries {
            cos: ops.rope.cos(),
            sin: ops.rope.sin(),
            position,
            absorbed: w.absorbed,
            nope: ops.nope,
            rope: ops.rotated,
            latent: ops.kv_lora,
            scale: ops.scale,
        };
        // Neighbours are in one block's hands, halves of a head may not be.
        if ops.rope.interleaved() { self.query.queries(rows, x, w.q, queries) } else { None }
    }
}
