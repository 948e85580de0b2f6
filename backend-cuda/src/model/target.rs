//! A target model (or an autoregressive drafter) on the device, and its pass.

use super::gqa::optional;
use super::layers::{AttentionLayer, FfnLayer, LayerWeights};
use super::ops::{AttentionOps, Ops};
use super::pass::Pass;
use super::weight::Weight;
use super::work::Attend;
use super::{Cache, Comm, Head, Part, Probe, Shard, Work};
use crate::device::{Buffer, Dtype, Gpu, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::norm::NormCall;
use crate::ops::rows::{Bucket, RowsPtr};
use std::sync::Arc;
use treeline_checkpoint::TargetConfig;

/// A model's weights on one rank, and its kernels.
#[derive(Debug)]
pub struct Target {
    pub(super) config: TargetConfig,
    pub(super) dtype: Dtype,
    pub(super) shard: Shard,
    pub(super) comm: Comm,
    pub(super) embed: Arc<Weight>,
    pub(super) head: Arc<Weight>,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) norm: Buffer<f32>,
    pub(super) ops: Ops,
    pub(super) bytes: usize,
}

/// What the next norm adds to the residual stream, and where a copy of the sum goes.
#[derive(Clone, Copy, Default)]
struct Pending {
    y: Ptr,
    bias: Ptr,
    tap: Option<usize>,
}

impl Target {
    /// What the checkpoint's config says; with fewer layers where only some were made.
    #[must_use]
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Type of activations.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Which part of the model this is.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Length of a row of logits: the vocabulary, or this rank's part of it where it works apart.
    #[must_use]
    pub fn logits_width(&self) -> usize {
        self.head.out
    }

    /// Layers with routed experts.
    #[must_use]
    pub fn moe_layers(&self) -> usize {
        self.layers.iter().filter(|l| matches!(l.ffn, FfnLayer::Moe(_))).count()
    }

    /// Routed experts of a row; 0 without any.
    #[must_use]
    pub fn top_k(&self) -> usize {
        self.ops.moe.as_ref().map_or(0, |m| m.shape.top_k)
    }

    /// Bytes of device memory that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the cache for one row, over all layers.
    #[must_use]
    pub fn cache_row_bytes(&self) -> usize {
        let (each, row) = self.ops.cache_shape(self.dtype);
        self.layers.len() * each * row
    }

    /// A cache of `rows` rows a layer, the sink included.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn cache(&self, gpu: &Gpu, rows: usize) -> Result<Cache> {
        let (each, row) = self.ops.cache_shape(self.dtype);
        Cache::new(gpu, self.layers.len(), each, row, rows)
    }

    /// Buffers for passes up to `max`, which keep the outputs of the layers in `taps`.
    ///
    /// # Errors
    /// [`CudaError::Memory`]; a layer that does not exist.
    pub fn work(&self, gpu: &Gpu, max: Bucket, taps: &[usize]) -> Result<Work> {
        if let Some(tap) = taps.iter().find(|t| **t >= self.layers.len()) {
            return Err(CudaError::Model(format!("layer {tap} is to be tapped, but there are {}", self.layers.len())));
        }
        let mut widths = self.ops.widths(self.config.hidden);
        widths.logits = self.logits_width();
        widths.moe_layers = self.moe_layers();
        for layer in &self.layers {
            widths.inner = widths.inner.max(layer.ffn.inner());
        }
        let moe = self.ops.moe.as_ref().map(|m| m.ops(gpu, self.dtype, max)).transpose()?;
        Work::new(gpu, max, self.dtype, widths, self.ops.attend(gpu, self.dtype, max)?, moe, taps)
    }

    /// Queues one pass: the rows through all layers, and those that `head` names through the head.
    ///
    /// Reads `rows`, writes their rows of `cache`; leaves in `work` the residual stream, the tapped outputs, the distinct
    /// experts of each layer that has any, and the logits.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for a bucket beyond `work`, or the driver's.
    pub fn forward(
        &self,
        gpu: &Gpu,
        bucket: Bucket,
        rows: RowsPtr,
        cache: &Cache,
        work: &Work,
        head: Head,
    ) -> Result<()> {
        self.forward_probed(gpu, bucket, rows, cache, work, head, &mut |_, _| Ok(true))
    }

    /// [`Target::forward`] with a probe before each step.
    ///
    /// # Errors
    /// As [`Target::forward`], and the probe's.
    #[allow(clippy::too_many_arguments, reason = "those of `forward` and one more")]
    pub fn forward_probed(
        &self,
        gpu: &Gpu,
        bucket: Bucket,
        rows: RowsPtr,
        cache: &Cache,
        work: &Work,
        head: Head,
        probe: Probe<'_>,
    ) -> Result<()> {
        work.check(bucket)?;
        let mut pass = Pass::new(gpu, bucket, rows, probe);
        let embed = &self.embed;
        pass.step(Part::Embed, |gpu| {
            self.ops.embed.run(gpu, bucket.rows, &rows, embed.ptr(), embed.out as u32, work.x())
        })?;
        let (h, y) = (work.h.ptr(), work.y());
        let mut pending = Pending::default();
        let mut moe = 0;
        for (i, layer) in self.layers.iter().enumerate() {
            pass.layer = i;
            pass.window = layer.window;
            self.norm(&mut pass, Part::AttentionNorm, work, &layer.input_norm, pending)?;
            let kv = cache.layer(i);
            let bias = match (&layer.attention, &self.ops.attention, &work.attend) {
                (AttentionLayer::Mla(layer), AttentionOps::Mla(ops), Attend::Mla(attend)) => {
                    layer.run(&mut pass, ops, h, kv.0, work.mla_ptrs(attend), y)?;
                    Ptr::NULL
                }
                (AttentionLayer::Gqa(layer), AttentionOps::Gqa(ops), Attend::Gqa(attend)) => {
                    layer.run(&mut pass, ops, h, kv, work.gqa_ptrs(attend), y)?;
                    optional(&layer.out_bias)
                }
                _ => return Err(CudaError::Model("these buffers were made for another model".into())),
            };
            self.comm.step(&mut pass, y, self.config.hidden)?;
            pending = Pending { y, bias, tap: None };
            self.norm(&mut pass, Part::FfnNorm, work, &layer.post_norm, pending)?;
            pending = Pending { y, tap: work.tap_column(i), ..Pending::default() };
            match (&layer.ffn, &work.moe) {
                (FfnLayer::Dense(mlp), _) => mlp.run(&mut pass, h, work.mlp_ptrs(), y, false)?,
                (FfnLayer::Moe(layer), Some(ops)) => {
                    layer.run(&mut pass, ops, h, work.moe_ptrs(moe))?;
                    moe += 1;
                }
                (FfnLayer::Moe(_), None) => {
                    return Err(CudaError::Model("these buffers were made for another model".into()));
                }
            }
            self.comm.step(&mut pass, y, self.config.hidden)?;
        }
        pass.layer = self.layers.len();
        self.finish(&mut pass, work, pending, head)
    }

    /// Last norm and head.
    fn finish(&self, pass: &mut Pass<'_>, work: &Work, mut pending: Pending, head: Head) -> Result<()> {
        let (index, count) = head.rows(pass.bucket, work.max())?;
        let call = self.norm_call(pass, work, &self.norm, pending);
        // Picked rows are only read, so a tap of the last layer needs a pass of its own over all rows.
        if (count == 0 || index != Ptr::NULL) && pending.tap.is_some() {
            let rows = pass.bucket.rows;
            let all = NormCall { out: Ptr::NULL, ..call };
            pass.step(Part::FinalNorm, |gpu| self.ops.norm.run(gpu, rows, &all))?;
            pending = Pending::default();
        }
        if count == 0 {
            return Ok(());
        }
        let call = NormCall { index, ..self.norm_call(pass, work, &self.norm, pending) };
        pass.step(Part::FinalNorm, |gpu| self.ops.norm.run(gpu, count, &call))?;
        pass.step(Part::Head, |gpu| self.head.apply_f32(gpu, count as usize, work.h.ptr(), work.logits()))
    }

    fn norm(&self, pass: &mut Pass<'_>, part: Part, work: &Work, weight: &Buffer<f32>, add: Pending) -> Result<()> {
        let call = self.norm_call(pass, work, weight, add);
        let rows = pass.bucket.rows;
        pass.step(part, |gpu| self.ops.norm.run(gpu, rows, &call))
    }

    fn norm_call(&self, pass: &Pass<'_>, work: &Work, weight: &Buffer<f32>, add: Pending) -> NormCall {
        NormCall {
            x: work.x(),
            add: add.y,
            add2: Ptr::NULL,
            bias: add.bias,
            weight: weight.ptr(),
            eps: self.config.rms_eps as f32,
            out: work.h.ptr(),
            out_stride: self.config.hidden,
            tap: add.tap.map_or(Ptr::NULL, |_| work.taps()),
            tap_stride: work.tap_stride(),
            tap_column: add.tap.unwrap_or(0),
            index: Ptr::NULL,
            seq: pass.rows.seq,
        }
    }
}
