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
    /// Pairs, a multiple of 16.
    pairs: usize,
    /// Warps that share the keys of a step among them; 0 = a warpgroup for each 64 pairs.
    sharing: usize,
    /// Stages of keys and values in shared memory.
    stages: usize,
    /// Blocks of a multiprocessor that the work is cut for.
    blocks: usize,
}

/// One warp for each 16 pairs, and what is left of four warps shares the keys.
const PORTABLE: [Tile; 3] = [
    Tile { pairs: 16, sharing: 4, stages: 5, blocks: 1 },
    Tile { pairs: 32, sharing: 2, stages: 3, blocks: 2 },
    Tile { pairs: 64, sharing: 1, stages: 3, blocks: 2 },
];

/// For few pairs the portable form, whose products have 16 rows.
const HOPPER: [Tile; 5] = [
    PORTABLE[0],
    PORTABLE[1],
    Tile { pairs: 64, sharing: 0, stages: 6, blocks: 1 },
    Tile { pairs: 128, sharing: 0, stages: 5, blocks: 1 },
    Tile { pairs: 192, sharing: 0, stages: 5, blocks: 1 },
];

impl Tile {
    fn threads(self) -> usize {
        if self.sharing == 0 { self.pairs * 2 } else { self.pairs * 2 * self.sharing }
    }

    /// Queries and stages; where warps share keys, what they found lies in the stages' place at the end. The Hopper form
    /// aligns them to 1024 bytes.
    fn shared(self, dim: usize) -> usize {
        let stages = self.stages * 2 * KEYS * dim * 2;
        let found = if self.sharing > 1 { self.sharing * self.pairs * (dim + 2) * 4 } else { 0 };
        let slack = if self.sharing == 0 { 1024 } else { 0 };
        self.pairs * dim * 2 + stages.max(found) + slack
    }

    fn kernels(self, gpu: &Gpu, shape: GqaShape) -> Result<(Kernel, Kernel)> {
        let shapes =
            [("HEADS", shape.heads as i64), ("KV_HEADS", shape.kv_heads as i64), ("DIM", shape.head_dim as i64)];
        let stages = ("STAGES", self.stages as i64);
        let attend = if self.sharing == 0 {
            // Warps may be a step apart, and the products of one more step may still run.
            let own = [("WARPGROUPS", self.pairs as i64 / 64), stages, ("AHEAD", self.stages as i64 - 3)];
            gpu.kernel("gqa_attend_sm90.cu", "gqa_attend_sm90", &[&shapes[..], &own].concat())?
        } else {
            let own = [
                ("WARPS_M", self.pairs as i64 / 16),
                ("WARPS_N", self.sharing as i64),
                ("ROWS_M", 1),
                ("STEP", (KEYS / self.sharing) as i64),
                stages,
                ("RESIDENT", self.blocks as i64),
            ];
            gpu.kernel("gqa_attend_smxx.cu", "gqa_attend_smxx", &[&shapes[..], &own].concat())?
        };
        let own = [("TILE_M", self.pairs as i64)];
        Ok((attend, gpu.kernel("gqa_merge.cu", "gqa_merge", &[&shapes[..], &own].concat())?))
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
    pub fn new(gpu: &Gpu, hopper: bool, shape: GqaShape, max: Bucket, sms: u32) -> Result<Self> {
        let all: &[Tile] = if hopper { &HOPPER } else { &PORTABLE };
        let load = |tile: &Tile| {
            let (attend, merge) = tile.kernels(gpu, shape)?;
            Ok((*tile, attend, merge))
        };
        // Parts are written only when all blocks run at once.
        let pairs = all.iter().map(|t| t.pairs * t.blocks).max().unwrap_or(0) * sms as usize;
        Ok(Self {
            tiles: all.iter().map(load).collect::<Result<_>>()?,
            shape,
            sms,
            part: gpu.alloc("parts of attention", pairs * shape.head_dim)?,
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
        self.tiles.iter().position(|(tile, ..)| tile.pairs >= pairs).unwrap_or(self.tiles.len() - 1)
    }

    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &GqaAttendCall, height: usize) -> Result<()> {
        let GqaShape { heads, kv_heads, head_dim } = self.shape;
        let (tile, attend, merge) = &self.tiles[height];
        let GqaAttendCall { rows, q, k_cache, v_cache, out, window, window_tail } = *call;
        let (part, top, cuts) = (self.part.ptr(), self.top.ptr(), self.cuts.ptr());
        let slots = tile.blocks as u32 * self.sms;
        // However the rows are shared among the sequences, no more tiles than these come out.
        let pairs = bucket.rows as usize * (heads / kv_heads);
        let most = kv_heads * (pairs + bucket.seqs as usize * (tile.pairs - 1)) / tile.pairs;
        let launch = Launch {
            grid: [slots.max(most as u32), 1, 1],
            block: tile.threads() as u32,
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
        gpu.launch_early(attend, launch, &args)?;
        let args = GqaMergeArgs { rows, part, top, cuts, out, count: bucket.rows, unused: 0 };
        gpu.launch_early(merge, Launch::flat(blocks(bucket.rows as usize * heads, 4), 128), &args)
    }
}
