//! Products of bf16 weights with a few rows, where a library's kernels are slower than the memory: several products that read
//! the same rows go in one launch, and the gates of a SwiGLU are applied where they are made.

use crate::device::{Buffer, Dtype, Gpu, Kernel, KernelArgs, Launch, Matrix, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Outputs of one block.
const OUTPUTS: usize = 64;

/// Inputs of one step of a warp.
const STEP: usize = 32;

/// Rows that there are kernels for, in multiples of eight.
const TILES: [usize; 4] = [1, 2, 3, 5];

/// The kernels with their working memory. One serves all products of a stream, one after the other.
#[derive(Debug)]
pub struct Dense {
    kernels: Vec<(usize, Kernel)>,
    partial: Buffer<f32>,
    arrived: Buffer<u32>,
    blocks: usize,
}

/// What one launch computes, for each of `batch` problems. x and weights are bf16.
#[derive(Debug, Clone, Copy)]
pub struct DenseCall {
    /// Rows.
    pub rows: usize,
    /// Inputs of each.
    pub inputs: usize,
    /// Problems.
    pub batch: usize,
    /// Rows \[rows, inputs\].
    pub x: Matrix,
    /// Weight \[outputs, inputs\] without gaps.
    pub w: Matrix,
    /// Rows of `w`; 0 = none.
    pub outputs: usize,
    /// Result \[rows, outputs\], bf16 or f32.
    pub y: Matrix,
    /// Whether y is added to (bf16).
    pub add: bool,
    /// A SwiGLU of the same rows (batch 1).
    pub glu: Option<Glu>,
    /// y are the queries of latent attention (batch 1, bf16).
    pub queries: Option<Queries>,
}

/// What becomes of queries \[rows, heads, nope + rope\] of latent attention: all are scaled; the last `rope` of each head are
/// turned, neighbours together, and do not go to y but behind the head's absorbed query.
#[derive(Debug, Clone, Copy)]
pub struct Queries {
    /// Cosines, f32 \[positions, rope / 2\].
    pub cos: Ptr,
    /// Sines.
    pub sin: Ptr,
    /// Absolute positions, u32 \[rows\].
    pub position: Ptr,
    /// bf16 \[rows, heads, latent + rope\].
    pub absorbed: Ptr,
    /// Dimensions without position; even, as is `rope`.
    pub nope: usize,
    /// Dimensions with position.
    pub rope: usize,
    /// Width of the latent.
    pub latent: usize,
    /// Factor of the queries.
    pub scale: f32,
}

/// z = silu(gate · x) · (up · x).
#[derive(Debug, Clone, Copy)]
pub struct Glu {
    /// Gate, then up, bf16 \[2, inner, inputs\].
    pub w: Ptr,
    /// Width.
    pub inner: usize,
    /// Result, bf16 \[rows, inner\].
    pub z: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DenseArgs {
    x: Ptr,
    w: Ptr,
    glu: Ptr,
    y: Ptr,
    z: Ptr,
    partial: Ptr,
    arrived: Ptr,
    cos: Ptr,
    sin: Ptr,
    position: Ptr,
    absorbed: Ptr,
    x_stride: u64,
    x_batch: u64,
    w_batch: u64,
    y_stride: u64,
    y_batch: u64,
    rows: u32,
    inputs: u32,
    outputs: u32,
    inner: u32,
    splits: u32,
    wide: u32,
    add: u32,
    head: u32,
    nope: u32,
    latent: u32,
    scale: f32,
    unused: u32,
}

impl KernelArgs for DenseArgs {}

impl Dense {
    /// Most rows that a launch serves.
    pub const MOST_ROWS: usize = 40;

    /// Loads the kernels.
    ///
    /// # Errors
    /// No memory, the compiler's or the driver's.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let kernel = |tiles: &usize| {
            // What fits into the registers: two blocks a multiprocessor, or one that reads further ahead.
            let (depth, resident) = match tiles {
                1..=3 => (4, 2),
                _ => (5, 1),
            };
            let shapes = [("TILES", *tiles as i64), ("DEPTH", depth), ("RESIDENT", resident)];
            Ok((*tiles, gpu.kernel("dense_smxx.cu", "dense", &shapes)?))
        };
        let blocks = 2 * gpu.info().sms as usize;
        Ok(Self {
            kernels: TILES.iter().map(kernel).collect::<Result<_>>()?,
            partial: gpu.alloc("working memory of products", blocks * Self::MOST_ROWS * OUTPUTS)?,
            arrived: gpu.zeroed("working memory of products", blocks)?,
            blocks,
        })
    }

    /// Whether a product of this form is served: bf16, few rows, rows that begin at multiples of 16 bytes.
    #[must_use]
    pub fn serves(call: &DenseCall) -> bool {
        let eights = [call.inputs, call.x.stride, call.x.batch_stride, call.w.batch_stride];
        call.x.dtype == Dtype::Bf16
            && call.w.dtype == Dtype::Bf16
            && call.w.stride == call.inputs
            && (1..=Self::MOST_ROWS).contains(&call.rows)
            && call.inputs.is_multiple_of(STEP)
            && eights.iter().all(|n| n.is_multiple_of(8))
            && call.x.at.0.is_multiple_of(16)
    }

    /// Blocks that share the inputs of one tile of outputs: enough to keep every multiprocessor reading, and some steps for
    /// each warp.
    fn splits(&self, tiles: usize, inputs: usize, rows: usize) -> usize {
        let most = if rows > 24 { self.blocks / 2 } else { self.blocks };
        (most / tiles).min(inputs / (STEP * 4 * 4)).max(1)
    }

    /// Queues it. The launch depends on the shapes alone.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, call: &DenseCall) -> Result<()> {
        let tiles = call.outputs.div_ceil(OUTPUTS) + call.glu.map_or(0, |g| g.inner.div_ceil(OUTPUTS / 2));
        let splits = self.splits(tiles * call.batch, call.inputs, call.rows);
        self.run_split(gpu, call, splits)
    }

    /// The same with a number of splits, for benchmarks.
    ///
    /// # Errors
    /// The driver's.
    #[doc(hidden)]
    pub fn run_split(&self, gpu: &Gpu, call: &DenseCall, splits: usize) -> Result<()> {
        let tiles = call.outputs.div_ceil(OUTPUTS) + call.glu.map_or(0, |g| g.inner.div_ceil(OUTPUTS / 2));
        // The list ends with the most rows that are served.
        let Some((rows, kernel)) = self.kernels.iter().find(|(n, _)| n * 8 >= call.rows) else { return Ok(()) };
        let args = DenseArgs {
            x: call.x.at,
            w: call.w.at,
            glu: call.glu.map_or(Ptr::NULL, |g| g.w),
            y: call.y.at,
            z: call.glu.map_or(Ptr::NULL, |g| g.z),
            partial: self.partial.ptr(),
            arrived: self.arrived.ptr(),
            cos: call.queries.map_or(Ptr::NULL, |q| q.cos),
            sin: call.queries.map_or(Ptr::NULL, |q| q.sin),
            position: call.queries.map_or(Ptr::NULL, |q| q.position),
            absorbed: call.queries.map_or(Ptr::NULL, |q| q.absorbed),
            x_stride: call.x.stride as u64,
            x_batch: call.x.batch_stride as u64,
            w_batch: call.w.batch_stride as u64,
            y_stride: call.y.stride as u64,
            y_batch: call.y.batch_stride as u64,
            rows: call.rows as u32,
            inputs: call.inputs as u32,
            outputs: call.outputs as u32,
            inner: call.glu.map_or(0, |g| g.inner as u32),
            splits: splits as u32,
            wide: u32::from(call.y.dtype == Dtype::F32),
            add: u32::from(call.add),
            head: call.queries.map_or(0, |q| (q.nope + q.rope) as u32),
            nope: call.queries.map_or(0, |q| q.nope as u32),
            latent: call.queries.map_or(0, |q| q.latent as u32),
            scale: call.queries.map_or(1.0, |q| q.scale),
            unused: 0,
        };
        let shared = (4 * rows * 8 * (OUTPUTS + 4) * 4) as u32;
        let launch = Launch { grid: [tiles as u32, splits as u32, call.batch as u32], block: 256, shared };
        gpu.launch_early(kernel, launch, &args)
    }
}
