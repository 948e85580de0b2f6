//! The fast form of best-first growth: one tree on a block draft.
//!
//! On a block draft all nodes of depth d − 1 share row d, so a candidate (u, r), the r-th child of u, cannot come before
//! (w, r) when w comes before u. A candidate is therefore queued only when its two predecessors are in the tree: the same
//! parent's rank before it, and the same rank below the node before u on u's level. The queue then holds the corners of a
//! staircase per level, ten to thirty entries for 64 nodes, few enough for a sorted list with the best at its end: taking
//! is a pop, inserting shifts a few entries. What was tried, with figures, stands in `benches/best_first.rs`.
//!
//! The argument needs ranked rows, log-probabilities of at most 0, and that no rounding of a sum makes two scores equal
//! whose parents' are not. [`Staircase::grow`] answers `false` where that does not hold, and [`crate::search`] does the
//! work with a plain heap: the tree is exact in every case.

use crate::order::{Nodes, Place, cmp_paths};
use crate::pop_order::Popped;
use std::cmp::Ordering;
use treeline_core::{Candidate, DraftView, ROOT, Tree};

const NONE: u32 = u32::MAX;

/// Deepest lattice of the fast form (a power of two); blocks have 8 to 16 positions.
const MAX_DEPTH: usize = 32;

/// Room of the queue (a power of two, so that an index can be masked); 256 nodes need about 45 places.
const ROOM: usize = 256;

/// A queued candidate. `key` is the bits of 0 − score, which order like the numbers for scores of at most 0.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    place: Place,
}

/// A node of the tree with its neighbours on its level, in order of selection, and the next rank to be taken below it.
#[derive(Debug, Clone, Copy)]
struct Node {
    score: f64,
    place: Place,
    token: u32,
    depth: u32,
    prev: u32,
    next: u32,
    open: u32,
}

impl Nodes for [Node] {
    fn parent(&self, node: u32) -> u32 {
        self[node as usize].place.parent
    }

    fn rank(&self, node: u32) -> u32 {
        self[node as usize].place.rank
    }

    fn depth(&self, node: u32) -> u32 {
        self[node as usize].depth
    }
}

/// A list of at most [`ROOM`] entries, the best at its end.
#[derive(Debug)]
struct Queue {
    entries: Box<[Entry; ROOM]>,
    len: usize,
}

impl Queue {
    #[inline(always)]
    fn pop(&mut self) -> Option<Entry> {
        self.len = self.len.checked_sub(1)?;
        Some(self.entries[self.len % ROOM])
    }

    #[inline(always)]
    fn insert(&mut self, nodes: &[Node], score: f64, place: Place) {
        // 0 − score, not −score: the bits of −0 would not be in order.
        let new = Entry { key: (0.0 - score).to_bits(), place };
        let mut at = self.len;
        self.len += 1;
        while at > 0 {
            let better = self.entries[(at - 1) % ROOM];
            if better.key > new.key
                || better.key == new.key && cmp_paths(nodes, better.place, place) == Ordering::Greater
            {
                break;
            }
            self.entries[at % ROOM] = better;
            at -= 1;
        }
        self.entries[at % ROOM] = new;
    }
}

/// Working memory.
#[derive(Debug)]
pub(crate) struct Staircase {
    queue: Queue,
    nodes: Vec<Node>,
}

impl Default for Staircase {
    fn default() -> Self {
        let entry = Entry { key: 0, place: Place { parent: 0, rank: 0 } };
        Self { queue: Queue { entries: Box::new([entry; ROOM]), len: 0 }, nodes: Vec::new() }
    }
}

impl Staircase {
    /// Grows `tree` (a bare root) to `budget` nodes on sequence `seq` of a block draft, `spine` rank-0 levels first.
    /// `false`: not a case for this form, the tree is as it was.
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
        self.run(&rows, spine, budget)
            && tree.extend(self.nodes[1..].iter().map(|n| (n.place.parent, n.token, n.place.rank, n.score))).is_ok()
    }

    /// The same from plain rows: gives every node to `take` in order of selection. `false`: not a case for this form,
    /// nothing was taken.
    pub fn order(&mut self, rows: &[&[Candidate]], spine: u32, budget: u32, take: &mut dyn FnMut(Popped)) -> bool {
        if rows.len() > MAX_DEPTH || rows.iter().any(|r| r.first().is_some_and(|c| c.logp > 0.0)) {
            return false;
        }
        let mut all: [&[Candidate]; MAX_DEPTH] = [&[]; MAX_DEPTH];
        all[..rows.len()].copy_from_slice(rows);
        let done = self.run(&all, spine, budget);
        if done {
            for n in &self.nodes[1..] {
                take(Popped { parent: n.place.parent, rank: n.place.rank, depth: n.depth, score: n.score });
            }
        }
        done
    }

    /// Rows beyond the draft's depth are empty.
    fn run(&mut self, rows: &[&[Candidate]; MAX_DEPTH], spine: u32, budget: u32) -> bool {
        let Self { queue, nodes } = self;
        // The last node of each level.
        let mut last = [NONE; MAX_DEPTH + 1];
        queue.len = 0;
        nodes.clear();
        let root = Place { parent: ROOT, rank: 0 };
        nodes.push(Node { score: 0.0, place: root, token: 0, depth: 0, prev: NONE, next: NONE, open: 0 });
        last[0] = ROOT;
        let mut left = budget;
        let (mut tip, mut depth) = (ROOT, 0);
        while depth < (spine as usize).min(MAX_DEPTH) && left > 0 {
            let Some(best) = rows[depth].first().filter(|c| c.logp > f32::NEG_INFINITY) else { break };
            let above = &mut nodes[tip as usize];
            above.open = 1;
            let (score, place) = (above.score + f64::from(best.logp), Place { parent: tip, rank: 0 });
            offer(queue, nodes, rows[depth], tip, 1);
            depth += 1;
            left -= 1;
            tip = nodes.len() as u32;
            last[depth] = tip;
            let depth = depth as u32;
            nodes.push(Node { score, place, token: best.token, depth, prev: NONE, next: NONE, open: 0 });
        }
        if depth < MAX_DEPTH {
            offer(queue, nodes, rows[depth], tip, 0);
        }
        while left > 0
            && let Some(Entry { key, place }) = queue.pop()
        {
            left -= 1;
            // A node has three successors; the spine's first entries fit in any case.
            if queue.len > ROOM - 3 {
                return false;
            }
            let score = 0.0 - f64::from_bits(key);
            let node = nodes.len() as u32;
            let parent = &mut nodes[place.parent as usize];
            parent.open = place.rank + 1;
            let Node { prev, next, score: above, depth, .. } = *parent;
            let depth = depth as usize % MAX_DEPTH;
            let row = rows[depth];
            let taken = row[place.rank as usize];
            if prev == NONE || nodes[prev as usize].open > place.rank + 1 {
                offer(queue, nodes, row, place.parent, place.rank + 1);
            }
            if next != NONE {
                let beside = &nodes[next as usize];
                let its = beside.score + f64::from(taken.logp);
                if its == score && rounding_tie(nodes, above, next, f64::from(taken.logp), score) {
                    return false;
                }
                if beside.open == place.rank {
                    queue.insert(nodes, its, Place { parent: next, rank: place.rank });
                }
            }
            let before = std::mem::replace(&mut last[depth + 1], node);
            let free = before == NONE || {
                let before = &mut nodes[before as usize];
                before.next = node;
                before.open > 0
            };
            let (token, below) = (taken.token, depth as u32 + 1);
            nodes.push(Node { score, place, token, depth: below, prev: before, next: NONE, open: 0 });
            if free && depth + 1 < MAX_DEPTH {
                offer(queue, nodes, rows[depth + 1], node, 0);
            }
        }
        true
    }
}

#[inline(always)]
fn offer(queue: &mut Queue, nodes: &[Node], row: &[Candidate], parent: u32, rank: u32) {
    // Not `>=`, so that NaN is left out with −∞.
    if let Some(c) = row.get(rank as usize)
        && c.logp > f32::NEG_INFINITY
    {
        queue.insert(nodes, nodes[parent as usize].score + f64::from(c.logp), Place { parent, rank });
    }
}

/// Whether a later node of a level, of another score than `above`, reaches the same sum with `logp`: then the tie rule
/// could have wanted it first.
#[cold]
fn rounding_tie(nodes: &[Node], above: f64, mut next: u32, logp: f64, score: f64) -> bool {
    while next != NONE && nodes[next as usize].score + logp == score {
        if nodes[next as usize].score != above {
            return true;
        }
        next = nodes[next as usize].next;
    }
    false
}
