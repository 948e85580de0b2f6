//! A policy whose trees all have the same shape.

use crate::batch::Limits;
use crate::draft::{Ask, DraftView, NodeRef};
use crate::error::Fault;
use crate::forest::Forest;
use crate::seams::{Grow, Needs, Round, TreePolicy};
use crate::tree::TreeBuilder;

/// Trees of one shape: node `i + 1` hangs under `parents[i]` and carries candidate `ranks[i]` of its parent's row. A node
/// whose parent or candidate is missing, or that the caps forbid, is left out with everything under it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    parents: Vec<u32>,
    ranks: Vec<u32>,
    /// The nodes that the finished tree keeps, in order; empty = as grown.
    kept: Vec<u32>,
    /// Levels and ranks that are asked for at the least.
    least: (u32, u32),
    /// Level that was grown last in this round.
    level: u32,
    /// Per sequence: where each node of the shape (root first) stands in the tree.
    places: Vec<Vec<Option<u32>>>,
}

impl Shape {
    /// A shape by parents (0 = root) and ranks.
    #[must_use]
    pub fn new(parents: &[u32], ranks: &[u32]) -> Self {
        Self { parents: parents.to_vec(), ranks: ranks.to_vec(), ..Self::default() }
    }

    /// Asks for drafts of `depth` levels and `width` ranks, and uses none: plain decoding with drafts to look at.
    #[must_use]
    pub fn silent(depth: u32, width: u32) -> Self {
        Self { least: (depth, width), ..Self::default() }
    }

    /// A chain of `depth` nodes.
    #[must_use]
    pub fn chain(depth: u32) -> Self {
        Self { parents: (0..depth).collect(), ranks: vec![0; depth as usize], ..Self::default() }
    }

    /// Every node of level `d` has `widths[d]` children.
    #[must_use]
    pub fn widths(widths: &[u32]) -> Self {
        let (mut parents, mut ranks, mut level) = (Vec::new(), Vec::new(), vec![0]);
        for &width in widths {
            let mut next = Vec::new();
            for &parent in &level {
                for rank in 0..width {
                    parents.push(parent);
                    ranks.push(rank);
                    next.push(parents.len() as u32);
                }
            }
            level = next;
        }
        Self { parents, ranks, ..Self::default() }
    }

    /// Grows the whole shape whatever the budget, then keeps `order` (nodes of the shape, the root left out).
    #[must_use]
    pub fn keeping(self, order: &[u32]) -> Self {
        Self { kept: order.to_vec(), ..self }
    }

    /// Nodes without the root.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.parents.len() as u32
    }

    /// Levels that it asks for.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depths().into_iter().max().unwrap_or(0).max(self.least.0)
    }

    /// Ranks per row that it reads.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.ranks.iter().max().map_or(0, |r| r + 1).max(self.least.1)
    }

    fn depths(&self) -> Vec<u32> {
        let mut depths = vec![0; self.parents.len() + 1];
        for (i, &parent) in self.parents.iter().enumerate() {
            depths[i + 1] = depths.get(parent as usize).map_or(0, |d| d + 1);
        }
        depths
    }
}

impl TreePolicy for Shape {
    fn kind(&self) -> &str {
        "shape"
    }

    fn needs(&self, _limits: &Limits) -> Needs {
        Needs { depth: self.depth(), width: self.width(), draws: true, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        let (depth, width) = (self.depth(), self.width());
        self.level = 0;
        self.places = vec![vec![None; self.parents.len() + 1]; round.batch.len()];
        self.places.iter_mut().for_each(|place| place[0] = Some(0));
        ask.extend(round.batch.iter().map(|_| Ask { depth, width, draw: round.draw }));
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        let depths = self.depths();
        self.level += 1;
        let mut grew = false;
        for (seq, place) in self.places.iter_mut().enumerate() {
            if forest.fault(seq).is_some() {
                continue;
            }
            if self.level == 1 && !self.kept.is_empty() {
                forest.tree_mut(seq).open(self.parents.len() as u32);
            }
            for (i, (&parent, &rank)) in self.parents.iter().zip(&self.ranks).enumerate() {
                let depth = depths[i + 1];
                let above = place.get(parent as usize).copied().flatten();
                let Some(above) = above.filter(|_| depth == self.level) else { continue };
                let row = drafts.children(NodeRef { seq: seq as u32, node: above, depth: depth - 1 });
                let Some(&candidate) = row.get(rank as usize) else { continue };
                if let Ok(node) = TreeBuilder::new(forest.tree_mut(seq)).add(above, rank, candidate) {
                    place[i + 1] = Some(node);
                    wave.push(NodeRef { seq: seq as u32, node, depth });
                    grew = true;
                }
            }
        }
        if grew && self.level < round.limits.depth {
            return Grow::Expand;
        }
        for (seq, place) in self.places.iter().enumerate().filter(|_| !self.kept.is_empty()) {
            let order: Vec<u32> = self.kept.iter().filter_map(|&n| place.get(n as usize).copied().flatten()).collect();
            if let Err(e) = forest.tree_mut(seq).keep(&order) {
                forest.fail(seq, Fault::Policy(e.to_string()));
            }
        }
        Grow::Done
    }
}
