//! Device memory on the host: poisoned when it is handed out, with guard bytes around each allocation.

use super::failed;
use crate::error::{CudaError, Result};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of memory that the emulated device has.
pub(super) const CAPACITY: usize = 16 << 30;

/// Alignment of each allocation, and the least bytes of guard on either side.
const GUARD: usize = 256;

/// First and last address (exclusive) of an allocation, as the kernels' side takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Range {
    begin: u64,
    end: u64,
}

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Starts as 0xFF bytes: a NaN in every float type, −1 in every integer.
    Device,
    /// Starts as zeros.
    Pinned,
}

#[derive(Debug)]
struct Allocation {
    what: String,
    bytes: usize,
    kind: Kind,
}

impl Allocation {
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(2 * GUARD)?.checked_next_multiple_of(GUARD)?, GUARD).ok()
    }
}

/// All allocations of one device.
#[derive(Debug, Default)]
pub(super) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    ranges: Arc<Vec<Range>>,
    used: usize,
    /// A guard that was found broken when its allocation was released.
    broken: Option<String>,
}

/// What guards hold, from an even address on: as f32 or bf16 a NaN, so that a read beyond a buffer shows; other than the poison,
/// so that poison which is written there shows too.
const PATTERN: [u8; 2 * GUARD + 1] = {
    let mut bytes = [0xFE; 2 * GUARD + 1];
    let mut i = 1;
    while i < bytes.len() {
        bytes[i] = 0xFF;
        i += 2;
    }
    bytes
};

/// The guard of `from` to `to`, which are less than twice [`GUARD`] apart.
fn pattern(from: u64, to: u64) -> &'static [u8] {
    &PATTERN[(from % 2) as usize..][..(to - from) as usize]
}

fn write_guard(from: u64, to: u64) {
    let bytes = pattern(from, to);
    // SAFETY: the caller gives a part of its own allocation.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), from as *mut u8, bytes.len()) };
}

fn guard_holds(from: u64, to: u64) -> bool {
    // SAFETY: the caller gives the guard of a live allocation; kernels, which could write it, are not running.
    let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
    bytes == pattern(from, to)
}

impl Memory {
    pub(super) fn free(&self) -> usize {
        CAPACITY.saturating_sub(self.used)
    }

    /// Addresses of all allocations, ascending.
    pub(super) fn ranges(&self) -> Arc<Vec<Range>> {
        self.ranges.clone()
    }

    pub(super) fn alloc(&mut self, what: &str, bytes: usize, kind: Kind) -> Result<u64> {
        let out_of_memory = || CudaError::Memory {
            what: what.into(),
            bytes,
            free: self.free(),
            advice: "lower the batch, the cache's length or the number of layers",
        };
        let layout = Allocation::layout(bytes).filter(|_| bytes <= self.free()).ok_or_else(out_of_memory)?;
        // SAFETY: the layout's size is not 0.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            return Err(out_of_memory());
        }
        let at = base as u64 + GUARD as u64;
        let fill = if kind == Kind::Device { 0xFF } else { 0 };
        // SAFETY: the allocation holds `bytes` behind its first guard.
        unsafe { std::ptr::write_bytes(at as *mut u8, fill, bytes) };
        write_guard(base as u64, at);
        write_guard(at + bytes as u64, base as u64 + layout.size() as u64);
        let range = Range { begin: at, end: at + bytes as u64 };
        let place = self.ranges.partition_point(|r| r.begin < at);
        Arc::make_mut(&mut self.ranges).insert(place, range);
        self.allocations.insert(at, Allocation { what: what.into(), bytes, kind });
        self.used += bytes;
        Ok(at)
    }

    pub(super) fn release(&mut self, at: u64) {
        let Some(allocation) = self.allocations.get(&at) else { return };
        if let Some(problem) = Self::broken_guard(at, allocation) {
            self.broken.get_or_insert(problem);
        }
        let bytes = allocation.bytes;
        self.allocations.remove(&at);
        self.used -= bytes;
        let place = self.ranges.partition_point(|r| r.begin < at);
        Arc::make_mut(&mut self.ranges).remove(place);
        if let Some(layout) = Allocation::layout(bytes) {
            // SAFETY: `alloc` returned this address less the guard for this layout, and the entry is gone now.
            unsafe { dealloc((at - GUARD as u64) as *mut u8, layout) };
        }
    }

    /// Whether `bytes` at `at` lie in one allocation.
    pub(super) fn check(&self, call: &str, at: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let Some((begin, a)) = self.allocations.range(..=at).next_back() else {
            return Err(failed(call, format!("{bytes} bytes at {at:#x} are in no buffer")));
        };
        let behind = at - begin;
        if behind.checked_add(bytes as u64).is_none_or(|end| end > a.bytes as u64) {
            let why = format!("bytes {behind} to {} of `{}`, which has {}", behind + bytes as u64, a.what, a.bytes);
            return Err(failed(call, why));
        }
        Ok(())
    }

    fn broken_guard(at: u64, a: &Allocation) -> Option<String> {
        let end = at + a.bytes as u64;
        let last = at - GUARD as u64 + Allocation::layout(a.bytes)?.size() as u64;
        let side = match (guard_holds(at - GUARD as u64, at), guard_holds(end, last)) {
            (true, true) => return None,
            (false, _) => "before",
            (true, false) => "behind",
        };
        // Whole again, so that it is reported once.
        write_guard(at - GUARD as u64, at);
        write_guard(end, last);
        let kind = if a.kind == Kind::Pinned { "pinned" } else { "device" };
        Some(format!("something wrote {side} `{}` ({} bytes of {kind} memory)", a.what, a.bytes))
    }

    /// Whether all guards are whole; `after` names what ran last.
    pub(super) fn check_guards(&mut self, after: &str) -> Result<()> {
        let broken = self.broken.take();
        let found = broken.or_else(|| self.allocations.iter().find_map(|(at, a)| Self::broken_guard(*at, a)));
        found.map_or(Ok(()), |why| Err(CudaError::Kernel { kernel: after.into(), why }))
    }
}
