//! The fast form of the experts: INT4 weights, bf16 activations, shapes of whole chunks.

use super::super::rows::Bucket;
use super::super::vector::defines;
use super::experts::{ExpertKind, ExpertShape, ExpertsArgs};
use super::weights::ExpertWeights;
use crate::device::{Buffer, Define, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Columns of a chunk of weights, as in `moe_int4.cuh`.
const CHUNK_COLUMNS: usize = 64;

/// Bytes of a chunk: 16 rows of 64 columns.
const CHUNK: usize = 576;

/// Most chunks of inputs that a warp keeps in registers.
const MOST_CHUNKS: usize = 14;

/// Segments that a gate/up block looks up at once, as in `moe_int4_up.cu`.
const HEADS: usize = 512;

/// Widest experts: a warp keeps the inputs of down in registers.
const MOST_INNER: usize = 768;

/// Threads of a block of the last kernel, two outputs each.
const SUM_THREADS: usize = 128;

/// Shared memory that a block may use on every architecture served.
const SHARED: usize = 232_448;

/// How the work of the fast form is cut. [`Tuning::of`] gives what measured best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Warps of a gate/up block, each with a slice of the hidden columns.
    pub up_warps: usize,
    /// Slices in flight of each of them.
    pub up_stages: usize,
    /// Warps of a down block.
    pub down_warps: usize,
    /// Tiles of 16 outputs that a warp of it takes at a time.
    pub down_tiles: usize,
    /// As many of them in flight.
    pub down_stages: usize,
    /// Whether each kernel may start while the one before it ends.
    pub early: bool,
}

impl Tuning {
    /// For this shape; `None` where the fast form does not serve it.
    #[must_use]
    pub fn of(dtype: Dtype, shape: &ExpertShape) -> Option<Self> {
        let ExpertShape { hidden, intermediate, kind, .. } = *shape;
        let whole = hidden.is_multiple_of(CHUNK_COLUMNS) && intermediate.is_multiple_of(CHUNK_COLUMNS);
        if dtype != Dtype::Bf16 || kind != ExpertKind::Int4 || !whole || intermediate > MOST_INNER {
            return None;
        }
        let chunks = hidden / CHUNK_COLUMNS;
        let fits = |warps: &usize| chunks.is_multiple_of(*warps) && chunks / warps <= MOST_CHUNKS;
        let up_warps = [8, 4, 2, 1].into_iter().find(fits)?;
        let up_stages = (130 * 1024 / (chunks * CHUNK)).clamp(2, 6);
        // Some 9 KB in one piece.
        let down_tiles = [4, 2, 1].into_iter().find(|tiles| tiles * intermediate <= 1024).unwrap_or(1);
        let tuning = Self { up_warps, up_stages, down_warps: 8, down_tiles, down_stages: 2, early: true };
        (tuning.up_shared(shape).max(tuning.down_shared(shape)) <= SHARED).then_some(tuning)
    }

    fn up_shared(&self, shape: &ExpertShape) -> usize {
        let slice = shape.hidden / CHUNK_COLUMNS / self.up_warps * CHUNK;
        let offsets = shape.hidden / CHUNK_COLUMNS * 128;
        self.up_warps * (self.up_stages * (slice + 8) + 2 * 512) + offsets + HEADS * 8
    }

    /// Bytes of weights of one unit of a down warp.
    fn down_unit(&self, shape: &ExpertShape) -> usize {
        self.down_tiles * (shape.intermediate / CHUNK_COLUMNS) * CHUNK
    }

    fn down_shared(&self, shape: &ExpertShape) -> usize {
        let offsets = shape.intermediate / CHUNK_COLUMNS * 128;
        self.down_warps * (self.down_stages * (self.down_unit(shape) + 8) + offsets)
    }
}

/// The kernels and what lies between them.
#[derive(Debug)]
pub(super) struct Int4 {
    shape: ExpertShape,
    tuning: Tuning,
    up: Kernel,
    down: Kernel,
    sum: Kernel,
    /// Blocks of the persistent kernels: one on each multiprocessor.
    blocks: u32,
    /// silu(gate h) · up h of every pick, and its down product.
    middle: Buffer<u16>,
    parts: Buffer<f32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct UpArgs {
    experts: Ptr,
    h: Ptr,
    segments: Ptr,
    counts: Ptr,
    middle: Ptr,
    capacity: u32,
    pad: u32,
}

impl KernelArgs for UpArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DownArgs {
    experts: Ptr,
    segments: Ptr,
    counts: Ptr,
    middle: Ptr,
    parts: Ptr,
}

impl KernelArgs for DownArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SumArgs {
    parts: Ptr,
    ids: Ptr,
    weights: Ptr,
    out: Ptr,
}

impl KernelArgs for SumArgs {}

impl Int4 {
    pub fn new(gpu: &Gpu, shape: ExpertShape, tuning: Tuning, max_rows: usize) -> Result<Self> {
        let sizes: [Define; 3] =
            [("HIDDEN", shape.hidden as i64), ("INTER", shape.intermediate as i64), ("TOP_K", shape.top_k as i64)];
        let up = [("WARPS", tuning.up_warps as i64), ("STAGES", tuning.up_stages as i64)];
        let down = [
            ("WARPS", tuning.down_warps as i64),
            ("TILES", tuning.down_tiles as i64),
            ("STAGES", tuning.down_stages as i64),
        ];
        let all = |more: &[Define]| defines(Dtype::Bf16, &[&sizes[..], more].concat());
        let picks = max_rows * shape.top_k;
        Ok(Self {
            shape,
            tuning,
            up: gpu.kernel("moe_int4_up.cu", "moe_int4_up", &all(&up))?,
            down: gpu.kernel("moe_int4_down.cu", "moe_int4_down", &all(&down))?,
            sum: gpu.kernel("moe_int4_down.cu", "moe_int4_sum", &all(&down))?,
            blocks: gpu.info().sms,
            middle: gpu.alloc("expert activations", picks * shape.intermediate)?,
            parts: gpu.alloc("expert outputs", picks * shape.hidden)?,
        })
    }

    /// middle = silu(gate h) · up h of every pick.
    pub fn up(&self, gpu: &Gpu, args: &ExpertsArgs, layer: &ExpertWeights) -> Result<()> {
        let (tuning, dispatch) = (&self.tuning, args.dispatch);
        let up = UpArgs {
            experts: layer.ptr(),
            h: args.h,
            segments: dispatch.segments,
            counts: dispatch.counts,
            middle: self.middle.ptr(),
            capacity: dispatch.capacity,
            pad: 0,
        };
        let shared = tuning.up_shared(&self.shape);
        self.launch(gpu, &self.up, [self.blocks, 1], tuning.up_warps, shared, &up)
    }

    /// out = Σ weight · down(middle). Starts on the weights while the kernel before it ends, which must be [`Int4::up`]: only so
    /// are the lists of picks complete by then.
    pub fn down(&self, gpu: &Gpu, bucket: Bucket, args: &ExpertsArgs, layer: &ExpertWeights) -> Result<()> {
        let (tuning, dispatch) = (&self.tuning, args.dispatch);
        let down = DownArgs {
            experts: layer.ptr(),
            segments: dispatch.segments,
            counts: dispatch.counts,
            middle: self.middle.ptr(),
            parts: self.parts.ptr(),
        };
        let shared = tuning.down_shared(&self.shape);
        self.launch(gpu, &self.down, [self.blocks, 1], tuning.down_warps, shared, &down)?;
        let sum = SumArgs { parts: self.parts.ptr(), ids: args.ids, weights: args.weights, out: args.out };
        let grid = [bucket.rows, self.shape.hidden.div_ceil(2 * SUM_THREADS) as u32];
        self.launch(gpu, &self.sum, grid, SUM_THREADS / 32, 0, &sum)
    }

    fn launch<A: KernelArgs>(
        &self,
        gpu: &Gpu,
        kernel: &Kernel,
        grid: [u32; 2],
        warps: usize,
        shared: usize,
        args: &A,
    ) -> Result<()> {
        let launch = Launch { grid: [grid[0], grid[1], 1], block: warps as u32 * 32, shared: shared as u32 };
        if self.tuning.early { gpu.launch_early(kernel, launch, args) } else { gpu.launch(kernel, launch, args) }
    }
}
