//! The fast form of best-first growth: one tree on a block draft.
//!
//! On a block draft all nodes of depth d − 1 share row d, so a candidate (u, r), the r-th child of u, cannot come before
//! (w, r) when w comes before u. A candidate is therefore queued only when its two predecessors are in the tree: the same
//! parent's rank before it, and the same rank below the node before u on u's level. The queue then holds the corners of a
//! staircase per level, ten to thirty entries for 64 nodes: few enough to be looked through for the best one without a
//! single branch that the processor could guess wrong ([`Scan`]). Where scores tie, a sorted list takes over ([`Sorted`]).
//! What was tried, with figures, stands in `benches/best_first.rs`.
//!
//! The argument needs ranked rows, log-probabilities of at most 0, and that no rounding of a sum makes two scores equal
//! whose parents' are not. [`Staircase::grow`] answers `false` where that does not hold, and [`crate::search`] does the
//! work with a plain heap: the tree is exact in every case.

use crate::order::{Nodes, Place};
use crate::pop_order::{Popped, Ranks};
use crate::queue::{Queue, ROOM, Scan, Sorted};
use treeline_core::{Candidate, DraftView, Tree};

/// Stands for "no node": as a neighbour it has all its ranks taken, so that nobody waits for it and nothing hangs below it.
const NONE: u32 = 0;

/// The root; tree indices are less by 1.
const TOP: u32 = 1;

/// Deepest lattice of the fast form (a power of two); blocks have 8 to 16 positions.
const MAX_DEPTH: usize = 32;

/// A node of the tree with its neighbours on its level, in order of selection, and the next rank to be taken below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub score: f64,
    pub place: Place,
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

/// Working memory.
#[derive(Debug, Default)]
pub(crate) struct Staircase {
    scan: Scan,
    sorted: Sorted,
    nodes: Vec<Node>,
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
        }
        let nodes = |n: &Node| (n.place.parent - TOP, n.token, n.place.rank, n.score);
        self.run(&rows, depth, spine, budget) && tree.extend(self.nodes[TOP as usize + 1..].iter().map(nodes)).is_ok()
    }

    /// The same from plain rows: gives every node to `take` in order of selection. `false`: not a case for this form,
    /// nothing was taken.
    pub fn order<R: Ranks>(&mut self, rows: &[R], spine: u32, budget: u32, take: &mut impl FnMut(Popped)) -> bool {
        if rows.len() > MAX_DEPTH {
            return false;
        }
        let mut all = [R::default(); MAX_DEPTH];
        all[..rows.len()].copy_from_slice(rows);
        let done = self.run(&all, rows.len(), spine, budget);
        if done {
            for n in &self.nodes[TOP as usize + 1..] {
                take(Popped { parent: n.place.parent - TOP, rank: n.place.rank, depth: n.depth, score: n.score });
            }
        }
        done
    }

    /// Rows from `depth` on are empty.
    fn run<R: Ranks>(&mut self, rows: &[R; MAX_DEPTH], depth: usize, spine: u32, budget: u32) -> bool {
        let Self { scan, sorted, nodes } = self;
        // The best of each level: −∞ where there is none, NaN included.
        let mut firsts = [f32::NEG_INFINITY; MAX_DEPTH + 1];
        for (first, row) in firsts.iter_mut().zip(&rows[..depth]) {
            *first = first.max(row.logp(0));
            if *first > 0.0 {
                return false;
            }
        }
        select(scan, nodes, rows, &firsts, spine, budget) || select(sorted, nodes, rows, &firsts, spine, budget)
    }
}

/// Takes `budget` nodes. `false`: the order of two of them is beyond this queue or this form.
fn select<R: Ranks, Q: Queue>(
    queue: &mut Q,
    nodes: &mut Vec<Node>,
    rows: &[R; MAX_DEPTH],
    firsts: &[f32; MAX_DEPTH + 1],
    spine: u32,
    budget: u32,
) -> bool {
    // The last node of each level.
    let mut last = [NONE; MAX_DEPTH + 1];
    queue.clear();
    nodes.clear();
    let top = Place { parent: NONE, rank: 0 };
    let none =
        Node { score: f64::NEG_INFINITY, place: top, token: 0, depth: 0, prev: NONE, next: NONE, open: u32::MAX };
    nodes.push(none);
    nodes.push(Node { score: 0.0, open: 0, ..none });
    last[0] = TOP;
    let mut left = budget;
    let (mut tip, mut depth) = (TOP, 0);
    while depth < (spine as usize).min(MAX_DEPTH) && left > 0 && firsts[depth] > f32::NEG_INFINITY {
        let row = rows[depth];
        let above = &mut nodes[tip as usize];
        above.open = 1;
        let (from, second) = (above.score, row.logp(1));
        let (score, place) = (from + f64::from(firsts[depth]), Place { parent: tip, rank: 0 });
        let beside = Place { parent: tip, rank: 1 };
        queue.offer(nodes, second > f32::NEG_INFINITY, from + f64::from(second), beside);
        depth += 1;
        left -= 1;
        tip = nodes.len() as u32;
        last[depth] = tip;
        nodes.push(Node { score, place, token: row.token(0), depth: depth as u32, prev: NONE, next: NONE, open: 0 });
    }
    let (first, score) = (firsts[depth], nodes[tip as usize].score);
    queue.offer(nodes, first > f32::NEG_INFINITY, score + f64::from(first), Place { parent: tip, rank: 0 });
    while left > 0
        && let Some((score, place)) = queue.pop()
    {
        left -= 1;
        // A node has three successors; the spine's first entries fit in any case.
        if queue.len() > ROOM - 4 {
            return false;
        }
        let node = nodes.len() as u32;
        let parent = &mut nodes[place.parent as usize];
        parent.open = place.rank + 1;
        let Node { prev, next, score: above, depth, .. } = *parent;
        let depth = depth as usize % MAX_DEPTH;
        let row = rows[depth];
        let sibling = row.logp(place.rank as usize + 1);
        // Conditions are worked out and not branched upon: which of the three holds is beyond guessing.
        let free = (nodes[prev as usize].open > place.rank + 1) & (sibling > f32::NEG_INFINITY);
        queue.offer(nodes, free, above + f64::from(sibling), Place { rank: place.rank + 1, ..place });
        let logp = f64::from(row.logp(place.rank as usize));
        let beside = &nodes[next as usize];
        let (its, free) = (beside.score + logp, beside.open == place.rank);
        if its == score && rounding_tie(nodes, above, next, logp, score) {
            return false;
        }
        queue.offer(nodes, free, its, Place { parent: next, rank: place.rank });
        let prev = std::mem::replace(&mut last[depth + 1], node);
        let before = &mut nodes[prev as usize];
        before.next = node;
        let (free, first) = (before.open > 0, firsts[depth + 1]);
        let token = row.token(place.rank as usize);
        nodes.push(Node { score, place, token, depth: depth as u32 + 1, prev, next: NONE, open: 0 });
        let free = free & (first > f32::NEG_INFINITY);
        queue.offer(nodes, free, score + f64::from(first), Place { parent: node, rank: 0 });
        if !queue.in_order(nodes, score, place) {
            return false;
        }
    }
    queue.is_decided()
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
