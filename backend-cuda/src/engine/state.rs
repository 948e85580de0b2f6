//! What kernels must know of a round beside its rows: one block of words, sent in one copy.

use crate::device::{Buffer, Gpu, Pinned, Ptr};
use crate::error::Result;
use crate::ops::sample::SeqSampling;
use crate::ops::tree::TreeSeqs;
use treeline_core::Seq;

/// No token, no row, no limit, as kernels mark it.
pub(crate) const NONE: u32 = u32::MAX;

/// Words of one sequence's sampling.
const SAMPLING: usize = size_of::<SeqSampling>() / size_of::<u32>();

/// The block, on the host and on the device. Arrays have one entry a sequence of the batch unless they say otherwise.
#[derive(Debug)]
pub(crate) struct State {
    host: Pinned<u32>,
    device: Buffer<u32>,
    slots: usize,
    /// Entries of a path: the deepest level and the root.
    pub path: usize,
}

/// Arrays of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// How tokens are chosen: [`SeqSampling`].
    Sampling,
    /// Root token.
    Root,
    /// The most nodes of the tree; [`NONE`] = no sequence.
    Nodes,
    /// Levels that were drafted for it.
    Levels,
    /// Cache row of position 0.
    Kv,
    /// Position of the root.
    Start,
    /// Accepted rows, the root's included; 0 = nothing is committed.
    PathLen,
    /// Accepted rows, `path` a sequence.
    Path,
    /// The same with as many places a sequence as the longest path has.
    TapPath,
    /// Forced truth from depth 1 on, `path` a sequence; [`NONE`] = the trace ends.
    Truth,
}

impl State {
    /// For `slots` sequences and paths of at most `path` rows.
    pub fn new(gpu: &Gpu, slots: u32, path: u32) -> Result<Self> {
        let (slots, path) = (slots as usize, path as usize);
        let (begin, len) = place(Field::Truth, slots, path);
        let words = begin + len;
        Ok(Self { host: gpu.pinned(words)?, device: gpu.zeroed("round state", words)?, slots, path })
    }

    /// Where an array lies on the device.
    pub fn at(&self, field: Field) -> Ptr {
        self.device.at(place(field, self.slots, self.path).0)
    }

    /// An array on the host.
    pub fn get(&mut self, field: Field) -> &mut [u32] {
        let (begin, len) = place(field, self.slots, self.path);
        &mut self.host.as_mut_slice()[begin..begin + len]
    }

    /// What a tree program reads.
    pub fn trees(&self) -> TreeSeqs {
        TreeSeqs { root: self.at(Field::Root), nodes: self.at(Field::Nodes), levels: self.at(Field::Levels) }
    }

    /// Notes how the tokens of sequence number `s` are chosen.
    pub fn sampling(&mut self, s: usize, seq: &Seq, seed: u64) {
        let sampling = SeqSampling {
            seed,
            request: seq.request,
            temperature: seq.sampling.temperature,
            top_k: seq.sampling.top_k,
            top_p: seq.sampling.top_p,
            unused: 0,
        };
        self.get(Field::Sampling)[s * SAMPLING..][..SAMPLING].copy_from_slice(bytemuck::cast_slice(&[sampling]));
    }

    /// Queues the copy of everything.
    pub fn push(&self, gpu: &Gpu) -> Result<()> {
        gpu.push(self.device.ptr(), &self.host, self.device.len())
    }
}

/// First word and length of an array; the one with numbers of 64 bits comes first.
fn place(field: Field, slots: usize, path: usize) -> (usize, usize) {
    let (each, tables) = (SAMPLING * slots, (SAMPLING + 6) * slots);
    match field {
        Field::Sampling => (0, each),
        Field::Root => (each, slots),
        Field::Nodes => (each + slots, slots),
        Field::Levels => (each + 2 * slots, slots),
        Field::Kv => (each + 3 * slots, slots),
        Field::Start => (each + 4 * slots, slots),
        Field::PathLen => (each + 5 * slots, slots),
        Field::Path => (tables, slots * path),
        Field::TapPath => (tables + slots * path, slots * path),
        Field::Truth => (tables + 2 * slots * path, slots * path),
    }
}
