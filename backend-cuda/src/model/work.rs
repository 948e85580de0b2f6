//! Every buffer of a pass, made once for its largest shape.

use super::advise;
use super::ffn::MlpPtrs;
use super::gqa::GqaPtrs;
use super::mla::MlaPtrs;
use super::moe::{MoeOps, MoePtrs};
use crate::device::{Buffer, Dtype, Gpu, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::gqa_attend::GqaAttend;
use crate::ops::mla_attend::MlaAttend;
use crate::ops::rows::Bucket;

/// Widths of the buffers of one model's passes on one rank, in elements; 0 = not needed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Widths {
    /// Residual stream.
    pub hidden: usize,
    /// First product of attention.
    pub down: usize,
    /// Query latent.
    pub low: usize,
    /// Queries.
    pub q: usize,
    /// Queries in the latent space.
    pub absorbed: usize,
    /// Attention's output in the latent space.
    pub mixed: usize,
    /// Attention's output.
    pub values: usize,
    /// Widest SwiGLU.
    pub inner: usize,
    /// Router scores.
    pub scores: usize,
    /// Experts of a row.
    pub top_k: usize,
    /// Logits.
    pub logits: usize,
    /// Layers with routed experts.
    pub moe_layers: usize,
}

/// Attention kernels of a pass.
#[derive(Debug)]
pub(super) enum Attend {
    Mla(MlaAttend),
    Gqa(GqaAttend),
}

/// Buffers of a pass. They belong to one model, and to one stream at a time.
#[derive(Debug)]
pub struct Work {
    pub(super) max: Bucket,
    pub(super) widths: Widths,
    pub(super) x: Buffer<f32>,
    pub(super) h: Buffer<u8>,
    pub(super) y: Buffer<u8>,
    down: Buffer<u8>,
    low: Buffer<u8>,
    q: Buffer<u8>,
    absorbed: Buffer<u8>,
    mixed: Buffer<u8>,
    values: Buffer<u8>,
    both: Buffer<u8>,
    inner: Buffer<u8>,
    scores: Buffer<f32>,
    ids: Buffer<i32>,
    weights: Buffer<f32>,
    /// Attention kernels with their own memory.
    pub(super) attend: Attend,
    /// Kernels of the mixtures with their own memory.
    pub(super) moe: Option<MoeOps>,
    logits: Buffer<f32>,
    taps: Buffer<u8>,
    tap_layers: Vec<usize>,
    experts: Buffer<u32>,
    forced: Option<Buffer<i32>>,
}

const SETTING: &str = "lower `slots`, the largest `budget` or `chunk`";

impl Work {
    pub(super) fn new(
        gpu: &Gpu,
        max: Bucket,
        dtype: Dtype,
        w: Widths,
        attend: Attend,
        moe: Option<MoeOps>,
        taps: &[usize],
    ) -> Result<Self> {
        let rows = max.rows as usize;
        let act = |width: usize| {
            let what = format!("activations of {rows} rows");
            advise(gpu.zeroed::<u8>(&what, rows * width * dtype.bytes()), SETTING)
        };
        let wide = |what: &str, width: usize| {
            advise(gpu.zeroed::<f32>(&format!("{what} of {rows} rows"), rows * width), SETTING)
        };
        Ok(Self {
            max,
            widths: w,
            x: wide("the residual stream", w.hidden)?,
            h: act(w.hidden)?,
            y: act(w.hidden)?,
            down: act(w.down)?,
            low: act(w.low)?,
            q: act(w.q)?,
            absorbed: act(w.absorbed)?,
            mixed: act(w.mixed)?,
            values: act(w.values)?,
            both: act(2 * w.inner)?,
            inner: act(w.inner)?,
            scores: wide("router scores", w.scores)?,
            ids: gpu.zeroed("experts of rows", rows * w.top_k)?,
            weights: gpu.zeroed("weights of experts", rows * w.top_k)?,
            attend,
            moe,
            logits: wide("logits", w.logits)?,
            taps: act(taps.len() * w.hidden)?,
            tap_layers: taps.to_vec(),
            experts: gpu.zeroed("distinct experts", w.moe_layers)?,
            forced: None,
        })
    }

    /// The largest pass.
    #[must_use]
    pub fn max(&self) -> Bucket {
        self.max
    }

    /// Residual stream, f32 \[rows\]\[hidden\].
    #[must_use]
    pub fn x(&self) -> Ptr {
        self.x.ptr()
    }

    /// Output of the part of a layer that ran last, \[rows\]\[hidden\] in the type of activations: at
    /// [`super::Part::Reduce`] what is summed over ranks.
    #[must_use]
    pub fn y(&self) -> Ptr {
        self.y.ptr()
    }

    /// Logits of the rows that went through the head, f32 \[rows\]\[logits width of the model\].
    #[must_use]
    pub fn logits(&self) -> Ptr {
        self.logits.ptr()
    }

    /// Outputs of the tapped layers side by side, \[rows\]\[taps · hidden\] in the type of activations.
    #[must_use]
    pub fn taps(&self) -> Ptr {
        self.taps.ptr()
    }

    /// Distinct routed experts of the last pass, u32 \[layers with experts\].
    #[must_use]
    pub fn experts(&self) -> Ptr {
        self.experts.ptr()
    }

    /// Experts of each row of the layer that ran last, i32 \[rows\]\[top_k\].
    #[must_use]
    pub fn ids(&self) -> Ptr {
        self.ids.ptr()
    }

    /// From now on routing comes from [`Work::forced`], not from the routers; graphs have to be captured after this.
    ///
    /// # Errors
    /// [`CudaError::Memory`]; a model without routed experts.
    pub fn force(&mut self, gpu: &Gpu) -> Result<()> {
        let w = self.widths;
        if w.moe_layers == 0 {
            return Err(CudaError::Model("routing cannot be forced: the model has no routed experts".into()));
        }
        let ids = vec![-1; w.moe_layers * self.max.rows as usize * w.top_k];
        self.forced = Some(advise(gpu.upload("forced experts", &ids), SETTING)?);
        Ok(())
    }

    /// Forced experts, i32 \[layers with experts\]\[max rows\]\[top_k\]; −1 = none.
    #[must_use]
    pub fn forced(&self) -> Option<&Buffer<i32>> {
        self.forced.as_ref()
    }

    /// Buffers of a layer with experts, number `moe` of them.
    pub(super) fn moe_ptrs(&self, moe: usize) -> MoePtrs {
        let each = self.max.rows as usize * self.widths.top_k;
        MoePtrs {
            scores: self.scores.ptr(),
            ids: self.ids.ptr(),
            weights: self.weights.ptr(),
            forced: self.forced.as_ref().map_or(Ptr::NULL, |f| f.at(moe * each)),
            distinct: self.experts.at(moe),
            mlp: self.mlp_ptrs(),
            y: self.y.ptr(),
        }
    }

    /// Buffers of a SwiGLU.
    pub(super) fn mlp_ptrs(&self) -> MlpPtrs {
        MlpPtrs { both: self.both.ptr(), inner: self.inner.ptr() }
    }

    /// Buffers of grouped-query attention.
    pub(super) fn gqa_ptrs<'a>(&self, attend: &'a GqaAttend) -> GqaPtrs<'a> {
        GqaPtrs { attend, qkv: self.down.ptr(), q: self.q.ptr(), values: self.values.ptr() }
    }

    /// Buffers of latent attention.
    pub(super) fn mla_ptrs<'a>(&self, attend: &'a MlaAttend) -> MlaPtrs<'a> {
        MlaPtrs {
            attend,
            down: self.down.ptr(),
            low: self.low.ptr(),
            q: self.q.ptr(),
            absorbed: self.absorbed.ptr(),
            mixed: self.mixed.ptr(),
            values: self.values.ptr(),
        }
    }

    /// The column of the taps where the outputs of `layer` go.
    pub(super) fn tap_column(&self, layer: usize) -> Option<usize> {
        self.tap_layers.iter().position(|t| *t == layer).map(|t| t * self.widths.hidden)
    }

    /// Elements from one row of the taps to the next.
    pub(super) fn tap_stride(&self) -> usize {
        self.tap_layers.len() * self.widths.hidden
    }

    /// # Errors
    /// [`CudaError::Setting`] for a pass that is larger than the buffers.
    pub(super) fn check(&self, bucket: Bucket) -> Result<()> {
        if bucket.rows == 0 || bucket.rows > self.max.rows || bucket.seqs == 0 || bucket.seqs > self.max.seqs {
            let problem = format!("{bucket:?} do not fit buffers for {:?}", self.max);
            return Err(CudaError::Setting { key: "rows", problem });
        }
        Ok(())
    }
}
