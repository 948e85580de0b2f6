//! The fast form of best-first growth: one tree on a block draft.
//!
//! On a block draft all nodes of depth d − 1 share row d, so a candidate (u, r), the r-th child of u, cannot come before
//! (w, r) when w comes before u. A candidate is therefore queued only when its two predecessors are in the tree: the same
//! parent's rank before it, and the same rank below the node before u on u's level. The queue then holds the corners of a
//! staircase per level, some thirty entries for 64 nodes, few enough for a sorted list with the best at its end: taking is
//! a pop, inserting shifts a few entries. What was tried, with figures, stands in `benches/best_first.rs`.
//!
//! The argument needs ranked rows, log-probabilities of at most 0, and that no rounding of a sum makes two scores equal
//! whose parents' are not. [`Staircase::grow`] answers `false` where that does not hold, and [`crate::search`] does the
//! work with a plain heap: the tree is exact in every case.

use crate::order::{Place, cmp_paths};
use std::cmp::Ordering;
use treeline_core::{Candidate, DraftView, ROOT, Tree};

const NONE: u32 = u32::MAX;

/// Deepest lattice of the fast form; blocks have 8 to 16 positions.
const MAX_DEPTH: usize = 32;

/// A queued candidate. `key` is the bits of −score, which order like the numbers for scores of at most 0.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    place: Place,
}

/// A tree node's neighbours on its level, in order of selection, and the next rank to be taken below it.
#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
    rank: u32,
}

/// Working memory.
#[derive(Debug, Default)]
pub(crate) struct Staircase {
    queue: Vec<Entry>,
    links: Vec<Link>,
    /// The last node of each level.
    last: Vec<u32>,
}

impl Staircase {
    /// Grows `tree` (a bare root) to `budget` nodes on sequence `seq` of a block draft, `spine` rank-0 levels first.
    /// `false`: not a case for this form, the tree is a bare root again.
    pub fn grow(
        &mut self,
        seq: u32,
        depth: u32,
        spine: u32,
        budget: u32,
        drafts: &dyn DraftView,
        tree: &mut Tree,
    ) -> bool {
        let depth = depth as usize;
        if depth > MAX_DEPTH {
            return false;
        }
        let mut rows: [&[Candidate]; MAX_DEPTH] = [&[]; MAX_DEPTH];
        for (row, level) in rows[..depth].iter_mut().zip(1..) {
            *row = drafts.level(seq, level).unwrap_or(&[]);
            if row.first().is_some_and(|c| c.logp > 0.0) {
                return false;
            }
        }
        let exact = self.run(&rows[..depth], spine as usize, budget, tree);
        if !exact {
            tree.truncate(1);
        }
        exact
    }

    fn run(&mut self, rows: &[&[Candidate]], spine: usize, budget: u32, tree: &mut Tree) -> bool {
        self.queue.clear();
        self.links.clear();
        self.last.clear();
        self.last.resize(rows.len() + 1, NONE);
        self.link(ROOT, 0);
        let mut left = budget;
        let mut node = ROOT;
        let mut at = 0;
        while at < spine.min(rows.len()) && left > 0 {
            let Some(best) = rows[at].first().filter(|c| c.logp > f32::NEG_INFINITY) else { break };
            let score = tree.scores()[node as usize] + f64::from(best.logp);
            let Ok(child) = tree.push(node, best.token, 0, score) else { break };
            self.links[node as usize].rank = 1;
            self.offer(tree, rows[at], node, 1);
            at += 1;
            left -= 1;
            self.link(child, at);
            node = child;
        }
        if at < rows.len() {
            self.offer(tree, rows[at], node, 0);
        }
        while left > 0
            && let Some(Entry { key, place: Place { parent, rank } }) = self.queue.pop()
        {
            left -= 1;
            let score = 0.0 - f64::from_bits(key);
            let depth = tree.depths()[parent as usize] as usize;
            let row = rows[depth];
            let taken = row[rank as usize];
            let Ok(node) = tree.push(parent, taken.token, rank, score) else { break };
            let Link { prev, next, .. } = self.links[parent as usize];
            self.links[parent as usize].rank = rank + 1;
            if prev == NONE || self.links[prev as usize].rank > rank + 1 {
                self.offer(tree, row, parent, rank + 1);
            }
            if next != NONE {
                if self.rounding_tie(tree, parent, next, f64::from(taken.logp), score) {
                    return false;
                }
                if self.links[next as usize].rank == rank {
                    self.offer(tree, row, next, rank);
                }
            }
            let prev = self.link(node, depth + 1);
            if depth + 1 < rows.len() && (prev == NONE || self.links[prev as usize].rank > 0) {
                self.offer(tree, rows[depth + 1], node, 0);
            }
        }
        true
    }

    /// Puts a new node at the end of its level; returns the node before it.
    #[inline]
    fn link(&mut self, node: u32, depth: usize) -> u32 {
        let prev = std::mem::replace(&mut self.last[depth], node);
        if prev != NONE {
            self.links[prev as usize].next = node;
        }
        self.links.push(Link { prev, next: NONE, rank: 0 });
        prev
    }

    #[inline(always)]
    fn offer(&mut self, tree: &Tree, row: &[Candidate], parent: u32, rank: u32) {
        let Some(c) = row.get(rank as usize) else { return };
        // Not `<=`, so that NaN is left out with −∞.
        let possible = c.logp > f32::NEG_INFINITY;
        if !possible {
            return;
        }
        // 0 − score, not −score: the bits of −0 would not be in order.
        let key = (0.0 - (tree.scores()[parent as usize] + f64::from(c.logp))).to_bits();
        let new = Entry { key, place: Place { parent, rank } };
        let mut at = self.queue.len();
        self.queue.push(new);
        while at > 0 && before(tree, &self.queue[at - 1], &new) {
            self.queue[at] = self.queue[at - 1];
            at -= 1;
        }
        self.queue[at] = new;
    }

    /// Whether a later node of `parent`'s level, of a lower score, reaches the same sum with `logp`: then the tie rule
    /// could have wanted it first.
    #[inline]
    fn rounding_tie(&self, tree: &Tree, parent: u32, mut next: u32, logp: f64, score: f64) -> bool {
        while next != NONE && tree.scores()[next as usize] + logp == score {
            if tree.scores()[next as usize] != tree.scores()[parent as usize] {
                return true;
            }
            next = self.links[next as usize].next;
        }
        false
    }
}

#[inline(always)]
fn before(tree: &Tree, a: &Entry, b: &Entry) -> bool {
    if a.key == b.key { cmp_paths(tree, a.place, b.place) == Ordering::Less } else { a.key < b.key }
}
