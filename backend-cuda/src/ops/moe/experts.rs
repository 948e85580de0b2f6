//! The routed experts: gate and up, the activation, down, and the weighted sum.

use super::super::rows::{Bucket, RowsPtr};
use super::super::vector::{blocks, defines, widest};
use super::int4::{Int4, Tuning};
use super::router::{Dispatch, check_rows};
use super::weights::ExpertWeights;
use crate::device::{Buffer, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Threads of a block, as in `moe_plain.cu`.
const THREADS: usize = 128;

/// How the weights of experts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertKind {
    /// In the activations' type.
    Dense,
    /// Symmetric INT4 in groups of 32 with bf16 scales.
    Int4,
}

/// Shapes of the experts of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertShape {
    /// Width of the residual stream; INT4: a multiple of 32.
    pub hidden: usize,
    /// Width between the projections on this rank; INT4: a multiple of 32.
    pub intermediate: usize,
    /// Experts.
    pub experts: usize,
    /// Experts of a row.
    pub top_k: usize,
    /// Weights.
    pub kind: ExpertKind,
}

/// What the experts read and write. Rows are those of the bucket.
#[derive(Debug, Clone, Copy)]
pub struct ExpertsArgs {
    /// The rows.
    pub rows: RowsPtr,
    /// Normed residual stream, act \[rows, hidden\].
    pub h: Ptr,
    /// Experts of each row, as [`super::Router::run`] wrote them.
    pub ids: Ptr,
    /// Their weights.
    pub weights: Ptr,
    /// The same, sorted by expert.
    pub dispatch: Dispatch,
    /// Output, act \[rows, hidden\]; padded rows are zero.
    pub out: Ptr,
}

/// The routed experts of a model, all layers alike.
#[derive(Debug)]
pub struct Experts {
    pub(super) dtype: Dtype,
    pub(super) shape: ExpertShape,
    pub(super) pack: Kernel,
    pub(super) synthetic: Kernel,
    /// One expert in the checkpoint's layout, where the kernels want another.
    pub(super) staging: Option<Buffer<u32>>,
    max_rows: usize,
    form: Form,
}

/// Kernels: one thread an output, for every shape, or the fast ones.
#[derive(Debug)]
enum Form {
    Plain { up: Kernel, down: Kernel, middle: Buffer<u8> },
    Int4(Box<Int4>),
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PlainArgs {
    experts: Ptr,
    h: Ptr,
    ids: Ptr,
    weights: Ptr,
    middle: Ptr,
    out: Ptr,
}

impl KernelArgs for PlainArgs {}

impl Experts {
    /// Experts of this shape for buckets of at most `max_rows` rows, activations of type `dtype`. The fast form serves bf16 with
    /// INT4 weights whose sizes are multiples of 64, the plain form all else.
    ///
    /// # Errors
    /// INT4 rows that are no whole number of groups, the compiler's, or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, shape: ExpertShape, max_rows: usize) -> Result<Self> {
        Self::with(gpu, dtype, shape, max_rows, Tuning::of(dtype, &shape))
    }

    /// The same with a chosen tuning; `None` takes the plain form.
    ///
    /// # Errors
    /// As [`Experts::new`].
    pub fn with(gpu: &Gpu, dtype: Dtype, shape: ExpertShape, max_rows: usize, tuning: Option<Tuning>) -> Result<Self> {
        let ExpertShape { hidden, intermediate, top_k, kind, .. } = shape;
        if kind == ExpertKind::Int4 && !(hidden.is_multiple_of(32) && intermediate.is_multiple_of(32)) {
            let problem = format!("INT4 experts of {hidden} x {intermediate}: both must be multiples of 32");
            return Err(CudaError::Model(problem));
        }
        let sizes = [("HIDDEN", hidden as i64), ("INTER", intermediate as i64)];
        let form = match tuning {
            Some(tuning) => Form::Int4(Box::new(Int4::new(gpu, shape, tuning, max_rows)?)),
            None => {
                let vec = widest(dtype, &[hidden, intermediate]) as i64;
                let int4 = i64::from(kind == ExpertKind::Int4);
                let all = [sizes[0], sizes[1], ("TOP_K", top_k as i64), ("INT4", int4), ("VEC", vec)];
                let all = defines(dtype, &all);
                Form::Plain {
                    up: gpu.kernel("moe_plain.cu", "moe_plain_up", &all)?,
                    down: gpu.kernel("moe_plain.cu", "moe_plain_down", &all)?,
                    middle: gpu.alloc("expert activations", max_rows * top_k * intermediate * dtype.bytes())?,
                }
            }
        };
        let mut experts = Self {
            dtype,
            shape,
            pack: gpu.kernel("moe_pack.cu", "moe_pack", &sizes)?,
            synthetic: gpu.kernel("moe_pack.cu", "moe_synthetic", &sizes)?,
            staging: None,
            max_rows,
            form,
        };
        if tuning.is_some() {
            experts.staging = Some(gpu.alloc("expert staging", experts.expert_bytes() / 4)?);
        }
        Ok(experts)
    }

    /// out\[row\] = Σ over its experts of weight · down(silu(gate h) · up h).
    ///
    /// # Errors
    /// A bucket of more rows than these experts were made for, or the driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, args: &ExpertsArgs, layer: &ExpertWeights) -> Result<()> {
        self.run_up(gpu, bucket, args, layer)?;
        self.run_down(gpu, bucket, args, layer)
    }

    /// The first half of [`Experts::run`], up to the activation; by itself only for measuring.
    ///
    /// # Errors
    /// As [`Experts::run`].
    pub fn run_up(&self, gpu: &Gpu, bucket: Bucket, args: &ExpertsArgs, layer: &ExpertWeights) -> Result<()> {
        check_rows("experts", bucket, self.max_rows)?;
        match &self.form {
            Form::Int4(fast) => fast.up(gpu, args, layer),
            Form::Plain { up, middle, .. } => {
                let picks = bucket.rows * self.shape.top_k as u32;
                self.plain(gpu, (up, middle), [picks, blocks(self.shape.intermediate, THREADS), 1], args, layer)
            }
        }
    }

    /// The second half of [`Experts::run`], which must follow the first.
    ///
    /// # Errors
    /// As [`Experts::run`].
    pub fn run_down(&self, gpu: &Gpu, bucket: Bucket, args: &ExpertsArgs, layer: &ExpertWeights) -> Result<()> {
        check_rows("experts", bucket, self.max_rows)?;
        match &self.form {
            Form::Int4(fast) => fast.down(gpu, bucket, args, layer),
            Form::Plain { down, middle, .. } => {
                self.plain(gpu, (down, middle), [bucket.rows, blocks(self.shape.hidden, THREADS), 1], args, layer)
            }
        }
    }

    fn plain(
        &self,
        gpu: &Gpu,
        (kernel, middle): (&Kernel, &Buffer<u8>),
        grid: [u32; 3],
        args: &ExpertsArgs,
        layer: &ExpertWeights,
    ) -> Result<()> {
        let plain = PlainArgs {
            experts: layer.bytes.ptr(),
            h: args.h,
            ids: args.ids,
            weights: args.weights,
            middle: middle.ptr(),
            out: args.out,
        };
        gpu.launch(kernel, Launch { grid, block: THREADS as u32, shared: 0 }, &plain)
    }
}
