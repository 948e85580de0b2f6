//! Rows of one tree choose overlapping experts: each node brings only a part of a row that is new.

use std::collections::HashSet;

use treeline_core::Tree;

/// How much of an independent row each node of a tree adds, by its edge and its place among nodes of that edge.
///
/// The root adds 1. The m-th *chain* edge of a tree (to the drafter's best candidate, at a token not seen at that depth
/// before) adds `chain · m^−chain_decay`; the m-th *sibling* edge (to a lesser candidate, likewise new) adds
/// `sibling · m^−sibling_decay`; a *repeat* (a token that the tree already has at that depth, under another parent, as
/// block drafters' trees mostly do) adds `repeat`. Each is at most 1. The sum over the trees of a batch is T_eff.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Novelty {
    /// Of the first chain edge, 0 to 1.
    pub chain: f64,
    /// How it falls along the chain, ≥ 0.
    pub chain_decay: f64,
    /// Of the first sibling, 0 to 1.
    pub sibling: f64,
    /// How it falls from sibling to sibling, ≥ 0.
    pub sibling_decay: f64,
    /// Of a repeat, 0 to 1.
    pub repeat: f64,
    /// Chain edges that a typical tree has before it branches, where only its rows are known.
    pub spine: u32,
}

/// What a tree is made of: nodes of each kind, averages included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Composition {
    /// Chain edges.
    pub chain: f64,
    /// Sibling edges.
    pub siblings: f64,
    /// Repeats.
    pub repeats: f64,
}

/// Repeats among the nodes behind the spine, by budget: best-first trees over the bundled pair's trace.
const REPEATS: [(f64, f64); 6] = [(4.0, 0.04), (7.0, 0.09), (16.0, 0.21), (32.0, 0.29), (64.0, 0.42), (128.0, 0.57)];

impl Composition {
    /// A chain.
    #[must_use]
    pub fn chain(nodes: f64) -> Self {
        Self { chain: nodes, ..Self::default() }
    }

    /// A typical tree of `nodes` nodes: a chain as far as `spine`, then siblings and repeats.
    #[must_use]
    pub fn typical(nodes: f64, spine: u32) -> Self {
        let chain = nodes.min(f64::from(spine)).max(0.0);
        let rest = (nodes - chain).max(0.0);
        let repeats = rest * share(nodes);
        Self { chain, siblings: rest - repeats, repeats }
    }

    /// Counts the nodes of a tree, in its own order of growth.
    #[must_use]
    pub fn of(tree: &Tree) -> Self {
        let mut seen = HashSet::new();
        let mut all = Self::default();
        for row in 1..tree.rows() as usize {
            if !seen.insert((tree.depths()[row], tree.tokens()[row])) {
                all.repeats += 1.0;
            } else if tree.ranks()[row] == 0 {
                all.chain += 1.0;
            } else {
                all.siblings += 1.0;
            }
        }
        all
    }

    /// Nodes in all.
    #[must_use]
    pub fn nodes(&self) -> f64 {
        self.chain + self.siblings + self.repeats
    }
}

/// [`REPEATS`] by the logarithm of the budget, held at both ends.
fn share(nodes: f64) -> f64 {
    let after = REPEATS.partition_point(|p| p.0 <= nodes);
    match (after.checked_sub(1).map(|i| REPEATS[i]), REPEATS.get(after)) {
        (None, _) => REPEATS[0].1,
        (Some(last), None) => last.1,
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (nodes / a.0).ln() / (b.0 / a.0).ln(),
    }
}

impl Novelty {
    /// Rows of one request's tree, root included, as independent rows.
    #[must_use]
    pub fn effective(&self, tree: &Composition) -> f64 {
        1.0 + series(self.chain, self.chain_decay, tree.chain)
            + series(self.sibling, self.sibling_decay, tree.siblings)
            + self.repeat * tree.repeats
    }
}

/// Σ_{m=1..n} min(1, first · m^−decay), the last term by its part where n is no whole number.
fn series(first: f64, decay: f64, n: f64) -> f64 {
    let whole = n.max(0.0).floor();
    let term = |m: f64| (first * m.powf(-decay)).min(1.0);
    // Bounded by the rows of one request.
    let sum: f64 = (1..=whole as u32).map(|m| term(f64::from(m))).sum();
    sum + (n.max(0.0) - whole) * term(whole + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn novelty() -> Novelty {
        Novelty { chain: 0.8, chain_decay: 0.5, sibling: 0.4, sibling_decay: 0.25, repeat: 0.05, spine: 7 }
    }

    #[test]
    fn trees_are_counted_by_edge() {
        // root; chain a at depth 1, sibling b at depth 1; a → c; b → c again.
        let tree = Tree::from_arrays(&[9, 1, 2, 3, 3], &[0, 0, 0, 1, 2], &[0, 0, 1, 0, 0], &[0.0; 5]).unwrap();
        assert_eq!(Composition::of(&tree), Composition { chain: 2.0, siblings: 1.0, repeats: 1.0 });
    }

    #[test]
    fn typical_trees_keep_their_nodes() {
        for nodes in [0.0, 3.0, 7.0, 7.5, 16.0, 40.0, 500.0] {
            let tree = Composition::typical(nodes, 7);
            assert!((tree.nodes() - nodes).abs() < 1e-9 && tree.siblings >= 0.0 && tree.repeats >= 0.0, "{tree:?}");
        }
        assert_eq!(Composition::typical(5.0, 7), Composition::chain(5.0));
    }

    #[test]
    fn novelty_never_exceeds_a_row_and_grows_with_the_tree() {
        let mut last = 0.0;
        for nodes in 0..200 {
            let now = novelty().effective(&Composition::typical(f64::from(nodes), 7));
            assert!(now > last && now <= 1.0 + f64::from(nodes), "{nodes}: {now}");
            last = now;
        }
        assert_eq!(novelty().effective(&Composition::default()), 1.0);
        let full = Novelty { chain: 2.0, chain_decay: 0.0, sibling: 9.0, sibling_decay: 0.0, repeat: 1.0, spine: 7 };
        assert_eq!(full.effective(&Composition { chain: 3.0, siblings: 2.5, repeats: 1.0 }), 7.5);
    }
}
