//! Sizes of one engine, checked before anything is allocated.

use crate::error::{CudaError, Result};
use crate::ops::rows::MOST_ROWS;

/// The most nodes of a tree: its mask has a bit for each row.
pub const MOST_NODES: u32 = 256;

/// Most prompt tokens of a chunk.
pub const MOST_CHUNK: u32 = 256;

/// Most ranks of a drafter's row.
pub const MOST_WIDTH: u32 = 1024;

/// Sizes of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaSettings {
    /// Sequences at once.
    pub slots: u32,
    /// Positions per sequence, prompt and tree rows included; at most the pair's.
    pub context: u32,
    /// Prompt tokens per pass of the prefill, at most [`MOST_CHUNK`].
    pub chunk: u32,
    /// The most nodes of one tree, at most [`MOST_NODES`]; 0 = plain decoding.
    pub nodes: u32,
    /// The most rows of one verify pass over the batch.
    pub rows: u32,
    /// Ranks of a drafter's row that are kept, at most [`MOST_WIDTH`].
    pub width: u32,
    /// Whether passes run from captured graphs; else eagerly, in the same padded shapes.
    pub graphs: bool,
}

impl CudaSettings {
    /// Room for `slots` trees of `nodes` nodes, chunks of 256, 64 ranks a row, graphs on.
    #[must_use]
    pub fn new(slots: u32, context: u32, nodes: u32) -> Self {
        let rows = slots.saturating_mul(nodes.saturating_add(1));
        Self { slots, context, chunk: MOST_CHUNK.min(context), nodes, rows, width: 64, graphs: true }
    }

    /// Refuses sizes that cannot work with a pair of at most `most` positions.
    pub(crate) fn check(&self, most: u32) -> Result<()> {
        let refuse = |key, problem: String| Err(CudaError::Setting { key, problem });
        if self.slots == 0 || self.slots > 4096 {
            return refuse("slots", format!("is {}; it must be from 1 to 4096", self.slots));
        }
        if self.chunk == 0 || self.chunk > MOST_CHUNK {
            return refuse("chunk", format!("is {}; it must be from 1 to {MOST_CHUNK}", self.chunk));
        }
        if self.context < 2 || self.context > most {
            return refuse("context", format!("is {}; this pair was loaded for 2 to {most} positions", self.context));
        }
        if self.nodes > MOST_NODES {
            return refuse("nodes", format!("is {}; trees have at most {MOST_NODES} nodes", self.nodes));
        }
        if self.width == 0 || self.width > MOST_WIDTH {
            return refuse("width", format!("is {}; it must be from 1 to {MOST_WIDTH}", self.width));
        }
        // Rows of a cache are numbered in 32 bits; a drafter's block may lie behind the context.
        if u64::from(self.slots) * (u64::from(self.context) + MOST_ROWS as u64) >= u64::from(u32::MAX) {
            let problem = format!("is {}; a cache has no room for {} slots of that", self.context, self.slots);
            return refuse("context", problem);
        }
        // A pass numbers its rows in 16 bits of a graph's number.
        let least = self.slots.max(self.nodes + 1);
        if self.rows < least || self.rows > u32::from(u16::MAX) {
            let problem = format!("is {}; it must be from {least} (every slot and one whole tree) to 65535", self.rows);
            return refuse("rows", problem);
        }
        Ok(())
    }
}

const _: () = assert!((MOST_NODES as usize) < MOST_ROWS && MOST_CHUNK as usize <= MOST_ROWS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_work_are_refused_by_name() {
        let good = CudaSettings::new(4, 100, 16);
        assert!(good.check(100).is_ok());
        assert_eq!((good.rows, good.chunk), (68, 100));
        let says = |settings: CudaSettings, key: &str| {
            let message = settings.check(100).unwrap_err().to_string();
            assert!(message.starts_with(&format!("`{key}` is ")), "{message}");
        };
        says(CudaSettings { slots: 0, ..good }, "slots");
        says(CudaSettings { chunk: 257, ..good }, "chunk");
        says(CudaSettings { chunk: 0, ..good }, "chunk");
        says(CudaSettings { context: 101, ..good }, "context");
        says(CudaSettings { context: 1, ..good }, "context");
        let long = CudaSettings { slots: 4096, context: 1 << 20, rows: 4096, ..good };
        let message = long.check(1 << 20).unwrap_err().to_string();
        assert!(message.starts_with("`context` is 1048576; ") && message.contains("4096 slots"), "{message}");
        assert!(CudaSettings { slots: 4095, context: (1 << 20) - 512, ..long }.check(1 << 20).is_ok());
        says(CudaSettings { nodes: 257, rows: 1000, ..good }, "nodes");
        says(CudaSettings { width: 0, ..good }, "width");
        says(CudaSettings { rows: 16, ..good }, "rows");
        says(CudaSettings { rows: 65_536, ..good }, "rows");
    }
}
