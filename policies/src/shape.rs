//! Fixed shapes: trees whose form does not depend on the draft, so that candidates may also be drawn.

use treeline_core::{DraftView, Forest, Grow, NodeRef, ROOT};

/// The most nodes that a fixed shape may have: far beyond any verify pass, and a bound on what a file can make us store.
pub const MAX_NODES: u32 = 1 << 16;

/// A fixed tree: parent and rank of each node, root first, parents before children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    parents: Vec<u32>,
    ranks: Vec<u32>,
    depths: Vec<u32>,
}

impl Default for Shape {
    fn default() -> Self {
        Self { parents: vec![ROOT], ranks: vec![0], depths: vec![0] }
    }
}

impl Shape {
    /// Adds the `rank`-th child of `parent`; returns its index, or `None` when the parent is not there.
    pub fn push(&mut self, parent: u32, rank: u32) -> Option<u32> {
        let depth = *self.depths.get(parent as usize)? + 1;
        self.parents.push(parent);
        self.ranks.push(rank);
        self.depths.push(depth);
        Some(self.parents.len() as u32 - 1)
    }

    /// Every node of level i − 1 gets `widths[i − 1]` children; level by level and in rank order until `budget` nodes.
    #[must_use]
    pub fn of_widths(widths: &[u32], budget: u32) -> Self {
        let mut shape = Self::default();
        let mut level = 0..1;
        for &width in widths {
            let begin = shape.rows();
            for (parent, rank) in level.flat_map(|p| (0..width).map(move |r| (p, r))) {
                if shape.nodes() == budget {
                    return shape;
                }
                shape.push(parent, rank);
            }
            level = begin..shape.rows();
        }
        shape
    }

    /// Lengthens a chain (or the bare root) to `depth` levels.
    pub fn extend_chain(&mut self, depth: u32) {
        while self.nodes() < depth {
            self.push(self.nodes(), 0);
        }
    }

    /// Nodes and the root.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.parents.len() as u32
    }

    /// Nodes without the root.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.rows() - 1
    }

    /// Deepest level.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// Ranks per row that the shape reads.
    #[must_use]
    pub fn width(&self) -> u32 {
        if self.nodes() == 0 { 0 } else { self.ranks.iter().copied().max().unwrap_or(0) + 1 }
    }

    /// Parents, root (its own parent) first.
    #[must_use]
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// Ranks in the same order.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }
}

#[derive(Debug, Default)]
struct Placing {
    /// Next node of the shape to place.
    next: u32,
    /// Tree node of each shape node; `NONE` where the draft had no candidate.
    at: Vec<u32>,
    /// Whether a tree node's row was asked for.
    asked: Vec<bool>,
}

const NONE: u32 = u32::MAX;

/// Places shapes into trees, wave by wave where the drafter is conditional. Candidates that the draft does not list, −∞
/// ones and their descendants are left out; a tree's caps cut the shape in its own order.
#[derive(Debug, Default)]
pub struct Shaped {
    seqs: Vec<Placing>,
}

impl Shaped {
    /// Forgets the last round.
    pub fn begin(&mut self, seqs: usize) {
        self.seqs.resize_with(self.seqs.len().max(seqs), Placing::default);
        for placing in &mut self.seqs[..seqs] {
            placing.next = 1;
            placing.at.clear();
            placing.at.push(ROOT);
            placing.asked.clear();
            placing.asked.push(false);
        }
    }

    /// Grows every tree to the shape of its sequence; to be called until it answers [`Grow::Done`].
    pub fn grow<'s>(
        &mut self,
        shape: impl Fn(usize) -> &'s Shape,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        for seq in 0..forest.len() {
            if forest.fault(seq).is_none() {
                self.seqs[seq].place(seq, shape(seq), drafts, forest, wave);
            }
        }
        if wave.is_empty() { Grow::Done } else { Grow::Expand }
    }
}

impl Placing {
    fn place(
        &mut self,
        seq: usize,
        shape: &Shape,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) {
        let tree = forest.tree_mut(seq);
        let limit = tree.depth_limit().min(drafts.depth(seq as u32));
        let block = limit > 0 && drafts.level(seq as u32, 1).is_some();
        // Nodes behind a pending wave: looked at for the wave, placed after it, so that they keep the shape's order.
        let mut pending = 0;
        let asked = wave.len();
        for i in self.next..shape.rows() {
            if tree.nodes() + pending >= tree.budget() {
                break;
            }
            let Some(&above) = self.at.get(shape.parents[i as usize] as usize) else {
                pending += 1;
                continue;
            };
            if above == NONE || tree.depths()[above as usize] >= limit {
                if pending == 0 {
                    self.at.push(NONE);
                    self.next = i + 1;
                }
                continue;
            }
            let at = NodeRef { seq: seq as u32, node: above, depth: tree.depths()[above as usize] };
            let row = if block { drafts.level(at.seq, at.depth + 1).unwrap_or(&[]) } else { drafts.children(at) };
            if row.is_empty() && !block && !self.asked[above as usize] {
                self.asked[above as usize] = true;
                wave.push(at);
            }
            if wave.len() > asked {
                pending += 1;
                continue;
            }
            let rank = shape.ranks[i as usize];
            let node = row.get(rank as usize).filter(|c| c.logp > f32::NEG_INFINITY).and_then(|c| {
                let score = tree.scores()[above as usize] + f64::from(c.logp);
                tree.push(above, c.token, rank, score).ok()
            });
            if node.is_some() {
                self.asked.push(false);
            }
            self.at.push(node.unwrap_or(NONE));
            self.next = i + 1;
        }
    }
}
