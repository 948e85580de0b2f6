//! The rows of one pass on the device: which token at which position, written to which row of the cache, seeing what.
//!
//! The cache of a layer is flat: sequence slot `s` owns rows `[s · stride, (s + 1) · stride)`, committed token number `i` lies
//! in row `s · stride + i`, row `j` of a pass behind `start` committed tokens in `s · stride + start + j`. One row behind all
//! slots is the *sink*, where padding writes. Pages would buy nothing here: one process owns the memory, no prefix is shared,
//! and a flat cache makes the gather of an accepted path and every kernel's addressing one multiply-add.

use crate::device::{Buffer, Gpu, Pinned, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Words of a row's mask, enough for 257 rows of one sequence; as in `rows.cuh`.
pub const MASK_WORDS: usize = 9;

/// Most rows of one sequence in one pass.
pub const MOST_ROWS: usize = MASK_WORDS * 32;

/// Addresses of a plan, as kernels take them.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RowsPtr {
    /// Token of each row, u32.
    pub token: Ptr,
    /// Absolute position of each row, u32.
    pub position: Ptr,
    /// Cache row that each row writes, u32.
    pub kv_row: Ptr,
    /// Sequence of each row, i32; −1 = padding.
    pub seq: Ptr,
    /// Index of each row in its sequence's pass, u32.
    pub offset: Ptr,
    /// Visible rows of the own sequence's pass, [`MASK_WORDS`] u32 a row.
    pub mask: Ptr,
    /// Cache row of position 0, per sequence, u32.
    pub seq_kv: Ptr,
    /// Committed tokens, per sequence, u32.
    pub seq_start: Ptr,
    /// First row, per sequence, u32.
    pub seq_begin: Ptr,
    /// Rows, per sequence, u32; 0 = padding.
    pub seq_rows: Ptr,
}

/// The padded size of a pass: what a graph is captured for. Launch shapes follow from it alone, never from the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket {
    /// Rows.
    pub rows: u32,
    /// Sequences.
    pub seqs: u32,
}

/// What the rows of one sequence see of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight<'a> {
    /// A tree: parent of each row, root first; positions are `start + depth`.
    Tree(&'a [u32]),
    /// Each row sees itself and those before it (a prompt chunk); positions ascend.
    Causal,
    /// Each row sees all (a drafter's block); positions ascend.
    All,
}

/// Buffers of a plan, on the device and their host copy.
#[derive(Debug)]
pub struct RowPlan {
    device: Buffer<u32>,
    host: Pinned<u32>,
    rows: usize,
    seqs: usize,
    sink: u32,
    filled: usize,
    sequences: usize,
}

const ROW_PARTS: usize = 5 + MASK_WORDS;

impl RowPlan {
    /// Buffers for at most `rows` rows of at most `seqs` sequences; `sink` is the cache row where padding writes.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn new(gpu: &Gpu, rows: usize, seqs: usize, sink: u32) -> Result<Self> {
        let words = rows * ROW_PARTS + seqs * 4;
        let (device, host) = (gpu.zeroed("row plan", words)?, gpu.pinned(words)?);
        Ok(Self { device, host, rows, seqs, sink, filled: 0, sequences: 0 })
    }

    /// Most rows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.rows
    }

    /// Most sequences.
    #[must_use]
    pub fn seqs(&self) -> usize {
        self.seqs
    }

    /// The cache row where padding writes.
    #[must_use]
    pub fn sink(&self) -> u32 {
        self.sink
    }

    /// Rows that were added since [`RowPlan::clear`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether no row was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Where the parts lie on the device.
    #[must_use]
    pub fn ptrs(&self) -> RowsPtr {
        let (r, s) = (self.rows, self.seqs);
        let seq = |i: usize| self.device.at(r * ROW_PARTS + i * s);
        RowsPtr {
            token: self.device.at(0),
            position: self.device.at(r),
            kv_row: self.device.at(2 * r),
            seq: self.device.at(3 * r),
            offset: self.device.at(4 * r),
            mask: self.device.at(5 * r),
            seq_kv: seq(0),
            seq_start: seq(1),
            seq_begin: seq(2),
            seq_rows: seq(3),
        }
    }

    /// Forgets all rows on the host.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.sequences = 0;
    }

    /// Adds the rows of one sequence whose cache begins at row `kv` and holds `start` tokens; `tokens` has one a row.
    ///
    /// # Errors
    /// [`CudaError::Setting`] when the plan is too small, the rows of one sequence are more than [`MOST_ROWS`], a tree has not
    /// one parent a row, or a cache row has no number.
    pub fn add(&mut self, kv: u32, start: u32, tokens: &[u32], sight: Sight<'_>) -> Result<()> {
        let (n, first, s) = (tokens.len(), self.filled, self.sequences);
        if n > MOST_ROWS || first + n > self.rows || s >= self.seqs {
            let problem = format!(
                "gives {n} more rows in sequence {s}: a pass holds {} rows of {} sequences, {MOST_ROWS} rows of each",
                self.rows, self.seqs
            );
            return Err(CudaError::Setting { key: "rows", problem });
        }
        if let Sight::Tree(parents) = sight
            && parents.len() != n
        {
            let problem = format!("of a tree are {n}, but parents of {} are given", parents.len());
            return Err(CudaError::Setting { key: "rows", problem });
        }
        // A tree is at most as deep as it has rows, so positions end below as well.
        if [kv, start, n as u32].iter().map(|x| u64::from(*x)).sum::<u64>() > u64::from(u32::MAX) {
            let problem = format!("behind {start} tokens in cache row {kv} have no number in 32 bits");
            return Err(CudaError::Setting { key: "rows", problem });
        }
        let r = self.rows;
        let host = self.host.as_mut_slice();
        let (parts, seqs) = host.split_at_mut(r * ROW_PARTS);
        let (fixed, masks) = parts.split_at_mut(5 * r);
        for (j, &token) in tokens.iter().enumerate() {
            let row = first + j;
            let mask = &mut masks[row * MASK_WORDS..(row + 1) * MASK_WORDS];
            mask.fill(0);
            let mut depth = j as u32;
            match sight {
                Sight::All => (0..n).for_each(|i| mask[i / 32] |= 1 << (i % 32)),
                Sight::Causal => (0..=j).for_each(|i| mask[i / 32] |= 1 << (i % 32)),
                Sight::Tree(parents) => {
                    let mut at = j;
                    depth = 0;
                    mask[at / 32] |= 1 << (at % 32);
                    // Parents lie before their children, so this ends; a bad parent ends it at once.
                    while at > 0 {
                        at = (parents[at] as usize).min(at - 1);
                        mask[at / 32] |= 1 << (at % 32);
                        depth += 1;
                    }
                }
            }
            let values = [token, start + depth, kv + start + j as u32, s as u32, j as u32];
            values.iter().enumerate().for_each(|(part, v)| fixed[part * r + row] = *v);
        }
        let of = [kv, start, first as u32, n as u32];
        of.iter().enumerate().for_each(|(part, v)| seqs[part * self.seqs + s] = *v);
        self.filled += n;
        self.sequences += 1;
        Ok(())
    }

    /// Pads to `bucket` and queues the copy to the device.
    ///
    /// # Errors
    /// [`CudaError::Setting`] when the rows do not fit the bucket, or the driver's.
    pub fn push(&mut self, gpu: &Gpu, bucket: Bucket) -> Result<()> {
        let (rows, seqs) = (bucket.rows as usize, bucket.seqs as usize);
        if rows < self.filled || rows > self.rows || seqs < self.sequences || seqs > self.seqs {
            let problem =
                format!("of a pass are {} in {} sequences: {bucket:?} does not hold them", self.filled, self.sequences);
            return Err(CudaError::Setting { key: "rows", problem });
        }
        let (r, sink, first, known) = (self.rows, self.sink, self.filled, self.sequences);
        let all = self.seqs;
        let host = self.host.as_mut_slice();
        for row in first..rows {
            [0, 0, sink, u32::MAX, 0].iter().enumerate().for_each(|(part, v)| host[part * r + row] = *v);
            host[5 * r + row * MASK_WORDS..][..MASK_WORDS].fill(0);
        }
        for s in known..seqs {
            [0, 0, 0, 0].iter().enumerate().for_each(|(part, v)| host[r * ROW_PARTS + part * all + s] = *v);
        }
        gpu.push(self.device.ptr(), &self.host, self.host.as_slice().len())
    }
}
