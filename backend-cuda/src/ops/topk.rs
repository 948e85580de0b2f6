//! The drafter's candidates: log-softmax of each row of logits and its best entries.

use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

const THREADS: usize = 256;

/// Entries listed beyond the width, for those that rounding makes equal.
const SPARE: usize = 8;

/// Most entries of a row.
pub const MOST_WIDTH: usize = 1024;

/// Addresses of a lattice: per row `width` candidates, best first. Row = sequence · levels + depth − 1.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct LatticePtr {
    /// Tokens, u32 \[rows, width\]; `u32::MAX` behind a row's end.
    pub token: Ptr,
    /// Log-probabilities, f32 \[rows, width\], falling; −∞ behind a row's end.
    pub logp: Ptr,
    /// Candidates of each row, u32 \[rows\].
    pub count: Ptr,
    /// 1 = the row is unusable (a NaN, +∞, or nothing finite), u32 \[rows\].
    pub fault: Ptr,
}

/// Device memory of a lattice.
#[derive(Debug)]
pub struct Lattice {
    token: Buffer<u32>,
    logp: Buffer<f32>,
    count: Buffer<u32>,
    fault: Buffer<u32>,
    levels: usize,
    width: usize,
}

impl Lattice {
    /// Room for `seqs` sequences of `levels` rows of `width` candidates; empty rows at first.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn new(gpu: &Gpu, seqs: usize, levels: usize, width: usize) -> Result<Self> {
        let rows = seqs * levels;
        Ok(Self {
            token: gpu.zeroed("lattice tokens", rows * width)?,
            logp: gpu.zeroed("lattice log-probabilities", rows * width)?,
            count: gpu.zeroed("lattice counts", rows)?,
            fault: gpu.zeroed("lattice faults", rows)?,
            levels,
            width,
        })
    }

    /// Where it lies.
    #[must_use]
    pub fn ptrs(&self) -> LatticePtr {
        LatticePtr { token: self.token.ptr(), logp: self.logp.ptr(), count: self.count.ptr(), fault: self.fault.ptr() }
    }

    /// Levels of each sequence.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// Candidates of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }
}

/// The `width` best log-probabilities of each row: `logp = x − (max + ln Σ exp(x − max))` in f32 over the whole row, best
/// first, equal ones by smaller token, −∞ left out.
#[derive(Debug)]
pub struct TopK {
    chunk: Kernel,
    merge: Kernel,
    chunks: usize,
    merge_threads: u32,
    max_rows: usize,
    value: Buffer<f32>,
    token: Buffer<u32>,
    sums: Buffer<f32>,
    counts: Buffer<u32>,
}

/// Operands of [`TopK::run`].
#[derive(Debug, Clone, Copy)]
pub struct TopKArgs {
    /// Logits, f32, rows `stride` apart.
    pub logits: Ptr,
    /// Elements from one row of logits to the next.
    pub stride: usize,
    /// Row of logits of each output row, u32 \[rows\], `u32::MAX` = none (the row stays as it is, with count 0); or
    /// [`Ptr::NULL`]: the same row.
    pub source: Ptr,
    /// Result.
    pub out: LatticePtr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    logits: Ptr,
    source: Ptr,
    value: Ptr,
    token: Ptr,
    chunk_max: Ptr,
    chunk_sum: Ptr,
    chunk_count: Ptr,
    chunk_floor: Ptr,
    out: LatticePtr,
    stride: u64,
}

impl KernelArgs for Args {}

impl TopK {
    /// For rows of `vocab` logits, at most `max_rows` of them, and `width` candidates of each.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for a width of 0 or above [`MOST_WIDTH`]; memory, the compiler's or the driver's.
    pub fn new(gpu: &Gpu, vocab: usize, max_rows: usize, width: usize) -> Result<Self> {
        if width == 0 || width > MOST_WIDTH || vocab == 0 {
            let problem = format!("of {width} candidates from {vocab} tokens: 1 to {MOST_WIDTH} can be listed");
            return Err(CudaError::Setting { key: "width", problem });
        }
        let want = width + SPARE;
        // Twice as many groups as wanted entries: then not many more than wanted pass the groups' threshold.
        let groups = (2 * want).div_ceil(THREADS).next_power_of_two();
        let items = vocab.div_ceil(THREADS).next_power_of_two().clamp(4, 32).max(groups);
        let chunks = vocab.div_ceil(THREADS * items);
        let cap = (2 * want).next_multiple_of(8).min(THREADS * items);
        // Up to sixteen entries a thread.
        let merge = (chunks * cap).div_ceil(16).next_power_of_two().clamp(256, 1024);
        let sort = width.next_power_of_two();
        let shape = |name, value: usize| (name, value as i64);
        let shapes = [
            shape("VOCAB", vocab),
            shape("WIDTH", width),
            shape("SPARE", SPARE),
            shape("CHUNKS", chunks),
            shape("ITEMS", items),
            shape("GROUPS", groups),
            shape("CAP", cap),
            shape("MERGE", merge),
            shape("SORT", sort),
            shape("ALIGNED", usize::from(vocab.is_multiple_of(4))),
        ];
        let lists = max_rows * chunks;
        Ok(Self {
            chunk: gpu.kernel("topk.cu", "topk_chunk", &shapes)?,
            merge: gpu.kernel("topk.cu", "topk_merge", &shapes)?,
            chunks,
            merge_threads: merge as u32,
            max_rows,
            value: gpu.zeroed("top-k lists", lists * cap)?,
            token: gpu.zeroed("top-k lists", lists * cap)?,
            sums: gpu.alloc("top-k sums", lists * 2)?,
            counts: gpu.alloc("top-k counts", lists * 2)?,
        })
    }

    /// Lists the candidates of `rows` rows.
    ///
    /// # Errors
    /// [`CudaError::Kernel`] for more rows than there is memory for or a stride that the vocabulary's alignment rules out, or
    /// the driver's.
    pub fn run(&self, gpu: &Gpu, rows: u32, call: &TopKArgs) -> Result<()> {
        if rows as usize > self.max_rows {
            let why = format!("{rows} rows, memory for {}", self.max_rows);
            return Err(CudaError::Kernel { kernel: "topk".into(), why });
        }
        let lists = self.max_rows * self.chunks;
        let args = Args {
            logits: call.logits,
            source: call.source,
            value: self.value.ptr(),
            token: self.token.ptr(),
            chunk_max: self.sums.ptr(),
            chunk_sum: self.sums.at(lists),
            chunk_count: self.counts.ptr(),
            chunk_floor: self.counts.at(lists),
            out: call.out,
            stride: call.stride as u64,
        };
        let grid = [self.chunks as u32, rows, 1];
        gpu.launch(&self.chunk, Launch { grid, block: THREADS as u32, shared: 0 }, &args)?;
        gpu.launch(&self.merge, Launch::flat(rows, self.merge_threads), &args)
    }
}
