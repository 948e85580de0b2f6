//! What the target hands to the drafter: committed tokens and the outputs of tapped layers, by slot.

use std::cell::Cell;

/// Features of every slot.
#[derive(Debug, Default)]
pub struct CpuFeatures {
    pub(crate) slots: Vec<SlotFeatures>,
}

/// Committed rows of one sequence that the drafter has not taken in yet, and some that it has.
#[derive(Debug, Default)]
pub(crate) struct SlotFeatures {
    /// Absolute position of the first row that is kept.
    base: usize,
    tokens: Vec<u32>,
    /// Tapped outputs of each row, `width` numbers a row.
    taps: Vec<f32>,
    width: usize,
    /// Rows before this position are taken in; the drafter moves it on.
    taken: Cell<usize>,
}

impl CpuFeatures {
    pub(crate) fn new(slots: usize, width: usize) -> Self {
        let slot = || SlotFeatures { width, ..SlotFeatures::default() };
        Self { slots: (0..slots).map(|_| slot()).collect() }
    }
}

impl SlotFeatures {
    /// Forgets the sequence.
    pub fn clear(&mut self) {
        self.base = 0;
        self.tokens.clear();
        self.taps.clear();
        self.taken.set(0);
    }

    /// Adds one committed row, and drops those that the drafter has taken in.
    pub fn push(&mut self, token: u32, taps: &[f32]) {
        let old = self.taken.get().saturating_sub(self.base);
        // In blocks, so that a long sequence is not moved at every token.
        if old >= 64 {
            self.tokens.drain(..old);
            self.taps.drain(..old * self.width);
            self.base += old;
        }
        self.tokens.push(token);
        self.taps.extend_from_slice(taps);
    }

    /// Position behind the last committed row: the root's.
    pub fn end(&self) -> usize {
        self.base + self.tokens.len()
    }

    /// Position of the first row that the drafter has not taken in.
    pub fn taken(&self) -> usize {
        self.taken.get()
    }

    /// Tokens that are to be taken in.
    pub fn new_tokens(&self) -> &[u32] {
        &self.tokens[self.taken.get() - self.base..]
    }

    /// Their tapped outputs.
    pub fn new_taps(&self) -> &[f32] {
        &self.taps[(self.taken.get() - self.base) * self.width..]
    }

    /// The drafter has taken in everything before `position`.
    pub fn take_to(&self, position: usize) {
        self.taken.set(position);
    }
}
