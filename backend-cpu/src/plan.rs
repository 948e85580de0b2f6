//! The rows of one forward pass: which token at which position, written to which slot, seeing what.

use crate::kernel::Visible;
use crate::seeded::{Seeded, seeded};
use std::ops::Range;

/// Rows of one pass over any number of sequences. Reused from pass to pass.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Token of each row.
    pub tokens: Vec<u32>,
    /// Absolute position of each row: RoPE and windows go by it.
    pub positions: Vec<u32>,
    /// KV slot of each row.
    pub slots: Vec<u32>,
    /// Offsets from the span's `start` that each row sees behind the past, one list after the other.
    tails: Vec<u32>,
    tail_ends: Vec<usize>,
    /// One per sequence.
    pub spans: Vec<Span>,
    /// Whether sliding windows also limit the rows behind `start`.
    pub window_tail: bool,
}

/// The rows of one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Index of the sequence's cache.
    pub seq: usize,
    /// Length of the past.
    pub start: usize,
    /// Slots behind `start` that rows of this pass may see.
    pub width: usize,
    /// Its rows.
    pub rows: Range<usize>,
}

impl Plan {
    /// Forgets all rows.
    pub fn clear(&mut self, window_tail: bool) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        if !seeded(Seeded::StaleTails) {
            self.tails.clear();
        }
        self.tail_ends.clear();
        self.spans.clear();
        self.window_tail = window_tail;
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens that follow the past one after the other (a prompt chunk, one plain decode step).
    pub fn chunk(&mut self, seq: usize, start: usize, tokens: &[u32]) {
        let from = self.begin();
        for (i, &token) in tokens.iter().enumerate() {
            self.row(token, start + i, start + i, 0..=i as u32);
        }
        self.end(seq, start, tokens.len(), from);
    }

    /// A draft tree, root first: position = start + depth, slot = start + index, seen: ancestors and itself.
    pub fn tree(&mut self, seq: usize, start: usize, tokens: &[u32], parents: &[u32], depths: &[u32]) {
        let from = self.begin();
        let mut path = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            path_to(i as u32, parents, &mut path);
            if seeded(Seeded::NoTreeMask) {
                path = (0..=i as u32).collect();
            }
            if seeded(Seeded::MaskOf32) {
                path.iter_mut().for_each(|row| *row %= 32);
            }
            let depth = match seeded(Seeded::RopeBySlot) {
                true => i,
                false => depths[i] as usize + usize::from(seeded(Seeded::PositionOffByOne)),
            };
            self.row(token, start + depth, start + i, path.iter().copied());
        }
        self.end(seq, start, tokens.len(), from);
    }

    /// Some nodes of a tree whose other nodes are already in the cache at their slots.
    pub fn nodes(&mut self, seq: usize, start: usize, nodes: &[u32], tokens: &[u32], parents: &[u32], depths: &[u32]) {
        let from = self.begin();
        let mut path = Vec::new();
        for &node in nodes {
            path_to(node, parents, &mut path);
            let i = node as usize;
            self.row(tokens[i], start + depths[i] as usize, start + i, path.iter().copied());
        }
        self.end(seq, start, tokens.len(), from);
    }

    /// A drafter's block: every row sees the past and the whole block.
    pub fn block(&mut self, seq: usize, start: usize, tokens: impl ExactSizeIterator<Item = u32>) {
        let from = self.begin();
        let width = tokens.len();
        for (i, token) in tokens.enumerate() {
            self.row(token, start + i, start + i, 0..width as u32);
        }
        self.end(seq, start, width, from);
    }

    /// Rows that only write keys and values: `count` positions from `from` on.
    pub fn context(&mut self, seq: usize, from: usize, count: usize) {
        let begin = self.begin();
        for i in from..from + count {
            self.row(0, i, i, []);
        }
        self.end(seq, from, count, begin);
    }

    /// What the rows of `span` see, on a layer with this sliding window.
    pub fn visible(&self, span: &Span, window: Option<usize>) -> Visible<'_> {
        Visible {
            start: span.start,
            width: span.width,
            tail_ends: &self.tail_ends[span.rows.clone()],
            tail_begin: if span.rows.start == 0 { 0 } else { self.tail_ends[span.rows.start - 1] },
            tails: &self.tails,
            positions: if seeded(Seeded::WindowBySlot) {
                &self.slots[span.rows.clone()]
            } else {
                &self.positions[span.rows.clone()]
            },
            window,
            window_tail: self.window_tail,
        }
    }

    fn begin(&self) -> usize {
        self.len()
    }

    fn row(&mut self, token: u32, position: usize, slot: usize, tail: impl IntoIterator<Item = u32>) {
        self.tokens.push(token);
        self.positions.push(position as u32);
        self.slots.push(slot as u32);
        self.tails.extend(tail);
        self.tail_ends.push(self.tails.len());
    }

    fn end(&mut self, seq: usize, start: usize, width: usize, from: usize) {
        self.spans.push(Span { seq, start, width, rows: from..self.len() });
    }
}

/// Root to `node`, both included, in depth order.
fn path_to(node: u32, parents: &[u32], path: &mut Vec<u32>) {
    path.clear();
    let mut at = node;
    loop {
        path.push(at);
        if at == 0 {
            break;
        }
        at = parents[at as usize];
    }
    path.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Public fault 8: RoPE goes by depth, the slot by index (root, a, b under the root, c under b).
    #[test]
    fn fault_08_position_is_depth_and_slot_is_index() {
        let mut plan = Plan::default();
        plan.clear(true);
        plan.tree(0, 10, &[7, 1, 2, 3], &[0, 0, 0, 2], &[0, 1, 1, 2]);
        assert_eq!(plan.positions, [10, 11, 11, 12]);
        assert_eq!(plan.slots, [10, 11, 12, 13]);
        let seen: Vec<&[u32]> = [0..1, 1..3, 3..5, 5..8].map(|r| &plan.tails[r]).to_vec();
        assert_eq!(seen, [&[0][..], &[0, 1], &[0, 2], &[0, 2, 3]]);
    }
}
