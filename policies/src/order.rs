//! The one order of candidates: higher score first, ties to the lexicographically smaller rank tuple, a prefix before its
//! extension.

use std::cmp::Ordering;

/// A node or candidate by its place: the `rank`-th child of `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub parent: u32,
    pub rank: u32,
}

/// Nodes by index, root = 0 first, which places are relative to.
pub(crate) trait Nodes {
    fn parent(&self, node: u32) -> u32;
    fn rank(&self, node: u32) -> u32;
    fn depth(&self, node: u32) -> u32;
}

impl Nodes for treeline_core::Tree {
    #[inline]
    fn parent(&self, node: u32) -> u32 {
        self.parents()[node as usize]
    }

    #[inline]
    fn rank(&self, node: u32) -> u32 {
        self.ranks()[node as usize]
    }

    #[inline]
    fn depth(&self, node: u32) -> u32 {
        self.depths()[node as usize]
    }
}

/// Compares two places by their rank tuples: `Less` = comes first.
#[cold]
pub(crate) fn cmp_paths<N: Nodes + ?Sized>(nodes: &N, a: Place, b: Place) -> Ordering {
    let (mut x, mut y) = (a, b);
    let (dx, dy) = (nodes.depth(x.parent), nodes.depth(y.parent));
    let up = |p: &mut Place| *p = Place { parent: nodes.parent(p.parent), rank: nodes.rank(p.parent) };
    for _ in dy..dx {
        up(&mut x);
    }
    for _ in dx..dy {
        up(&mut y);
    }
    while x.parent != y.parent {
        up(&mut x);
        up(&mut y);
    }
    x.rank.cmp(&y.rank).then(dx.cmp(&dy))
}

/// The whole order over scored places of one tree: `Less` = comes first. Scores must not be NaN.
#[inline]
pub(crate) fn cmp_scored<N: Nodes + ?Sized>(nodes: &N, a: (f64, Place), b: (f64, Place)) -> Ordering {
    if a.0 > b.0 {
        Ordering::Less
    } else if a.0 < b.0 {
        Ordering::Greater
    } else {
        cmp_paths(nodes, a.1, b.1)
    }
}
