//! The experts of each row, and the picks sorted by expert.

use super::super::rows::{Bucket, RowsPtr};
use crate::device::{Buffer, Define, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Warps of a block, a row each, as in `moe_route.cu`.
const WARPS: u32 = 8;

/// Picks of one segment, as in `moe.cuh`.
const SEGMENT: usize = 8;

/// Most experts of a row: a lane each.
const MOST_PICKS: usize = 32;

/// Most experts: the kernel keeps a row's scores in shared memory.
const MOST_EXPERTS: usize = 512;

/// Words of one segment, as in `moe.cuh`: expert, picks, two of nothing, then eight picks.
const SEGMENT_WORDS: usize = 4 + SEGMENT;

/// Picks sorted by expert, on the device: valid from [`Router::run`] until the next.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch {
    /// Runs of at most 8 picks of one expert, by ascending expert.
    pub segments: Ptr,
    /// Segments, picks, distinct experts; u32.
    pub counts: Ptr,
    /// Segments that there is memory for.
    pub capacity: u32,
}

/// What one routing reads and writes. Rows are those of the bucket.
#[derive(Debug, Clone, Copy)]
pub struct RouterArgs {
    /// The rows; padding is routed nowhere.
    pub rows: RowsPtr,
    /// Router logits, f32 \[rows, experts\].
    pub logits: Ptr,
    /// Correction bias of a sigmoid router, f32 \[experts\], or [`Ptr::NULL`].
    pub bias: Ptr,
    /// Experts that the rows must use, i32 \[rows, top_k\], or [`Ptr::NULL`]. Their weights come from their scores by the same
    /// rule. A row with an id out of range routes itself.
    pub forced: Ptr,
    /// Output: experts, i32 \[rows, top_k\], ascending; −1 in padded rows.
    pub ids: Ptr,
    /// Output: weights, f32 \[rows, top_k\]; 0 in padded rows.
    pub weights: Ptr,
    /// Output: how many distinct experts the real rows use, one u32, or [`Ptr::NULL`].
    pub distinct: Ptr,
}

/// Routing of up to a fixed number of rows.
#[derive(Debug)]
pub struct Router {
    kernel: Kernel,
    scaling: f32,
    max_rows: usize,
    counts: Buffer<u32>,
    segments: Buffer<u32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RouteArgs {
    seq: Ptr,
    logits: Ptr,
    bias: Ptr,
    forced: Ptr,
    ids: Ptr,
    weights: Ptr,
    distinct: Ptr,
    arrived: Ptr,
    segments: Ptr,
    counts: Ptr,
    scaling: f32,
    rows: u32,
}

impl KernelArgs for RouteArgs {}

/// Most segments that `rows` rows can need: every expert ends at most one partly filled.
fn most_segments(rows: usize, experts: usize, top_k: usize) -> usize {
    let picks = rows * top_k;
    picks.min(experts) + picks / SEGMENT
}

impl Router {
    /// A router over `experts` experts of which each row uses `top_k`, for buckets of at most `max_rows` rows.
    ///
    /// # Errors
    /// Shapes that the kernel does not take, the compiler's, or the driver's.
    pub fn new(
        gpu: &Gpu,
        experts: usize,
        top_k: usize,
        kind: &treeline_checkpoint::Router,
        max_rows: usize,
    ) -> Result<Self> {
        let (sigmoid, groups, keep, norm, scaling) = match *kind {
            treeline_checkpoint::Router::Sigmoid { n_group, topk_group, norm_topk, scaling } => {
                (1, n_group.max(1), topk_group.min(n_group.max(1)), norm_topk, scaling as f32)
            }
            treeline_checkpoint::Router::Softmax { norm_topk } => (0, 1, 1, norm_topk, 1.0),
        };
        if top_k == 0 || top_k > MOST_PICKS.min(experts) || experts > MOST_EXPERTS || !experts.is_multiple_of(groups) {
            return Err(CudaError::Model(format!(
                "a router of {top_k} in {experts} experts in {groups} groups: at most {MOST_PICKS} in {MOST_EXPERTS}, in \
                 groups of one size, are served"
            )));
        }
        let defines: [Define; 6] = [
            ("EXPERTS", experts as i64),
            ("TOP_K", top_k as i64),
            ("SIGMOID", sigmoid),
            ("GROUPS", groups as i64),
            ("KEEP", keep as i64),
            ("NORM", i64::from(norm)),
        ];
        let kernel = gpu.kernel("moe_route.cu", "moe_route", &defines)?;
        // Word 0 counts blocks and must be 0 between launches; the lists' sizes follow.
        let counts = gpu.zeroed("expert counts", 4)?;
        let segments = gpu.zeroed("expert segments", most_segments(max_rows, experts, top_k) * SEGMENT_WORDS)?;
        Ok(Self { kernel, scaling, max_rows, counts, segments })
    }

    /// Where the sorted picks lie.
    #[must_use]
    pub fn dispatch(&self) -> Dispatch {
        let capacity = (self.segments.len() / SEGMENT_WORDS) as u32;
        Dispatch { segments: self.segments.ptr(), counts: self.counts.at(1), capacity }
    }

    /// Routes the rows of `bucket`: equal scores go to the smaller id, rows without usable scores get distinct experts too.
    ///
    /// # Errors
    /// A bucket of more rows than this router was made for, or the driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, args: &RouterArgs) -> Result<()> {
        check_rows("moe_route", bucket, self.max_rows)?;
        let Dispatch { segments, counts, .. } = self.dispatch();
        let args = RouteArgs {
            seq: args.rows.seq,
            logits: args.logits,
            bias: args.bias,
            forced: args.forced,
            ids: args.ids,
            weights: args.weights,
            distinct: args.distinct,
            arrived: self.counts.at(0),
            segments,
            counts,
            scaling: self.scaling,
            rows: bucket.rows,
        };
        gpu.launch_early(&self.kernel, Launch::flat(bucket.rows.div_ceil(WARPS), WARPS * 32), &args)
    }
}

/// An error when `bucket` has more rows than the memory of an operation.
pub(super) fn check_rows(kernel: &str, bucket: Bucket, max_rows: usize) -> Result<()> {
    if bucket.rows as usize <= max_rows {
        return Ok(());
    }
    let why = format!("{} rows, memory was taken for {max_rows}", bucket.rows);
    Err(CudaError::Kernel { kernel: kernel.into(), why })
}
