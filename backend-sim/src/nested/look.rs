//! What the tables answer.

use super::{Nested, build::NEVER};
use std::ops::Range;

/// A node by its place in the order of selection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Probability of its path, as the drafter sees it.
    pub weight: f32,
    /// Depth below the root, from 1.
    pub depth: u32,
    /// Rank in its row.
    pub rank: u32,
}

/// Everything about one root, for loops that ask several things: see the methods of the same names of [`Nested`].
#[derive(Debug, Clone, Copy)]
pub struct Roots<'a> {
    /// Path probabilities in order of selection.
    pub weights: &'a [f32],
    rises: &'a [u16],
    /// The largest budget whose tree is certain.
    pub certain: u32,
    /// Levels whose best candidate was right, from the root on.
    pub chain: u32,
    /// The deepest level that a tree may have here; 0: nothing is drafted.
    pub levels: u32,
    /// Tokens of the response behind the root.
    pub behind: u32,
}

impl Roots<'_> {
    /// Drafted tokens that the tree of `n` nodes has right.
    #[inline]
    #[must_use]
    pub fn accepted(&self, n: u32) -> u32 {
        self.rises.iter().map(|&r| u32::from(u32::from(r) <= n && r != NEVER)).sum()
    }

    /// Tokens that a round with the tree of `n` nodes commits.
    #[inline]
    #[must_use]
    pub fn committed(&self, n: u32) -> u32 {
        (self.accepted(n) + 1).min(self.behind)
    }
}

impl Nested {
    /// Requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.ids.len()
    }

    /// Id of a request in the trace.
    #[must_use]
    pub fn id(&self, request: usize) -> u64 {
        self.ids[request]
    }

    /// Root positions of a request: emitted tokens less one.
    #[must_use]
    pub fn positions(&self, request: usize) -> u32 {
        self.starts[request + 1] - self.starts[request]
    }

    /// Tokens that a request emitted, the first one included.
    #[must_use]
    pub fn emitted(&self, request: usize) -> u32 {
        self.positions(request) + 1
    }

    /// Prompt tokens of a request: the absolute position of its root 0.
    #[must_use]
    pub fn prompt_tokens(&self, request: usize) -> u32 {
        self.prompts[request]
    }

    /// The largest budget that the tables answer.
    #[must_use]
    pub fn max_nodes(&self) -> u32 {
        self.max_nodes
    }

    /// Rank-0 levels that are placed first.
    #[must_use]
    pub fn spine(&self) -> u32 {
        self.spine
    }

    /// Levels of the drafter.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Ranks that a row of the trace lists.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    #[inline]
    fn at(&self, request: usize, index: u32) -> usize {
        debug_assert!(index < self.positions(request));
        (self.starts[request] + index) as usize
    }

    #[inline]
    fn range(&self, at: usize) -> Range<usize> {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        begin as usize..self.ends[at] as usize
    }

    /// All about one root.
    ///
    /// # Panics
    /// When there is no such request or position, as slices do; so do the other look-ups.
    #[inline]
    #[must_use]
    pub fn root(&self, request: usize, index: u32) -> Roots<'_> {
        let at = self.at(request, index);
        let depth = self.depth as usize;
        Roots {
            weights: &self.weights[self.range(at)],
            rises: &self.rises[at * depth..(at + 1) * depth],
            certain: u32::from(self.certain[at]),
            chain: u32::from(self.chains[at]),
            behind: self.behind[at],
            levels: u32::from(self.levels[at]),
        }
    }

    /// Drafted tokens that the tree of `n` nodes has right at this root.
    #[inline]
    #[must_use]
    pub fn accepted(&self, request: usize, index: u32, n: u32) -> u32 {
        self.root(request, index).accepted(n)
    }

    /// Tokens that a round with the tree of `n` nodes commits: accepted drafts and the bonus, cut where the response ends.
    #[inline]
    #[must_use]
    pub fn committed(&self, request: usize, index: u32, n: u32) -> u32 {
        self.root(request, index).committed(n)
    }

    /// Nodes that the tree of budget `n` really has: fewer near the end of a response or context.
    #[inline]
    #[must_use]
    pub fn nodes(&self, request: usize, index: u32, n: u32) -> u32 {
        (self.range(self.at(request, index)).len() as u32).min(n)
    }

    /// Path probabilities in order of selection, behind the spine not ascending.
    #[inline]
    #[must_use]
    pub fn weights(&self, request: usize, index: u32) -> &[f32] {
        &self.weights[self.range(self.at(request, index))]
    }

    /// Φ(n): the drafter's expectation of the accepted length, Σ of the first `n` path probabilities.
    #[must_use]
    pub fn phi(&self, request: usize, index: u32, n: u32) -> f64 {
        self.weights(request, index).iter().take(n as usize).map(|&w| f64::from(w)).sum()
    }

    /// Log-probability of the path of node `n`, from 1; `None` where the tree ends before.
    #[must_use]
    pub fn score(&self, request: usize, index: u32, n: u32) -> Option<f64> {
        self.weights(request, index).get((n as usize).checked_sub(1)?).map(|&w| f64::from(w).ln())
    }

    /// The nodes in order of selection.
    pub fn tree(&self, request: usize, index: u32) -> impl ExactSizeIterator<Item = Node> + '_ {
        self.range(self.at(request, index)).map(|i| Node {
            weight: self.weights[i],
            depth: u32::from(self.places[i] >> super::build::RANK_BITS),
            rank: u32::from(self.places[i] & super::build::RANK_MASK),
        })
    }

    /// Whether the tree of `n` nodes would have needed a rank that the trace does not list. What is looked up for it is
    /// then a lower bound. Never with as many listed ranks as nodes: at depth d a tree of B nodes reads B − d + 1.
    #[must_use]
    pub fn cut(&self, request: usize, index: u32, n: u32) -> bool {
        n > u32::from(self.certain[self.at(request, index)])
    }

    /// Share of positions where the tree of `n` nodes would have needed more ranks than are listed. 0 without positions.
    #[must_use]
    pub fn cut_share(&self, n: u32) -> f64 {
        if self.certain.is_empty() {
            return 0.0;
        }
        self.certain.iter().filter(|&&c| n > u32::from(c)).count() as f64 / self.certain.len() as f64
    }

    /// Levels whose best candidate was right at this root: what a chain of `n` levels accepts is the lesser of the two.
    #[inline]
    #[must_use]
    pub fn chain(&self, request: usize, index: u32) -> u32 {
        u32::from(self.chains[self.at(request, index)])
    }

    /// The deepest level that a tree may have at this root: the recorded rows, cut so that accepted tokens and the bonus fit
    /// what may still be emitted. A chain of budget n has the least of n, this, and the rows left in the context.
    #[inline]
    #[must_use]
    pub fn levels(&self, request: usize, index: u32) -> u32 {
        u32::from(self.levels[self.at(request, index)])
    }

    /// Tokens of the response behind this root.
    #[inline]
    #[must_use]
    pub fn behind(&self, request: usize, index: u32) -> u32 {
        self.behind[self.at(request, index)]
    }

    /// Bytes that the tables take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.weights.len() * 6 + self.rises.len() * 2 + self.ends.len() * 12
    }
}
