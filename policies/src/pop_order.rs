//! The order in which best-first takes its nodes at one position of a block draft.
//!
//! Best-first trees are nested: the tree of `n` nodes is the first `n` of this order, whatever the budget. So one order
//! answers for every budget; the simulator tabulates them. The order is the policy's own, from the same code.

use crate::lattice::Staircase;
use crate::search::{Rule, Search};
use treeline_core::{Batch, Candidate, Caps, Forest, Lattice, Sampling, Seq};

/// A node in order of selection. Indices are those of the tree: 0 is the root, the first node taken is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Popped {
    /// Index of its parent.
    pub parent: u32,
    /// Its rank in its row.
    pub rank: u32,
    /// Its depth, 1 below the root.
    pub depth: u32,
    /// Log-probability of its path: f32 log-probabilities summed in f64 from the root.
    pub score: f64,
}

/// A ranked row: what a level of a block draft lists, best first.
pub trait Ranks: Copy + Default {
    /// Listed ranks.
    fn ranks(self) -> usize;

    /// Log-probability of a rank; −∞ behind the last.
    fn logp(self, rank: usize) -> f32;

    /// Token of a listed rank.
    fn token(self, rank: usize) -> u32;
}

impl Ranks for &[Candidate] {
    #[inline(always)]
    fn ranks(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn logp(self, rank: usize) -> f32 {
        self.get(rank).map_or(f32::NEG_INFINITY, |c| c.logp)
    }

    #[inline(always)]
    fn token(self, rank: usize) -> u32 {
        self[rank].token
    }
}

/// Log-probabilities alone, as a rank trace keeps them: a candidate's token is its rank.
impl Ranks for &[f32] {
    #[inline(always)]
    fn ranks(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn logp(self, rank: usize) -> f32 {
        self.get(rank).copied().unwrap_or(f32::NEG_INFINITY)
    }

    #[inline(always)]
    fn token(self, rank: usize) -> u32 {
        rank as u32
    }
}

/// Working memory.
#[derive(Debug, Default)]
pub struct PopOrder {
    staircase: Staircase,
    search: Search,
    forest: Forest,
}

impl PopOrder {
    /// Takes up to `budget` nodes from `rows` (row 0 at depth 1), `spine` rank-0 levels first, and gives each to `take`.
    /// Fewer when the rows hold no more.
    pub fn run<R: Ranks>(&mut self, rows: &[R], spine: u32, budget: u32, mut take: impl FnMut(Popped)) {
        if self.staircase.order(rows, spine, budget, &mut take) {
            return;
        }
        let mut drafts = Lattice::new(0);
        drafts.begin_seq();
        for row in rows {
            let candidate = |rank| Candidate { token: row.token(rank), logp: row.logp(rank) };
            drafts.push_row(&(0..row.ranks()).map(candidate).collect::<Vec<_>>(), true, true);
        }
        let depth = rows.len() as u32;
        let seq = Seq {
            slot: 0,
            request: 0,
            index: 0,
            start: 1,
            root: 0,
            left: depth.saturating_add(1),
            eos: [].into(),
            sampling: Sampling::GREEDY,
            round: 0,
        };
        self.forest.reset(&Batch { seqs: vec![seq] }, &[Caps { nodes: budget, depth }]);
        self.search.begin(1);
        let rule = Rule { spine, beam: 1 };
        self.search.each(rule, |_| budget, &drafts, &mut self.forest, &mut Vec::new());
        let tree = self.forest.tree(0);
        for node in 1..tree.rows() as usize {
            let (parent, rank, depth) = (tree.parents()[node], tree.ranks()[node], tree.depths()[node]);
            take(Popped { parent, rank, depth, score: tree.scores()[node] });
        }
    }
}
