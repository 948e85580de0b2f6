//! The tensor-core form of grouped-query attention: which tiles there are, and how a pass is launched.
//!
//! A tile is a number of (row, head of the group) pairs of one sequence and key/value head; all its pairs share each key that
//! is read. Small tiles let the warps of a block share the keys, large ones read the keys fewer times.

use super::gqa_attend::{GqaAttendCall, GqaShape};
use super::rows::{Bucket, RowsPtr};
use super::vector::blocks;
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Keys of one step; as in the kernel.
const KEYS: usize = 64;

/// Compile-time sizes of a tile.
#[derive(Debug, Clone, Copy)]
struct Tile {
    warps_m: usize,
    warps_n: usize,
    rows_m: usize,
    step: usize,
    stages: usize,
    resident: usize,
}

const TILES: [Tile; 4] = [
    Tile { warps_m: 1, warps_n: 4, rows_m: 1, step: 16, stages: 3, resident: 2 },
    Tile { warps_m: 2, warps_n: 2, rows_m: 1, step: 32, stages: 3, resident: 2 },
    Tile { warps_m: 4, warps_n: 1, rows_m: 1, step: 64, stages: 3, resident: 2 },
    Tile { warps_m: 4, warps_n: 1, rows_m: 2, step: 32, stages: 2, resident: 2 },
];

impl Tile {
    fn pairs(self) -> usize {
        16 * self.rows_m * self.warps_m
    }

    /// Queries and stages; where warps share keys, what they found lies in the stages' place at the end.
    fn shared(self, dim: usize) -> usize {
        let stages = self.stages * 2 * KEYS * dim * 2;
        let found = if self.warps_n > 1 { self.warps_n * self.pairs() * (dim + 2) * 4 } else { 0 };
        self.pairs() * dim * 2 + stages.max(found)
    }
}

/// The kernels of all tiles and the memory that they share.
#[derive(Debug)]
pub(crate) struct GqaTiles {
    tiles: Vec<(Tile, Kernel, Kernel)>,
    shape: GqaShape,
    sms: u32,
    part: Buffer<f32>,
    top: Buffer<f32>,
    cuts: Buffer<u32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GqaTileArgs {
    rows: RowsPtr,
    q: Ptr,
    k: Ptr,
    v: Ptr,
    out: Ptr,
    part: Ptr,
    top: Ptr,
    cuts: Ptr,
    seqs: u32,
    slots: u32,
    window: u32,
    window_tail: u32,
}

impl KernelArgs for GqaTileArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GqaMergeArgs {
    rows: RowsPtr,
    part: Ptr,
    top: Ptr,
    cuts: Ptr,
    out: Ptr,
    count: u32,
    unused: u32,
}

impl KernelArgs for GqaMergeArgs {}

impl GqaTiles {
    pub fn new(gpu: &Gpu, shape: GqaShape, max: Bucket, sms: u32) -> Result<Self> {
        let GqaShape { heads, kv_heads, head_dim } = shape;
        let kernels = |tile: &Tile| -> Result<(Tile, Kernel, Kernel)> {
            let defines = [
                ("ACT_BF16", 1),
                ("HEADS", heads as i64),
                ("KV_HEADS", kv_heads as i64),
                ("DIM", head_dim as i64),
                ("WARPS_M", tile.warps_m as i64),
                ("WARPS_N", tile.warps_n as i64),
                ("ROWS_M", tile.rows_m as i64),
                ("STEP", tile.step as i64),
                ("STAGES", tile.stages as i64),
                ("RESIDENT", tile.resident as i64),
            ];
            let file = "gqa_attend_smxx.cu";
            Ok((*tile, gpu.kernel(file, "gqa_attend_smxx", &defines)?, gpu.kernel(file, "gqa_merge", &defines)?))
        };
        let tiles = TILES.iter().map(kernels).collect::<Result<Vec<_>>>()?;
        // Parts are written only when all blocks run at once.
        let pairs = TILES.iter().map(|t| t.pairs() * t.resident).max().unwrap_or(0) * sms as usize;
        Ok(Self {
            tiles,
            shape,
            sms,
            part: gpu.alloc("parts of attention", pairs * head_dim)?,
            top: gpu.alloc("parts of attention", pairs * 2)?,
            cuts: gpu.alloc("parts of attention", max.seqs as usize * 4)?,
        })
    }

    pub fn heights(&self) -> usize {
        self.tiles.len()
    }

    /// The tile for a bucket whose sequences are equally long: the smallest that holds all pairs of one, else the largest.
    pub fn height(&self, bucket: Bucket) -> usize {
        let group = self.shape.heads / self.shape.kv_heads;
        let pairs = bucket.rows.div_ceil(bucket.seqs.max(1)) as usize * group;
        self.tiles.iter().position(|(tile, ..)| tile.pairs() >= pairs).unwrap_or(self.tiles.len() - 1)
    }

    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &GqaAttendCall, height: usize) -> Result<()> {
        let GqaShape { heads, kv_heads, head_dim } = self.shape;
        let (tile, attend, merge) = &self.tiles[height];
        let GqaAttendCall { rows, q, k_cache, v_cache, out, window, window_tail } = *call;
        let (part, top, cuts) = (self.part.ptr(), self.top.ptr(), self.cuts.ptr());
        let slots = tile.resident as u32 * self.sms;
        // However the rows are shared among the sequences, no more tiles than these come out.
        let pairs = bucket.rows as usize * (heads / kv_heads);
        let most = kv_heads * (pairs + bucket.seqs as usize * (tile.pairs() - 1)) / tile.pairs();
        let launch = Launch {
            grid: [slots.max(most as u32), 1, 1],
            block: 32 * (tile.warps_m * tile.warps_n) as u32,
            shared: tile.shared(head_dim) as u32,
        };
        let args = GqaTileArgs {
            rows,
            q,
            k: k_cache,
            v: v_cache,
            out,
            part,
            top,
            cuts,
            seqs: bucket.seqs,
            slots,
            window,
            window_tail: u32::from(window_tail),
        };
        gpu.launch(attend, launch, &args)?;
        let args = GqaMergeArgs { rows, part, top, cuts, out, count: bucket.rows, unused: 0 };
        gpu.launch(merge, Launch::flat(blocks(bucket.rows as usize * heads, 4), 128), &args)
    }
}
