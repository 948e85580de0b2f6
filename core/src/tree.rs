//! Draft trees: flat arrays, root first, every parent before its children.
//!
//! Index 0 is the root (the last bonus token). A tree's *budget* is the number of nodes that are not the root; a verify
//! pass over it has `1 + budget` rows. Trees are prefix-closed by construction: a node can only be pushed under a node
//! that is already there.

mod builder;
mod bulk;
mod error;
mod working;

pub use builder::TreeBuilder;
pub use error::TreeError;

use crate::distinct::all_differ;
use crate::mask::AncestorMask;

/// Index of a node in its tree; 0 is the root.
pub type NodeId = u32;

/// The root's index.
pub const ROOT: NodeId = 0;

/// A draft tree. Scores are cumulative log-probabilities of the path (f32 per edge, summed in f64 from the root).
#[derive(Debug, Clone)]
pub struct Tree {
    tokens: Vec<u32>,
    parents: Vec<u32>,
    depths: Vec<u32>,
    ranks: Vec<u32>,
    scores: Vec<f64>,
    budget: u32,
    depth_limit: u32,
    /// The most nodes while growing: the budget, or more between `open` and `keep`.
    capacity: u32,
    /// Index of each row while the tree was grown; empty unless it was rebuilt.
    origins: Vec<u32>,
    scratch: Vec<u32>,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        let key = |t: &Self| (t.budget, t.depth_limit);
        key(self) == key(other)
            && self.tokens == other.tokens
            && self.parents == other.parents
            && self.ranks == other.ranks
            && self.scores == other.scores
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new(0, 0, 0)
    }
}

impl Tree {
    /// An empty tree over `root` that may grow to `budget` nodes and `depth_limit` levels.
    #[must_use]
    pub fn new(root: u32, budget: u32, depth_limit: u32) -> Self {
        let mut tree = Self {
            tokens: Vec::new(),
            parents: Vec::new(),
            depths: Vec::new(),
            ranks: Vec::new(),
            scores: Vec::new(),
            budget,
            depth_limit,
            capacity: budget,
            origins: Vec::new(),
            scratch: Vec::new(),
        };
        tree.reset(root, budget, depth_limit);
        tree
    }

    /// Starts over with a new root and new limits; keeps the memory.
    pub fn reset(&mut self, root: u32, budget: u32, depth_limit: u32) {
        self.tokens.clear();
        self.parents.clear();
        self.depths.clear();
        self.ranks.clear();
        self.scores.clear();
        self.tokens.push(root);
        self.parents.push(ROOT);
        self.depths.push(0);
        self.ranks.push(0);
        self.scores.push(0.0);
        self.budget = budget;
        self.depth_limit = depth_limit;
        self.capacity = budget;
        self.origins.clear();
    }

    /// Adds a child of `parent`: `rank` is its place among the parent's candidates (0 = best), `score` the path's
    /// cumulative log-probability.
    ///
    /// # Errors
    /// [`TreeError::Parent`], [`TreeError::Full`], [`TreeError::TooDeep`]; the tree is unchanged then. Equal tokens of
    /// siblings are found by [`Tree::check`], once per tree, not per push.
    #[inline]
    pub fn push(&mut self, parent: NodeId, token: u32, rank: u32, score: f64) -> Result<NodeId, TreeError> {
        let node = self.tokens.len() as u32;
        let Some(&above) = self.depths.get(parent as usize) else {
            return Err(TreeError::Parent { node, parent });
        };
        if node > self.capacity {
            return Err(TreeError::Full { budget: self.capacity });
        }
        if above >= self.depth_limit {
            return Err(TreeError::TooDeep { depth: above + 1, limit: self.depth_limit });
        }
        self.tokens.push(token);
        self.parents.push(parent);
        self.depths.push(above + 1);
        self.ranks.push(rank);
        self.scores.push(score);
        Ok(node)
    }

    /// Drops every node behind the first `rows` rows (the root always stays). What stays is prefix-closed, since
    /// parents come first.
    pub fn truncate(&mut self, rows: u32) {
        let rows = rows.max(1) as usize;
        self.tokens.truncate(rows);
        self.parents.truncate(rows);
        self.depths.truncate(rows);
        self.ranks.truncate(rows);
        self.scores.truncate(rows);
        self.origins.truncate(rows);
    }

    /// Rows of a verify pass: nodes and the root.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.tokens.len() as u32
    }

    /// Nodes without the root: what a budget counts.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.rows() - 1
    }

    /// The most nodes that this tree may have.
    #[must_use]
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// The deepest level that this tree may have.
    #[must_use]
    pub fn depth_limit(&self) -> u32 {
        self.depth_limit
    }

    /// Depth of the deepest node; 0 for a bare root.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// Token of each row, root first.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Parent of each row; the root is its own.
    #[must_use]
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// Depth of each row; 0 for the root. Absolute position of a row = `start + depth`.
    #[must_use]
    pub fn depths(&self) -> &[u32] {
        &self.depths
    }

    /// Rank of each row among its parent's candidates.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Cumulative log-probability of each row's path.
    #[must_use]
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }

    /// The child of `parent` that carries `token`, if there is one.
    #[must_use]
    pub fn child(&self, parent: NodeId, token: u32) -> Option<NodeId> {
        // Children lie behind their parent. Eight rows at a time: most hold none, and which does is beyond guessing.
        let first = (parent as usize + 1).min(self.parents.len());
        let (parents, tokens) = (&self.parents[first..], &self.tokens[first..]);
        let here = |(&p, &t): (&u32, &u32)| (p == parent) & (t == token);
        for (i, (p, t)) in parents.chunks(8).zip(tokens.chunks(8)).enumerate() {
            if p.iter().zip(t).fold(false, |any, row| any | here(row)) {
                let at = p.iter().zip(t).position(here)?;
                return Some((first + 8 * i + at) as NodeId);
            }
        }
        None
    }

    /// Children of `parent` in index order.
    pub fn children(&self, parent: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        // Children lie behind their parent; the root (its own parent) is skipped by that.
        (parent + 1..self.rows()).filter(move |&n| self.parents[n as usize] == parent)
    }

    /// Nodes from the root's child down to `node`, root left out.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<NodeId> {
        let mut path = Vec::with_capacity(self.depths[node as usize] as usize);
        let mut at = node;
        while at != ROOT {
            path.push(at);
            at = self.parents[at as usize];
        }
        path.reverse();
        path
    }

    /// Sum of the path probabilities: the drafter's own expectation of the accepted length (Φ).
    #[must_use]
    pub fn expected_accepted(&self) -> f64 {
        self.scores[1..].iter().map(|s| s.exp()).sum()
    }

    /// Which rows each row may see within the tree: its ancestors and itself.
    #[must_use]
    pub fn mask(&self) -> AncestorMask {
        AncestorMask::of(&self.parents)
    }

    /// Checks what growing leaves open: the budget (a tree that was opened may exceed it) and, unless `duplicates` are
    /// allowed, as for candidates drawn with replacement, that siblings are distinct. That parents come first, depths follow
    /// from them and the depth limit is kept holds by construction: nothing is added that breaks it.
    ///
    /// # Errors
    /// The first [`TreeError`] found.
    pub fn check(&self, duplicates: bool) -> Result<(), TreeError> {
        debug_assert!(self.is_sound(), "{self:?}");
        if self.nodes() > self.budget {
            return Err(TreeError::Full { budget: self.budget });
        }
        let edge = |(&parent, &token): (&u32, &u32)| u64::from(parent) << 32 | u64::from(token);
        let keys = self.parents[1..].iter().zip(&self.tokens[1..]).map(edge);
        if !duplicates && !all_differ(keys) {
            // Something is wrong: find what, in an order that does not depend on hashes.
            let mut edges: Vec<(u32, u32)> =
                self.parents.iter().copied().zip(self.tokens.iter().copied()).skip(1).collect();
            edges.sort_unstable();
            if let Some(w) = edges.windows(2).find(|w| w[0] == w[1]) {
                return Err(TreeError::Duplicate { parent: w[0].0, token: w[0].1 });
            }
        }
        Ok(())
    }

    /// Parents lie before their children, depths follow from them and keep the limit.
    fn is_sound(&self) -> bool {
        let sound = |n: usize| {
            let parent = self.parents[n] as usize;
            parent < n && self.depths[n] == self.depths[parent] + 1 && self.depths[n] <= self.depth_limit
        };
        (1..self.parents.len()).all(sound)
    }

    /// A tree from arrays that came from elsewhere (a file, a device). Index 0 is the root and names itself as parent.
    ///
    /// # Errors
    /// An absent parent, a cycle, a wrong depth or equal siblings: never a hang.
    pub fn from_arrays(tokens: &[u32], parents: &[u32], ranks: &[u32], scores: &[f64]) -> Result<Self, TreeError> {
        let rows = tokens.len();
        let mut tree = Self::new(tokens.first().copied().unwrap_or(0), rows as u32, rows as u32);
        for (node, &token) in tokens.iter().enumerate().skip(1) {
            let parent = parents.get(node).copied().unwrap_or(u32::MAX);
            if parent as usize >= node {
                return Err(TreeError::Parent { node: node as u32, parent });
            }
            let rank = ranks.get(node).copied().unwrap_or(0);
            let score = scores.get(node).copied().unwrap_or(0.0);
            tree.push(parent, token, rank, score)?;
        }
        tree.check(false)?;
        Ok(tree)
    }
}
