//! A heap of candidates over the trees of a batch, in the exact order.

use crate::order::{Place, cmp_paths};
use std::cmp::Ordering;
use treeline_core::Forest;

/// A candidate of one tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub score: f64,
    pub seq: u32,
    pub place: Place,
    /// The sibling of the rank before, where there is one.
    pub prev: u32,
}

/// Best first; ties between requests go to the one that comes first in the batch. Not `std`'s heap: the order of two items
/// needs the trees.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    items: Vec<Item>,
}

impl Heap {
    pub fn clear(&mut self) {
        self.items.clear();
    }

    pub fn push(&mut self, item: Item, forest: &Forest) {
        let mut at = self.items.len();
        self.items.push(item);
        while at > 0 {
            let up = (at - 1) / 2;
            if !before(&self.items[at], &self.items[up], forest) {
                break;
            }
            self.items.swap(at, up);
            at = up;
        }
    }

    pub fn pop(&mut self, forest: &Forest) -> Option<Item> {
        let last = self.items.len().checked_sub(1)?;
        self.items.swap(0, last);
        let best = self.items.pop();
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= last {
                return best;
            }
            if child + 1 < last && before(&self.items[child + 1], &self.items[child], forest) {
                child += 1;
            }
            if !before(&self.items[child], &self.items[at], forest) {
                return best;
            }
            self.items.swap(at, child);
            at = child;
        }
    }
}

#[inline]
fn before(a: &Item, b: &Item, forest: &Forest) -> bool {
    if a.score != b.score {
        return a.score > b.score;
    }
    if a.seq != b.seq {
        return a.seq < b.seq;
    }
    cmp_paths(forest.tree(a.seq as usize), a.place, b.place) == Ordering::Less
}
