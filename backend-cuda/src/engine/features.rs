//! What the target hands to the drafter: committed tokens, and the outputs of tapped layers that stay on the device.
//!
//! Tapped rows of the accepted paths are gathered at commit and taken in by the drafter at its next draft. The first region
//! of the buffer has a fixed place for every row of one commit, so that a draft from a captured graph takes it in; commits
//! that no draft followed (plain decoding) go behind it and are taken in apart.

use super::settings::CudaSettings;
use crate::device::{Buffer, Dtype, Gpu, Pinned, Ptr};
use crate::error::Result;
use crate::ops::gather::{GatherRows, GatherRowsCall};
use std::cell::RefCell;

/// Features of every slot.
#[derive(Debug)]
pub struct CudaFeatures {
    /// Committed tokens by slot, for a conditional drafter.
    pub(crate) tokens: Option<RefCell<Vec<Vec<u32>>>>,
    /// Tapped outputs, for a block drafter.
    pub(crate) taps: Option<Taps>,
}

impl CudaFeatures {
    /// Forgets a slot.
    pub(crate) fn release(&self, slot: u32) {
        if let Some(tokens) = &self.tokens {
            tokens.borrow_mut()[slot as usize].clear();
        }
        if let Some(taps) = &self.taps {
            taps.kept.borrow_mut().release(slot);
        }
    }
}

/// Tapped rows that the drafter has not taken in.
#[derive(Debug)]
pub(crate) struct Taps {
    gather: GatherRows,
    memory: Buffer<u8>,
    row_bytes: usize,
    /// Rows of one sequence in the first region: a whole accepted path with its root.
    pub path: u32,
    /// Sequences of the first region.
    seqs: u32,
    /// Rows behind the first region.
    room: u32,
    kept: RefCell<Kept>,
}

/// One row: whose it is, and its position; `None` = nobody's.
type Row = Option<(u32, u32)>;

#[derive(Debug)]
struct Kept {
    /// The first region, `path` rows a sequence.
    first: Vec<Row>,
    /// Behind it.
    rest: Vec<Row>,
    /// Position and cache row of each row that is taken in next, on the host.
    host: Pinned<u32>,
    device: Buffer<u32>,
}

impl Kept {
    fn release(&mut self, slot: u32) {
        for row in self.first.iter_mut().chain(&mut self.rest) {
            row.take_if(|(s, _)| *s == slot);
        }
    }
}

/// Accepted rows of a pass, on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    /// Tapped rows of the pass.
    pub src: Ptr,
    /// First row of each sequence.
    pub begin: Ptr,
    /// Their accepted rows, as many places a sequence as the gather has.
    pub path: Ptr,
    /// Their number.
    pub len: Ptr,
}

/// Rows to be taken in, as [`crate::model::Dflash::absorb`] wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absorb {
    pub rows: u32,
    pub taps: Ptr,
    pub positions: Ptr,
    pub kv_rows: Ptr,
}

/// Rows that wait behind the first region before they are taken in all at once.
const ROOM: u32 = 256;

impl Taps {
    /// For paths of at most `path` rows and taps of `width` numbers.
    pub fn new(gpu: &Gpu, dtype: Dtype, width: usize, path: u32, settings: &CudaSettings) -> Result<Self> {
        let (seqs, room) = (settings.slots, ROOM.max(settings.slots * path));
        let rows = (seqs * path + room) as usize;
        let row_bytes = width * dtype.bytes();
        let kept = Kept {
            first: Vec::new(),
            rest: Vec::new(),
            host: gpu.pinned(2 * rows)?,
            device: gpu.zeroed("rows for the drafter", 2 * rows)?,
        };
        Ok(Self {
            gather: GatherRows::new(gpu, dtype, width)?,
            memory: gpu.zeroed("features for the drafter", rows * row_bytes)?,
            row_bytes,
            path,
            seqs,
            room,
            kept: RefCell::new(kept),
        })
    }

    /// Most rows of one [`Absorb`].
    pub fn most(path: u32, slots: u32) -> u32 {
        ROOM.max(slots * path)
    }

    /// Whether the first region waits to be taken in.
    pub fn waiting(&self) -> bool {
        self.waits(&self.kept.borrow())
    }

    fn waits(&self, kept: &Kept) -> bool {
        kept.first.iter().any(Option::is_some)
    }

    /// Whether `rows` more rows fit behind the first region.
    pub fn fits(&self, rows: u32) -> bool {
        self.kept.borrow().rest.len() as u32 + rows <= self.room
    }

    /// Queues the gather of accepted rows, `width` places a sequence: into the first region while nothing waits there (with
    /// its own width), else behind it.
    pub fn gather(&self, gpu: &Gpu, seqs: u32, from: Accepted, width: u32) -> Result<()> {
        let kept = self.kept.borrow();
        let row = if self.waits(&kept) { (self.seqs * self.path) as usize + kept.rest.len() } else { 0 };
        let none = Ptr::NULL;
        let call = GatherRowsCall {
            src: from.src,
            seq_begin: from.begin,
            path: from.path,
            path_len: from.len,
            max_path: width,
            dst: self.memory.at(row * self.row_bytes),
            seq_start: none,
            seq_kv: none,
            position: none,
            kv_row: none,
            sink: 0,
        };
        self.gather.run(gpu, seqs, &call)
    }

    /// Notes what a gather to [`Taps::to`] holds: slot, first position and rows of each sequence.
    pub fn note(&self, paths: impl Iterator<Item = (u32, u32, u32)>, len: u32) {
        let waiting = self.waiting();
        let kept = &mut *self.kept.borrow_mut();
        let (list, width) = if waiting { (&mut kept.rest, len) } else { (&mut kept.first, self.path) };
        if !waiting {
            list.clear();
        }
        for (slot, start, rows) in paths {
            list.extend((0..width).map(|i| (i < rows).then_some((slot, start + i))));
        }
    }

    /// The first region in the shape of `seqs` sequences, padded; it counts as taken in afterwards. Queues a small copy.
    pub fn take_first(&self, gpu: &Gpu, seqs: u32, kv: impl Fn(u32) -> u32, sink: u32) -> Result<Absorb> {
        let kept = &mut *self.kept.borrow_mut();
        let mut rows = std::mem::take(&mut kept.first);
        rows.resize((seqs * self.path) as usize, None);
        let at = kept.send(gpu, &rows, kv, sink)?;
        rows.clear();
        kept.first = rows;
        Ok(Absorb { taps: self.memory.ptr(), ..at })
    }

    /// What the first region holds behind its first `seqs` sequences, padded to a power of two: when a batch shrank, rows of
    /// sequences that go on from a place that the draft's shape has no more. `None` when nothing does.
    pub fn take_beyond(&self, gpu: &Gpu, seqs: u32, kv: impl Fn(u32) -> u32, sink: u32) -> Result<Option<Absorb>> {
        let kept = &mut *self.kept.borrow_mut();
        let whole = (seqs * self.path) as usize;
        if kept.first.iter().skip(whole).all(Option::is_none) {
            return Ok(None);
        }
        let mut rows = kept.first.split_off(whole);
        rows.resize(rows.len().next_power_of_two().min(self.room as usize), None);
        let taps = self.memory.at(whole * self.row_bytes);
        Ok(Some(Absorb { taps, ..kept.send(gpu, &rows, kv, sink)? }))
    }

    /// What lies behind the first region, padded to a power of two; `None` when nothing does.
    pub fn take_rest(&self, gpu: &Gpu, kv: impl Fn(u32) -> u32, sink: u32) -> Result<Option<Absorb>> {
        let kept = &mut *self.kept.borrow_mut();
        let mut rows = std::mem::take(&mut kept.rest);
        let wanted = rows.iter().any(Option::is_some);
        let mut out = None;
        if wanted {
            rows.resize(rows.len().next_power_of_two().min(self.room as usize), None);
            let taps = self.memory.at((self.seqs * self.path) as usize * self.row_bytes);
            out = Some(Absorb { taps, ..kept.send(gpu, &rows, kv, sink)? });
        }
        rows.clear();
        kept.rest = rows;
        Ok(out)
    }
}

impl Kept {
    /// Queues positions and cache rows to the device.
    fn send(&mut self, gpu: &Gpu, rows: &[Row], kv: impl Fn(u32) -> u32, sink: u32) -> Result<Absorb> {
        let half = self.device.len() / 2;
        let (positions, kv_rows) = self.host.as_mut_slice().split_at_mut(half);
        for (row, (position, kv_row)) in rows.iter().zip(positions.iter_mut().zip(kv_rows)) {
            (*position, *kv_row) = row.map_or((0, sink), |(slot, at)| (at, kv(slot) + at));
        }
        gpu.push(self.device.ptr(), &self.host, self.device.len())?;
        let (positions, kv_rows) = (self.device.ptr(), self.device.at(half));
        Ok(Absorb { rows: rows.len() as u32, taps: Ptr::NULL, positions, kv_rows })
    }
}
