//! The target's token of each row, as `treeline_core::sampling` and its random stream choose it.

use super::rows::RowsPtr;
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

const THREADS: usize = 256;
const CHUNK: usize = THREADS * 32;
const FILTER_THREADS: u32 = 1024;
/// Bins of a row's histogram, and shared memory of the kernel that reads it (`FilterShared`).
const BINS: usize = 2048;
const FILTER_SHARED: u32 = 49_696;

/// How one sequence's tokens are chosen, as kernels read it.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SeqSampling {
    /// Seed of the run.
    pub seed: u64,
    /// The request's id.
    pub request: u64,
    /// 0 = argmax.
    pub temperature: f32,
    /// Keep so many of the best; 0 = all.
    pub top_k: u32,
    /// Keep the smallest set of the best that holds this share; 1 = all.
    pub top_p: f32,
    /// Keeps the size a multiple of 8.
    pub unused: u32,
}

/// What the requests of a batch need at most; the launches follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Draw {
    /// All take the argmax.
    Greedy,
    /// Some sample.
    Sample,
    /// Some sample behind top-k or top-p.
    Filter,
}

/// Token of each row: the first largest logit, or one Gumbel-max sample under the key (seed, request, position of the row + 1)
/// from softmax(logits / temperature) behind top-k and then top-p.
#[derive(Debug)]
pub struct Sample {
    max: [Kernel; 2],
    bins: Kernel,
    filter: Kernel,
    draw: [Kernel; 2],
    pick: [Kernel; 2],
    chunks: usize,
    max_rows: usize,
    top: Buffer<u64>,
    value: Buffer<f64>,
    drawn: Buffer<u32>,
    last_key: Buffer<u64>,
    last_token: Buffer<u32>,
    bin_mass: Buffer<u64>,
    bin_count: Buffer<u32>,
}

/// Operands of [`Sample::run`].
#[derive(Debug, Clone, Copy)]
pub struct SampleArgs {
    /// Logits, f32, rows `stride` apart.
    pub logits: Ptr,
    /// Elements from one row of logits to the next.
    pub stride: usize,
    /// Row of the pass of each row of logits, u32 \[rows\], `u32::MAX` = none; or [`Ptr::NULL`]: the same row.
    pub source: Ptr,
    /// The pass: sequence and position of each row.
    pub plan: RowsPtr,
    /// [`SeqSampling`] by sequence.
    pub sampling: Ptr,
    /// Result, u32 \[rows\]: the token; `u32::MAX` for an unusable row (NaN, +∞, nothing finite) and for padding.
    pub out: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    logits: Ptr,
    source: Ptr,
    seq: Ptr,
    position: Ptr,
    sampling: Ptr,
    top: Ptr,
    value: Ptr,
    drawn: Ptr,
    last_key: Ptr,
    last_token: Ptr,
    bin_mass: Ptr,
    bin_count: Ptr,
    out: Ptr,
    stride: u64,
    rows: u32,
    unused: u32,
}

impl KernelArgs for Args {}

impl Sample {
    /// For rows of `vocab` logits, at most `max_rows` of them.
    ///
    /// # Errors
    /// Memory, the compiler's or the driver's.
    pub fn new(gpu: &Gpu, vocab: usize, max_rows: usize) -> Result<Self> {
        let chunks = vocab.div_ceil(CHUNK);
        let kernel = |file, name, draw: i64, filter: i64| {
            let aligned = i64::from(vocab.is_multiple_of(4));
            let shapes = [("VOCAB", vocab as i64), ("CHUNKS", chunks as i64), ("ALIGNED", aligned)];
            gpu.kernel(file, name, &[&shapes[..], &[("DRAW", draw), ("FILTER", filter)]].concat())
        };
        Ok(Self {
            max: [kernel("sample.cu", "sample_max", 0, 0)?, kernel("sample.cu", "sample_max", 1, 1)?],
            bins: kernel("sample_filter.cu", "sample_bins", 1, 1)?,
            filter: kernel("sample_filter.cu", "sample_filter", 1, 1)?,
            draw: [kernel("sample.cu", "sample_draw", 1, 0)?, kernel("sample.cu", "sample_draw", 1, 1)?],
            pick: [kernel("sample.cu", "sample_pick", 0, 0)?, kernel("sample.cu", "sample_pick", 1, 0)?],
            chunks,
            max_rows,
            top: gpu.alloc("sampling maxima", max_rows * chunks)?,
            value: gpu.alloc("sampling scores", max_rows * chunks)?,
            drawn: gpu.alloc("sampling tokens", max_rows * chunks)?,
            last_key: gpu.alloc("sampling filters", max_rows)?,
            last_token: gpu.alloc("sampling filters", max_rows)?,
            bin_mass: gpu.alloc("sampling bins", max_rows * BINS)?,
            bin_count: gpu.alloc("sampling bins", max_rows * BINS)?,
        })
    }

    /// Chooses the tokens of `rows` rows. A sequence with a temperature or a filter that `draw` leaves out is treated as if it
    /// had none.
    ///
    /// # Errors
    /// [`CudaError::Kernel`] for more rows than there is memory for, or the driver's.
    pub fn run(&self, gpu: &Gpu, draw: Draw, rows: u32, call: &SampleArgs) -> Result<()> {
        if rows as usize > self.max_rows {
            let why = format!("{rows} rows, memory for {}", self.max_rows);
            return Err(CudaError::Kernel { kernel: "sample".into(), why });
        }
        let args = Args {
            logits: call.logits,
            source: call.source,
            seq: call.plan.seq,
            position: call.plan.position,
            sampling: call.sampling,
            top: self.top.ptr(),
            value: self.value.ptr(),
            drawn: self.drawn.ptr(),
            last_key: self.last_key.ptr(),
            last_token: self.last_token.ptr(),
            bin_mass: self.bin_mass.ptr(),
            bin_count: self.bin_count.ptr(),
            out: call.out,
            stride: call.stride as u64,
            rows,
            unused: 0,
        };
        let chunks = Launch { grid: [self.chunks as u32, rows, 1], block: THREADS as u32, shared: 0 };
        gpu.launch(&self.max[usize::from(draw == Draw::Filter)], chunks, &args)?;
        if draw == Draw::Filter {
            gpu.launch(&self.bins, chunks, &args)?;
            let filter = Launch { shared: FILTER_SHARED, ..Launch::flat(rows, FILTER_THREADS) };
            gpu.launch(&self.filter, filter, &args)?;
        }
        if draw != Draw::Greedy {
            gpu.launch(&self.draw[usize::from(draw == Draw::Filter)], chunks, &args)?;
        }
        let warps = THREADS as u32 / 32;
        gpu.launch(
            &self.pick[usize::from(draw != Draw::Greedy)],
            Launch::flat(rows.div_ceil(warps), THREADS as u32),
            &args,
        )
    }
}
