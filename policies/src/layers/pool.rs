//! The candidates of one sequence, and which of them are the best.

use crate::order::{Nodes, Place, cmp_scored};
use std::cmp::Ordering;

pub(super) const NONE: u32 = u32::MAX;

/// One candidate. Index 0 of a pool is the root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub parent: u32,
    pub rank: u32,
    pub depth: u32,
    pub(super) token: u32,
    /// Cumulative log-probability of its path.
    pub(super) score: f64,
    /// What it is chosen by: its score with the rule's discount, never above its parent's (a probability that rounding
    /// lifts above 1 must not put a child before its parent).
    pub key: f64,
    /// Its node in the tree, once it is there.
    pub(super) node: u32,
    pub expanded: bool,
}

/// All candidates of one sequence, parents before children; children of one wave stay together.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(super) items: Vec<Candidate>,
    /// Where the children of the last wave begin.
    pub(super) fresh: u32,
    /// The tree's budget.
    pub budget: u32,
    /// The deepest level.
    pub depth: u32,
    /// Waves so far.
    pub waves: u32,
    /// Candidates with a smaller key need not enter the pool; set by rules whose trees are the best keys of all.
    pub floor: f64,
    /// Candidates that a rule has settled on.
    pub kept: Vec<u32>,
    /// A number that a rule carries from wave to wave.
    pub value: f64,
}

impl Nodes for Pool {
    fn parent(&self, node: u32) -> u32 {
        self.items[node as usize].parent
    }

    fn rank(&self, node: u32) -> u32 {
        self.items[node as usize].rank
    }

    fn depth(&self, node: u32) -> u32 {
        self.items[node as usize].depth
    }
}

impl Pool {
    pub fn get(&self, i: u32) -> &Candidate {
        &self.items[i as usize]
    }

    /// Candidates without the root.
    pub fn all(&self) -> std::ops::Range<u32> {
        1..self.items.len() as u32
    }

    /// The children that the last wave brought.
    pub fn fresh(&self) -> std::ops::Range<u32> {
        self.fresh..self.items.len() as u32
    }

    /// The exact order by key.
    fn cmp(&self, a: u32, b: u32) -> Ordering {
        let scored = |i: u32| (self.get(i).key, Place { parent: self.parent(i), rank: self.rank(i) });
        cmp_scored(self, scored(a), scored(b))
    }

    /// The `n` best of `list`, best first, parents before children; the rest leaves the list.
    pub fn best(&self, list: &mut Vec<u32>, n: usize) {
        if n == 0 {
            list.clear();
            return;
        }
        if list.len() > n {
            list.select_nth_unstable_by(n - 1, |&a, &b| self.cmp(a, b));
            list.truncate(n);
        }
        list.sort_unstable_by(|&a, &b| self.cmp(a, b));
    }

    /// The budget's best candidates of the whole pool, best first, into `list`; raises the floor to the last of them.
    pub fn best_of_all(&mut self, list: &mut Vec<u32>) {
        list.clear();
        list.extend(self.all());
        let n = self.budget as usize;
        let full = list.len() >= n;
        self.best(list, n);
        if full && let Some(&last) = list.last() {
            self.floor = self.get(last).key;
        }
    }
}
