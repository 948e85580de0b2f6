//! Effective rows of a tree by look-up: what the expert model says of its edges, summed beforehand.

use crate::experts::{Composition, Experts};
use treeline_core::Tree;

/// Nodes of a tree by kind: edges to the drafter's best candidate, to a lesser one, and tokens that the tree already had at
/// that depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Edges {
    pub chain: u16,
    pub siblings: u16,
    pub repeats: u16,
}

impl Edges {
    /// Nodes in all.
    #[inline]
    pub fn nodes(self) -> u32 {
        u32::from(self.chain) + u32::from(self.siblings) + u32::from(self.repeats)
    }
}

/// Working memory of [`Counter::tree`] and [`Counter::ranked`].
#[derive(Debug, Default)]
pub(crate) struct Counter {
    keys: Vec<u64>,
    seen: Vec<u64>,
}

impl Counter {
    /// The edges of any tree, in its own order of growth.
    pub fn tree(&mut self, tree: &Tree) -> Edges {
        self.keys.clear();
        let nodes = tree.depths().iter().zip(tree.tokens()).zip(0u64..).skip(1);
        // By depth and token, first come first.
        self.keys.extend(nodes.clone().map(|((&d, &t), _)| u64::from(d) << 32 | u64::from(t)));
        let mut order: Vec<u32> = (0..self.keys.len() as u32).collect();
        order.sort_unstable_by_key(|&i| (self.keys[i as usize], i));
        let mut edges = Edges::default();
        let mut last = None;
        for &i in &order {
            let key = self.keys[i as usize];
            if last == Some(key) {
                edges.repeats += 1;
            } else if tree.ranks()[i as usize + 1] == 0 {
                edges.chain += 1;
            } else {
                edges.siblings += 1;
            }
            last = Some(key);
        }
        edges
    }

    /// The edges of nodes given by (depth from 1, rank) on a block draft: a rank of a depth is a token.
    pub fn ranked(&mut self, nodes: impl Iterator<Item = (u32, u32)>) -> Edges {
        const DEPTHS: usize = 32;
        self.seen.clear();
        self.seen.resize(DEPTHS, 0);
        let mut edges = Edges::default();
        for (depth, rank) in nodes {
            // 64 ranks a word; the words of rank / 64 = 0 lie first.
            let word = rank as usize / 64 * DEPTHS + depth as usize % DEPTHS;
            if self.seen.len() <= word {
                self.seen.resize((rank as usize / 64 + 1) * DEPTHS, 0);
            }
            let bit = 1 << (rank % 64);
            if self.seen[word] & bit != 0 {
                edges.repeats += 1;
            } else if rank == 0 {
                edges.chain += 1;
            } else {
                edges.siblings += 1;
            }
            self.seen[word] |= bit;
        }
        edges
    }
}

/// Effective rows of one request's tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Worth {
    /// A target without experts.
    Dense,
    /// Every row is independent: no request's rows can share more experts than another's.
    Independent,
    /// By nodes alone.
    Nodes(Vec<f64>),
    /// 1 for the root, and what each edge adds by kind.
    Edges {
        /// Σ over the first so many chain edges.
        chain: Vec<f64>,
        /// Σ over the first so many siblings.
        siblings: Vec<f64>,
        /// Of one repeat.
        repeat: f64,
    },
}

impl Worth {
    /// Of trees up to `nodes` nodes.
    pub fn new(experts: Option<&Experts>, nodes: u32) -> Self {
        let counts = 0..=nodes;
        match experts {
            None => Self::Dense,
            Some(Experts::Uniform | Experts::Skewed { .. }) => Self::Independent,
            Some(Experts::Correlated { novelty, .. }) => {
                let of = |c: Composition| novelty.effective(&c) - 1.0;
                let count = |n: u32| f64::from(n);
                Self::Edges {
                    chain: counts.clone().map(|n| of(Composition::chain(count(n)))).collect(),
                    siblings: counts
                        .map(|n| of(Composition { siblings: count(n), ..Composition::default() }))
                        .collect(),
                    repeat: of(Composition { repeats: 1.0, ..Composition::default() }),
                }
            }
            Some(experts) => Self::Nodes(counts.map(|n| experts.effective_of(f64::from(n) + 1.0, None)).collect()),
        }
    }

    /// Effective rows of a tree; `factor` scales what it adds to its root, which always touches as many experts as any row.
    /// No tree adds more than independent rows would.
    #[inline]
    pub fn of(&self, edges: Edges, factor: f64) -> f64 {
        let last = |list: &[f64], n: usize| list.get(n).or(list.last()).copied().unwrap_or(0.0);
        let nodes = f64::from(edges.nodes());
        match self {
            Self::Dense => 0.0,
            Self::Independent => 1.0 + nodes,
            Self::Nodes(worth) => 1.0 + ((last(worth, edges.nodes() as usize) - 1.0) * factor).min(nodes),
            Self::Edges { chain, siblings, repeat } => {
                let added = last(chain, edges.chain as usize)
                    + last(siblings, edges.siblings as usize)
                    + repeat * f64::from(edges.repeats);
                1.0 + (added * factor).min(nodes)
            }
        }
    }

    /// Whether the target has experts at all.
    pub fn counts(&self) -> bool {
        *self != Self::Dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::experts;

    /// A request's easiness ties its rows together; where rows are independent there is nothing to tie, and no tree touches
    /// more than independent rows would.
    #[test]
    fn no_factor_makes_rows_more_than_independent() {
        let edges = Edges { chain: 5, siblings: 2, repeats: 1 };
        let named = |name: &str| experts(name, std::path::Path::new(".")).unwrap().0;
        let uniform = Worth::new(Some(&named("uniform")), 16);
        let tied = Worth::new(Some(&named("correlated-public-chains")), 16);
        for factor in [0.5, 1.0, 2.0, 50.0] {
            assert_eq!(uniform.of(edges, factor), 9.0);
            assert!(tied.of(edges, factor) <= 9.0);
        }
        assert!(tied.of(edges, 0.5) < tied.of(edges, 1.0) && tied.of(edges, 1.0) < 9.0);
    }
}
