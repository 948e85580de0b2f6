//! The fast form of the experts: INT4 weights, bf16 activations, shapes of whole chunks.

use super::super::rows::Bucket;
use super::super::vector::defines;
use super::experts::{ExpertKind, ExpertShape, ExpertsArgs};
use super::router::{SEGMENT, most_segments};
use super::weights::ExpertWeights;
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Columns of a chunk of weights, as in `moe_int4.cuh`.
const CHUNK_COLUMNS: usize = 64;

/// Bytes of a chunk: 16 rows of 64 columns.
const CHUNK: usize = 576;

/// Bytes before the rows of one segment's activations, as in `moe_int4.cuh`: rows and weights of its picks.
const MIDDLE_HEAD: usize = 128;

/// Most chunks of inputs that a warp keeps in registers.
const MOST_CHUNKS: usize = 14;

/// Segments that a gate/up block looks up at once, as in `moe_int4_up.cu`.
const HEADS: usize = 512;

/// Shared memory that a block may use on every architecture served.
const SHARED: usize = 232_448;

/// How the work of the fast form is cut. [`Tuning::of`] gives what measured best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Warps of a gate/up block, each with a slice of the hidden columns.
    pub up_warps: usize,
    /// Slices in flight of each of them.
    pub up_stages: usize,
    /// Tiles of 16 output columns of a down block.
    pub down_tiles: usize,
    /// Warps that share a tile.
    pub down_split: usize,
    /// Segments in flight of a down block, a multiple of `down_together`.
    pub down_stages: usize,
    /// Segments that a warp works on at a time.
    pub down_together: usize,
    /// Segments whose weights gate/up blocks bring into the second-level cache for the down kernel.
    pub ahead: usize,
    /// Whether each kernel may start while the one before it ends.
    pub early: bool,
}

impl Tuning {
    /// For this shape; `None` where the fast form does not serve it.
    #[must_use]
    pub fn of(dtype: Dtype, shape: &ExpertShape) -> Option<Self> {
        let ExpertShape { hidden, intermediate, kind, .. } = *shape;
        let whole = hidden.is_multiple_of(CHUNK_COLUMNS) && intermediate.is_multiple_of(CHUNK_COLUMNS);
        if dtype != Dtype::Bf16 || kind != ExpertKind::Int4 || !whole {
            return None;
        }
        let chunks = hidden / CHUNK_COLUMNS;
        let fits = |warps: &usize| chunks.is_multiple_of(*warps) && chunks / warps <= MOST_CHUNKS;
        let up_warps = [8, 4, 2, 1].into_iter().find(fits)?;
        let inner = intermediate / CHUNK_COLUMNS;
        let mut tuning = Self {
            up_warps,
            up_stages: (130 * 1024 / (chunks * CHUNK)).clamp(2, 6),
            down_tiles: 4,
            down_split: if inner.is_multiple_of(2) { 2 } else { 1 },
            down_stages: 8,
            down_together: 4,
            ahead: 6,
            early: true,
        };
        // Wide experts: smaller stages, then fewer.
        while tuning.down_stages * tuning.stage_bytes(shape) > 112 * 1024 {
            if tuning.down_tiles > 1 {
                tuning.down_tiles /= 2;
            } else if tuning.down_together > 1 {
                (tuning.down_together, tuning.down_stages) = (tuning.down_together / 2, tuning.down_stages / 2);
            } else {
                return None;
            }
        }
        tuning.fits(shape).then_some(tuning)
    }

    /// Whether the kernels can be built so.
    fn fits(&self, shape: &ExpertShape) -> bool {
        self.up_shared(shape) <= SHARED && self.down_rows(shape) >= 8
    }

    /// With half the segments in flight.
    fn lean(&self) -> Self {
        let together = self.down_together.div_ceil(2);
        Self { down_together: together, down_stages: (self.down_stages / 2).next_multiple_of(together), ..*self }
    }

    fn up_shared(&self, shape: &ExpertShape) -> usize {
        let slice = shape.hidden / CHUNK_COLUMNS / self.up_warps * CHUNK;
        let offsets = shape.hidden / CHUNK_COLUMNS * 128;
        self.up_warps * (self.up_stages * (slice + 8) + 2 * 512) + offsets + HEADS * 16
    }

    fn stage_bytes(&self, shape: &ExpertShape) -> usize {
        let inner = shape.intermediate;
        self.down_tiles * (inner / CHUNK_COLUMNS) * CHUNK + middle_bytes(inner)
    }

    /// Bytes of a down block beside its sums.
    fn down_fixed(&self, shape: &ExpertShape) -> usize {
        self.down_stages * (self.stage_bytes(shape) + 16)
    }

    /// Bytes of a down block's sums of one row.
    fn down_row(&self) -> usize {
        self.down_tiles * self.down_split * 64
    }

    /// Most rows that a down block can sum.
    fn down_rows(&self, shape: &ExpertShape) -> usize {
        SHARED.saturating_sub(self.down_fixed(shape)) / self.down_row()
    }
}

/// Bytes of the activations of one segment.
fn middle_bytes(intermediate: usize) -> usize {
    MIDDLE_HEAD + SEGMENT * intermediate * 2
}

/// Bytes of the activations of a pass.
pub(super) fn workspace(shape: &ExpertShape, max_rows: usize) -> usize {
    most_segments(max_rows, shape.experts, shape.top_k) * middle_bytes(shape.intermediate)
}

/// The two kernels.
#[derive(Debug)]
pub(super) struct Int4 {
    shape: ExpertShape,
    tuning: Tuning,
    up: Kernel,
    /// The down kernel, and one with fewer stages and so more memory for rows where a pass may be that large.
    down: Vec<(Tuning, Kernel)>,
    /// Blocks of the gate/up kernel: one on each multiprocessor.
    blocks: u32,
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
    out: Ptr,
    rows: u32,
    rows_block: u32,
    capacity: u32,
    pad: u32,
}

impl KernelArgs for DownArgs {}

impl Int4 {
    pub fn new(gpu: &Gpu, shape: ExpertShape, tuning: Tuning, max_rows: usize) -> Result<Self> {
        let sizes = [("HIDDEN", shape.hidden as i64), ("INTER", shape.intermediate as i64)];
        let ahead_bytes = tuning.down_tiles * (shape.intermediate / CHUNK_COLUMNS) * CHUNK;
        let up = [
            ("WARPS", tuning.up_warps as i64),
            ("STAGES", tuning.up_stages as i64),
            ("AHEAD", tuning.ahead as i64),
            ("AHEAD_BYTES", ahead_bytes as i64),
        ];
        let all = |more: &[(&'static str, i64)]| defines(Dtype::Bf16, &[&sizes[..], more].concat());
        let mut down = Vec::new();
        for tuning in [tuning, tuning.lean()] {
            let defines = [
                ("TILES", tuning.down_tiles as i64),
                ("SPLIT", tuning.down_split as i64),
                ("STAGES", tuning.down_stages as i64),
                ("TOGETHER", tuning.down_together as i64),
            ];
            down.push((tuning, gpu.kernel("moe_int4_down.cu", "moe_int4_down", &all(&defines))?));
            if tuning.down_rows(&shape) >= max_rows {
                break;
            }
        }
        let up = gpu.kernel("moe_int4_up.cu", "moe_int4_up", &all(&up))?;
        Ok(Self { shape, tuning, up, down, blocks: gpu.info().sms })
    }

    /// middle = silu(gate h) · up h of every pick.
    pub fn up(&self, gpu: &Gpu, args: &ExpertsArgs, layer: &ExpertWeights, middle: Ptr) -> Result<()> {
        let (tuning, dispatch) = (&self.tuning, args.dispatch);
        let up = UpArgs {
            experts: layer.bytes.ptr(),
            h: args.h,
            segments: dispatch.segments,
            counts: dispatch.counts,
            middle,
            capacity: dispatch.capacity,
            pad: 0,
        };
        let (grid, block) = ([self.blocks, 1, 1], tuning.up_warps as u32 * 32);
        self.launch(gpu, &self.up, Launch { grid, block, shared: tuning.up_shared(&self.shape) as u32 }, &up)
    }

    /// out = Σ weight · down(middle). Starts on the weights while the kernel before it ends, which must be [`Int4::up`]: only so
    /// are the lists of picks complete by then.
    pub fn down(
        &self,
        gpu: &Gpu,
        bucket: Bucket,
        args: &ExpertsArgs,
        layer: &ExpertWeights,
        middle: Ptr,
    ) -> Result<()> {
        let (shape, rows) = (&self.shape, bucket.rows as usize);
        let fits = |(t, _): &&(Tuning, Kernel)| t.down_rows(shape) >= rows;
        let last = self.down.len() - 1;
        let (tuning, kernel) = self.down.iter().find(fits).unwrap_or(&self.down[last]);
        let parts = rows.div_ceil(tuning.down_rows(shape));
        let rows_block = rows.div_ceil(parts);
        let down = DownArgs {
            experts: layer.bytes.ptr(),
            segments: args.dispatch.segments,
            counts: args.dispatch.counts,
            middle,
            out: args.out,
            rows: bucket.rows,
            rows_block: rows_block as u32,
            capacity: args.dispatch.capacity,
            pad: 0,
        };
        let grid = [(shape.hidden / (16 * tuning.down_tiles)) as u32, parts as u32, 1];
        let mut shared = tuning.down_fixed(shape) + rows_block * tuning.down_row();
        if grid[0] * grid[1] <= self.blocks {
            // Blocks that start while the kernel before ends would crowd on the multiprocessors that are free first: one on each.
            shared = shared.max(SHARED / 2);
        }
        let block = (tuning.down_tiles * tuning.down_split + 1) as u32 * 32;
        let launch = Launch { grid, block, shared: shared as u32 };
        self.launch(gpu, kernel, launch, &down)
    }

    fn launch<A: KernelArgs>(&self, gpu: &Gpu, kernel: &Kernel, launch: Launch, args: &A) -> Result<()> {
        if self.tuning.early { gpu.launch_early(kernel, launch, args) } else { gpu.launch(kernel, launch, args) }
    }
}
