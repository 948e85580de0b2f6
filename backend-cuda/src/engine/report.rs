//! What a fused round tells the host: its trees and what became of them, in one block that is copied once.

use super::state::NONE;
use crate::device::{Buffer, Gpu, Pinned, Ptr};
use crate::error::Result;
use crate::ops::tree::TreesPtr;
use crate::ops::walk::{WalkFault, WalkPtr};
use std::result::Result as Outcome;
use treeline_core::law::Walk;
use treeline_core::{Fault, Tree, TreeError};

/// The block, on the device and on the host. Its arrays are packed for the padded number of sequences of the round, so that
/// a small batch copies little.
#[derive(Debug)]
pub(crate) struct Report {
    device: Buffer<u32>,
    host: Pinned<u32>,
    /// Rows of a tree.
    pub stride: usize,
    path: usize,
}

/// First words of the arrays.
#[derive(Debug, Clone, Copy)]
struct Layout {
    score: usize,
    token: usize,
    parent: usize,
    depth: usize,
    rank: usize,
    rows: usize,
    draft_fault: usize,
    path: usize,
    len: usize,
    emitted: usize,
    bonus: usize,
    fault: usize,
    overflow: usize,
    end: usize,
}

impl Report {
    /// For `seqs` sequences, trees of `nodes` nodes and paths of `path` rows.
    pub fn new(gpu: &Gpu, seqs: u32, nodes: u32, path: u32) -> Result<Self> {
        let (stride, path) = (nodes as usize + 1, path as usize);
        let words = Layout::of(seqs as usize, stride, path).end;
        Ok(Self { device: gpu.zeroed("round report", words)?, host: gpu.pinned(words)?, stride, path })
    }

    fn layout(&self, seqs: u32) -> Layout {
        Layout::of(seqs as usize, self.stride, self.path)
    }

    /// Where the trees go.
    pub fn trees(&self, seqs: u32) -> TreesPtr {
        let l = self.layout(seqs);
        TreesPtr {
            token: self.device.at(l.token),
            parent: self.device.at(l.parent),
            depth: self.device.at(l.depth),
            rank: self.device.at(l.rank),
            score: self.device.at(l.score),
            rows: self.device.at(l.rows),
            fault: self.device.at(l.draft_fault),
        }
    }

    /// Where the walk goes.
    pub fn walk(&self, seqs: u32) -> WalkPtr {
        let l = self.layout(seqs);
        WalkPtr {
            path: self.device.at(l.path),
            len: self.device.at(l.len),
            emitted: self.device.at(l.emitted),
            bonus: self.device.at(l.bonus),
            fault: self.device.at(l.fault),
        }
    }

    /// Set to 1 where the rows of the trees did not fit the pass.
    pub fn overflow(&self, seqs: u32) -> Ptr {
        self.device.at(self.layout(seqs).overflow)
    }

    /// Queues the copy of everything.
    pub fn pull(&self, gpu: &Gpu, seqs: u32) -> Result<()> {
        gpu.pull(&self.host, self.device.ptr(), self.layout(seqs).end)
    }

    /// What was pulled.
    pub fn read(&self, seqs: u32) -> Told<'_> {
        Told { words: self.host.as_slice(), at: self.layout(seqs), stride: self.stride, path: self.path }
    }
}

impl Layout {
    fn of(seqs: usize, stride: usize, path: usize) -> Self {
        // The same place in every layout, since kernels only ever set it.
        let mut end = 2;
        let mut take = |words: usize| {
            end += words;
            end - words
        };
        let (rows, steps) = (seqs * stride, seqs * path);
        let layout = Self {
            // Numbers of 64 bits first.
            score: take(2 * rows),
            token: take(rows),
            parent: take(rows),
            depth: take(rows),
            rank: take(rows),
            rows: take(seqs),
            draft_fault: take(seqs),
            path: take(steps),
            len: take(seqs),
            emitted: take(steps),
            bonus: take(seqs),
            fault: take(2 * seqs),
            overflow: 0,
            end: 0,
        };
        Self { end, ..layout }
    }
}

/// A report on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    words: &'a [u32],
    at: Layout,
    stride: usize,
    path: usize,
}

impl Told<'_> {
    /// Rows of each of `seqs` trees.
    pub fn rows(&self, seqs: usize) -> &[u32] {
        &self.words[self.at.rows..][..seqs]
    }

    /// Whether the trees did not fit the pass.
    pub fn overflowed(&self) -> bool {
        self.words[self.at.overflow] != 0
    }

    /// Grows `tree`, a bare root, to the tree of sequence `s`.
    ///
    /// # Errors
    /// What no tree may be.
    pub fn tree(&self, s: usize, tree: &mut Tree) -> Outcome<(), TreeError> {
        let rows = (self.words[self.at.rows + s] as usize).min(self.stride);
        for node in 1..rows {
            let at = s * self.stride + node;
            let word = |array: usize| self.words[array + at];
            let score = &self.words[self.at.score + 2 * at..][..2];
            let score = f64::from_bits(u64::from(score[0]) | u64::from(score[1]) << 32);
            tree.push(word(self.at.parent), word(self.at.token), word(self.at.rank), score)?;
        }
        Ok(())
    }

    /// The walk of sequence `s`; `None` where its draft was unusable.
    ///
    /// # Errors
    /// The fault that the walk ran into.
    pub fn walk(&self, s: usize) -> Outcome<Option<Walk>, Fault> {
        match WalkFault::of([0, 1].map(|i| self.words[self.at.fault + 2 * s + i])) {
            Some(WalkFault::Draft(_)) => return Ok(None),
            Some(WalkFault::Logits(row)) => return Err(Fault::TargetLogits { row }),
            Some(WalkFault::TraceEnd(position)) => return Err(Fault::TraceEnd { position }),
            None => {}
        }
        let len = (self.words[self.at.len + s] as usize).clamp(1, self.path);
        let path = self.words[self.at.path + s * self.path..][1..len].to_vec();
        let bonus = self.words[self.at.bonus + s];
        if bonus == NONE {
            return Err(Fault::TargetLogits { row: path.last().copied().unwrap_or(0) });
        }
        Ok(Some(Walk { path, bonus }))
    }
}
