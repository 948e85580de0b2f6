//! Routed and shared experts of one layer.

use super::ffn::{Mlp, MlpPtrs};
use super::layers::Reader;
use super::pass::Pass;
use super::source::{Piece, Source};
use super::weight::Weight;
use super::{Part, Shard};
use crate::device::{Buffer, Dtype, Gpu, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::moe::{ExpertKind, ExpertShape, ExpertTensor, ExpertWeights, Experts, ExpertsArgs, Router, RouterArgs};
use crate::ops::rows::Bucket;
use std::ops::Range;
use treeline_checkpoint::{Ffn, GROUP, Linear, Moe, Router as Routing, TargetConfig};

/// Weights of one layer's mixture on this rank: every expert, a part of its width.
#[derive(Debug)]
pub(super) struct MoeLayer {
    /// Router.
    gate: Weight,
    /// Selection bias of a sigmoid router.
    bias: Option<Buffer<f32>>,
    experts: ExpertWeights,
    shared: Option<Mlp>,
}

/// Sizes and rules of a model's mixtures, the same in all its layers.
#[derive(Debug, Clone)]
pub(super) struct MoeConfig {
    pub shape: ExpertShape,
    pub router: Routing,
}

/// Kernels with their workspaces for passes of some size.
#[derive(Debug)]
pub(super) struct MoeOps {
    router: Router,
    experts: Experts,
}

/// Buffers of a mixture.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoePtrs {
    /// f32 \[rows\]\[experts\].
    pub scores: Ptr,
    /// i32 \[rows\]\[top_k\].
    pub ids: Ptr,
    /// f32 \[rows\]\[top_k\].
    pub weights: Ptr,
    /// i32 \[rows\]\[top_k\] for this layer, or nothing.
    pub forced: Ptr,
    /// u32, for this layer.
    pub distinct: Ptr,
    /// For the shared experts.
    pub mlp: MlpPtrs,
    /// Sum of all experts, act \[rows\]\[hidden\].
    pub y: Ptr,
}

impl MoeConfig {
    /// Those of a model, or nothing where it has no routed experts.
    ///
    /// # Errors
    /// Experts that cannot be split over the ranks; layers with different mixtures, which one set of kernels cannot serve.
    pub fn new(config: &TargetConfig, shard: Shard) -> Result<Option<Self>> {
        let mixtures = config.layers.iter().enumerate().filter_map(|(i, layer)| match &layer.ffn {
            Ffn::Moe(c) => Some((i, c)),
            Ffn::Dense { .. } => None,
        });
        let all: Vec<_> = mixtures.collect();
        let Some((first, c)) = all.first() else { return Ok(None) };
        if let Some((other, _)) = all.iter().find(|(_, other)| other != c) {
            let why = format!("layers {first} and {other} have different mixtures of experts, which is not supported");
            return Err(CudaError::Model(why));
        }
        let inner = shard.split("columns of an expert", c.intermediate)?.len();
        let name = format!("{}model.layers.{first}.mlp.experts.0.gate_proj", config.family.tensor_prefix());
        let packed = config.quantization.as_ref().is_some_and(|q| q.covers(&name));
        let kind = if packed { ExpertKind::Int4 } else { ExpertKind::Dense };
        let shape =
            ExpertShape { hidden: config.hidden, intermediate: inner, experts: c.experts, top_k: c.top_k, kind };
        Ok(Some(Self { shape, router: c.router.clone() }))
    }

    /// Kernels and workspaces for passes up to `max`.
    pub fn ops(&self, gpu: &Gpu, dtype: Dtype, max: Bucket) -> Result<MoeOps> {
        let rows = max.rows as usize;
        Ok(MoeOps {
            router: Router::new(gpu, self.shape.experts, self.shape.top_k, &self.router, rows)?,
            experts: Experts::new(gpu, dtype, self.shape, rows)?,
        })
    }
}

impl MoeLayer {
    /// Reads the mixture of `module`.
    pub fn read(read: &mut Reader<'_, '_>, module: &str, c: &Moe) -> Result<Self> {
        let Some(config) = read.moe else {
            return Err(CudaError::Model(format!("`{module}` was not expected to have experts")));
        };
        let (gpu, dtype, hidden) = (read.gpu, read.dtype, read.hidden);
        let gate = read.dense(&[Piece::whole(format!("{module}.gate"), c.experts, hidden)])?;
        let bias = match c.router {
            Routing::Sigmoid { .. } => {
                let name = format!("{module}.gate.e_score_correction_bias");
                Some(read.source.vectors(gpu, &[(name, c.experts, 0..c.experts)])?)
            }
            Routing::Softmax { .. } => None,
        };
        let op = Experts::new(gpu, dtype, config.shape, 1)?;
        let experts = super::advise(op.layer(gpu), super::source::WEIGHTS)?;
        let mine = read.shard.split("columns of an expert", c.intermediate)?;
        match &mut read.source {
            Source::Synthetic(fill) => op.synthetic(gpu, &experts, fill.next())?,
            Source::Checkpoint(load) => {
                for e in 0..c.experts {
                    let name = |part: &str| format!("{module}.experts.{e}.{part}_proj");
                    let gate = load.stored(&name("gate"), c.intermediate, hidden)?;
                    let up = load.stored(&name("up"), c.intermediate, hidden)?;
                    let down = load.stored(&name("down"), hidden, c.intermediate)?;
                    let parts = [
                        Expert::new(&gate, &mine, &(0..hidden), dtype)?,
                        Expert::new(&up, &mine, &(0..hidden), dtype)?,
                        Expert::new(&down, &(0..hidden), &mine, dtype)?,
                    ];
                    op.load(gpu, &experts, e, [parts[0].tensor(), parts[1].tensor(), parts[2].tensor()])?;
                }
            }
        }
        let shared = match c.shared {
            0 => None,
            n => Some(read.mlp(&format!("{module}.shared_experts"), n * c.intermediate)?),
        };
        Ok(Self { gate, bias, experts, shared })
    }

    /// y = the mixture of the normed rows h, this rank's part of the sum.
    pub fn run(&self, pass: &mut Pass<'_>, ops: &MoeOps, h: Ptr, w: MoePtrs) -> Result<()> {
        let (rows, at, bucket) = (pass.len(), pass.rows, pass.bucket);
        // Router and shared experts read the same rows: one launch where there is a kernel for it.
        let also = Some((&self.gate, w.scores));
        let fused = self.shared.as_ref().and_then(|shared| shared.gate_up.glu(rows, h, w.mlp.inner, also));
        pass.step(Part::Score, |gpu| match &fused {
            Some(fused) => fused.run(gpu),
            None => self.gate.apply_f32(gpu, rows, h, w.scores),
        })?;
        pass.step(Part::Route, |gpu| {
            let bias = self.bias.as_ref().map_or(Ptr::NULL, Buffer::ptr);
            let (ids, weights, forced, distinct) = (w.ids, w.weights, w.forced, w.distinct);
            ops.router.run(
                gpu,
                bucket,
                &RouterArgs { rows: at, logits: w.scores, bias, forced, ids, weights, distinct },
            )
        })?;
        pass.step(Part::Experts, |gpu| {
            let (ids, weights, dispatch) = (w.ids, w.weights, ops.router.dispatch());
            ops.experts.run(gpu, bucket, &ExpertsArgs { rows: at, h, ids, weights, dispatch, out: w.y }, &self.experts)
        })?;
        match &self.shared {
            // Into the routed sum, so that ranks have one sum to share.
            Some(shared) if fused.is_some() => shared.finish(pass, w.mlp, w.y, true),
            Some(shared) => shared.run(pass, h, w.mlp, w.y, true),
            None => Ok(()),
        }
    }

    /// Width of the shared experts.
    pub fn inner(&self) -> usize {
        self.shared.as_ref().map_or(0, |mlp| mlp.down.inp)
    }
}

/// One linear weight of an expert, this rank's part of it, in host memory.
enum Expert {
    Dense(Vec<u8>),
    Int4 { packed: Vec<u8>, scales: Vec<u8> },
}

impl Expert {
    fn new(linear: &Linear<'_>, rows: &Range<usize>, columns: &Range<usize>, dtype: Dtype) -> Result<Self> {
        match linear {
            Linear::Dense(view) => {
                let mut wide = view.to_f32()?;
                let inp = view.shape[1];
                if columns.len() < inp || rows.len() < view.shape[0] {
                    wide = rows.clone().flat_map(|r| wide[r * inp..][columns.clone()].iter().copied()).collect();
                }
                let bytes = match dtype {
                    Dtype::F32 => wide.iter().flat_map(|x| x.to_le_bytes()).collect(),
                    Dtype::Bf16 => wide.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
                };
                Ok(Self::Dense(bytes))
            }
            Linear::Int4(packed) => {
                if !(columns.start.is_multiple_of(GROUP) && columns.end.is_multiple_of(GROUP)) {
                    let why = format!("experts packed in groups of {GROUP} cannot be split into columns {columns:?}");
                    return Err(CudaError::Model(why));
                }
                // Bytes of `each` columns; groups of a row lie one behind the other.
                let part = |bytes: &[u8], each: usize, size: usize| {
                    let pitch = packed.inp() / each * size;
                    let range = columns.start / each * size..columns.end / each * size;
                    let mut out = Vec::with_capacity(rows.len() * range.len());
                    rows.clone().for_each(|r| out.extend_from_slice(&bytes[r * pitch..][range.clone()]));
                    out
                };
                Ok(Self::Int4 { packed: part(packed.packed(), 2, 1), scales: part(packed.scales(), GROUP, 2) })
            }
        }
    }

    fn tensor(&self) -> ExpertTensor<'_> {
        match self {
            Self::Dense(bytes) => ExpertTensor::Dense(bytes),
            Self::Int4 { packed, scales } => ExpertTensor::Int4 { packed, scales },
        }
    }
}
