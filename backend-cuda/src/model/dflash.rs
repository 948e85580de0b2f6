//! The DFlash block drafter (arXiv 2602.06036): one non-causal pass over `[root, mask, …]` for all levels at once, conditioned
//! on outputs of some target layers whose keys and values are cached.
//!
//! A sliding-window layer limits the context alone: the query at position p sees context positions greater than p − window,
//! and the whole block.

use super::ffn::Mlp;
use super::gqa::{GqaLayer, GqaOps, optional};
use super::pass::Pass;
use super::weight::Weight;
use super::work::{Attend, Widths};
use super::{Cache, Comm, Head, Part, Work, advise};
use crate::device::{Buffer, Dtype, Gemm, Gpu, Matrix, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::embed::Embed;
use crate::ops::gqa_prep::{GqaPrep, GqaPrepCall};
use crate::ops::norm::{Norm, NormCall};
use crate::ops::rows::{Bucket, RowsPtr};
use std::sync::Arc;
use treeline_checkpoint::DflashConfig;

/// A drafter's weights and kernels on one rank; embedding and head are the target's.
#[derive(Debug)]
pub struct Dflash {
    pub(super) config: DflashConfig,
    pub(super) dtype: Dtype,
    pub(super) comm: Comm,
    pub(super) embed: Arc<Weight>,
    pub(super) head: Arc<Weight>,
    pub(super) fc: Weight,
    pub(super) hidden_norm: Buffer<f32>,
    /// Queries, keys and values of all layers, one below the other.
    pub(super) qkv: Weight,
    pub(super) layers: Vec<DflashLayer>,
    pub(super) norm: Buffer<f32>,
    pub(super) ops: DflashOps,
}

#[derive(Debug)]
pub(super) struct DflashLayer {
    pub input_norm: Buffer<f32>,
    pub attention: GqaLayer,
    pub post_norm: Buffer<f32>,
    pub mlp: Mlp,
    pub window: u32,
}

#[derive(Debug)]
pub(super) struct DflashOps {
    pub lookup: Embed,
    pub rms: Norm,
    pub gqa: GqaOps,
    /// Keys and values alone, for the context.
    pub context: GqaPrep,
}

/// Buffers of a drafter.
#[derive(Debug)]
pub struct DraftWork {
    pass: Work,
    /// Most rows of one [`Dflash::absorb`].
    rows: usize,
    /// Tapped outputs in the drafter's width, \[rows\]\[hidden\].
    projected: Buffer<u8>,
    /// The same, normed.
    context: Buffer<u8>,
    /// Keys and values of all layers, \[layers\]\[rows\]\[2 · kv_heads · head_dim\].
    kv: Buffer<u8>,
}

impl DraftWork {
    /// Logits of the rows that went through the head, f32 \[rows\]\[logits width\].
    #[must_use]
    pub fn logits(&self) -> Ptr {
        self.pass.logits()
    }

    /// The largest pass over blocks.
    #[must_use]
    pub fn max(&self) -> Bucket {
        self.pass.max()
    }

    /// Most rows of one [`Dflash::absorb`].
    #[must_use]
    pub fn absorb_rows(&self) -> usize {
        self.rows
    }
}

impl Dflash {
    /// What the drafter's config says.
    #[must_use]
    pub fn config(&self) -> &DflashConfig {
        &self.config
    }

    /// Length of a row of logits, as [`super::Target::logits_width`].
    #[must_use]
    pub fn logits_width(&self) -> usize {
        self.head.out
    }

    /// Bytes of the cache for one row, over all layers.
    #[must_use]
    pub fn cache_row_bytes(&self) -> usize {
        self.layers.len() * 2 * self.ops.gqa.row() * self.dtype.bytes()
    }

    /// A cache of `rows` rows a layer, the sink included.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn cache(&self, gpu: &Gpu, rows: usize) -> Result<Cache> {
        Cache::new(gpu, self.layers.len(), 2, self.ops.gqa.row() * self.dtype.bytes(), rows)
    }

    /// Buffers for blocks up to `max` in all, and context of at most `absorb` rows at once.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn work(&self, gpu: &Gpu, max: Bucket, absorb: usize) -> Result<DraftWork> {
        let hidden = self.config.hidden;
        let inner = self.layers.iter().map(|l| l.mlp.down.inp).max().unwrap_or(0);
        let mut widths = Widths { hidden, inner, logits: self.logits_width(), ..Widths::default() };
        self.ops.gqa.widths(&mut widths);
        let attend = Attend::Gqa(self.ops.gqa.attend(gpu, self.dtype, max)?);
        let act = |elements: usize| {
            let what = format!("the drafter's context of {absorb} rows");
            advise(gpu.zeroed::<u8>(&what, elements * self.dtype.bytes()), "lower `chunk` or `slots`")
        };
        Ok(DraftWork {
            pass: Work::new(gpu, max, self.dtype, widths, attend, None, &[])?,
            rows: absorb,
            projected: act(absorb * hidden)?,
            context: act(absorb * hidden)?,
            kv: act(self.layers.len() * absorb * 2 * self.ops.gqa.row())?,
        })
    }

    /// Queues the context of `rows` committed tokens: their tapped outputs (act \[rows\]\[taps · hidden\]) to the drafter's
    /// width, then keys and values of every layer at `positions` (u32 \[rows\]), stored in the cache rows `kv_rows`
    /// (u32 \[rows\]; the sink for padding).
    ///
    /// # Errors
    /// [`CudaError::Setting`] for more rows than the buffers hold, or the driver's.
    #[allow(clippy::too_many_arguments, reason = "three arrays that come from different places")]
    pub fn absorb(
        &self,
        gpu: &Gpu,
        rows: u32,
        taps: Ptr,
        positions: Ptr,
        kv_rows: Ptr,
        cache: &Cache,
        work: &DraftWork,
    ) -> Result<()> {
        let count = rows as usize;
        if count == 0 || count > work.rows {
            let problem = format!("of context are {count}, but buffers hold 1 to {}", work.rows);
            return Err(CudaError::Setting { key: "rows", problem });
        }
        let (dtype, hidden, gqa) = (self.dtype, self.config.hidden, &self.ops.gqa);
        self.fc.apply(gpu, count, taps, work.projected.ptr())?;
        let norm = NormCall {
            add: work.projected.ptr(),
            weight: self.hidden_norm.ptr(),
            eps: self.config.rms_eps as f32,
            out: work.context.ptr(),
            out_stride: hidden,
            ..NormCall::default()
        };
        self.ops.rms.run(gpu, rows, &norm)?;
        // Keys and values of all layers come from the same rows: one batch, whose weights lie a layer apart.
        let (kv, each) = (2 * gqa.row(), self.qkv.out / self.layers.len());
        let first = self.qkv.rows(each - kv..each);
        let batch = |at: Ptr, stride: usize, batch_stride: usize| Matrix { at, stride, batch_stride, dtype };
        gpu.gemm(&Gemm {
            rows: count,
            outputs: kv,
            inputs: hidden,
            batch: self.layers.len(),
            x: batch(work.context.ptr(), hidden, 0),
            w: batch(first.ptr(), hidden, each * hidden),
            y: batch(work.kv.ptr(), kv, count * kv),
            add: false,
        })?;
        for (i, layer) in self.layers.iter().enumerate() {
            let (k_cache, v_cache) = cache.layer(i);
            let call = GqaPrepCall {
                qkv: work.kv.at(i * count * kv * dtype.bytes()),
                stride: kv,
                bias: Ptr::NULL,
                q_norm: Ptr::NULL,
                k_norm: optional(&layer.attention.k_norm),
                eps: gqa.eps,
                scale: 1.0,
                position: positions,
                kv_row: kv_rows,
                seq: Ptr::NULL,
                q: Ptr::NULL,
                k_cache,
                v_cache,
            };
            self.ops.context.run(gpu, rows, &gqa.rope, &call)?;
        }
        Ok(())
    }

    /// Queues one pass over blocks `[root, mask, …]` (rows with [`crate::ops::rows::Sight::All`]); their logits are left in
    /// `work` for the rows that `head` names. Row k of a block, k ≥ 1, predicts the token k behind the root's position.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for a bucket beyond `work`, or the driver's.
    pub fn draft(
        &self,
        gpu: &Gpu,
        bucket: Bucket,
        rows: RowsPtr,
        cache: &Cache,
        work: &DraftWork,
        head: Head,
    ) -> Result<()> {
        self.draft_probed(gpu, bucket, rows, cache, work, head, &mut |_, _| Ok(true))
    }

    /// [`Dflash::draft`] with a probe before each step.
    ///
    /// # Errors
    /// As [`Dflash::draft`], and the probe's.
    #[allow(clippy::too_many_arguments, reason = "those of `draft` and one more")]
    pub fn draft_probed(
        &self,
        gpu: &Gpu,
        bucket: Bucket,
        rows: RowsPtr,
        cache: &Cache,
        work: &DraftWork,
        head: Head,
        probe: super::Probe<'_>,
    ) -> Result<()> {
        let w = &work.pass;
        w.check(bucket)?;
        let Attend::Gqa(attend) = &w.attend else {
            return Err(CudaError::Model("these buffers were made for another model".into()));
        };
        let mut pass = Pass::new(gpu, bucket, rows, probe);
        let (embed, lookup, rms) = (&self.embed, &self.ops.lookup, &self.ops.rms);
        pass.step(Part::Embed, |gpu| lookup.run(gpu, bucket.rows, &rows, embed.ptr(), embed.out as u32, w.x()))?;
        let (h, y) = (w.h.ptr(), w.y());
        let norm = |weight: &Buffer<f32>, add: Ptr| NormCall {
            x: w.x(),
            add,
            weight: weight.ptr(),
            eps: self.config.rms_eps as f32,
            out: h,
            out_stride: self.config.hidden,
            seq: rows.seq,
            ..NormCall::default()
        };
        let mut add = Ptr::NULL;
        for (i, layer) in self.layers.iter().enumerate() {
            pass.layer = i;
            pass.window = layer.window;
            pass.step(Part::AttentionNorm, |gpu| rms.run(gpu, bucket.rows, &norm(&layer.input_norm, add)))?;
            layer.attention.run(&mut pass, &self.ops.gqa, h, cache.layer(i), w.gqa_ptrs(attend), y)?;
            self.comm.step(&mut pass, y, self.config.hidden)?;
            pass.step(Part::FfnNorm, |gpu| rms.run(gpu, bucket.rows, &norm(&layer.post_norm, y)))?;
            layer.mlp.run(&mut pass, h, w.mlp_ptrs(), y, false)?;
            self.comm.step(&mut pass, y, self.config.hidden)?;
            add = y;
        }
        pass.layer = self.layers.len();
        let (index, count) = head.rows(bucket, w.max())?;
        if count == 0 {
            return Ok(());
        }
        pass.step(Part::FinalNorm, |gpu| rms.run(gpu, count, &NormCall { index, ..norm(&self.norm, add) }))?;
        pass.step(Part::Head, |gpu| self.head.apply_f32(gpu, count as usize, h, w.logits()))
    }
}
