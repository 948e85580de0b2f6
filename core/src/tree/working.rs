//! Growing beyond the budget and keeping the best: for policies that expand more nodes of a conditional drafter than the
//! final tree may hold.

use super::{NodeId, ROOT, Tree, TreeError};

impl Tree {
    /// Allows up to `capacity` nodes while the tree is grown; never less than the budget. [`Tree::keep`] ends this, and a
    /// tree that still exceeds its budget after that fails [`Tree::check`].
    pub fn open(&mut self, capacity: u32) {
        self.capacity = capacity.max(self.budget);
    }

    /// Makes `order` (without the root) the whole tree, in that order, and ends what [`Tree::open`] allowed. Rows of
    /// drafts that were expanded before are found through [`Tree::origin`] from now on.
    ///
    /// # Errors
    /// [`TreeError::Parent`] when a parent is not kept before its child, a node occurs twice or does not exist;
    /// [`TreeError::Full`] when `order` exceeds the budget. The tree is unchanged then.
    pub fn keep(&mut self, order: &[NodeId]) -> Result<(), TreeError> {
        if order.len() as u32 > self.budget {
            return Err(TreeError::Full { budget: self.budget });
        }
        let rows = self.tokens.len();
        let place = &mut self.scratch;
        place.clear();
        place.resize(rows, u32::MAX);
        place[ROOT as usize] = ROOT;
        for (i, &node) in order.iter().enumerate() {
            let parent = self.parents.get(node as usize).copied().unwrap_or(u32::MAX);
            let known = place.get(parent as usize).is_some_and(|&p| p != u32::MAX);
            if !known || place[node as usize] != u32::MAX {
                return Err(TreeError::Parent { node: i as u32 + 1, parent });
            }
            place[node as usize] = i as u32 + 1;
        }
        // The kept rows are appended behind the old ones, then the old ones leave: no second set of arrays is needed.
        let was = |origins: &[u32], node: u32| origins.get(node as usize).copied().unwrap_or(node);
        for node in std::iter::once(&ROOT).chain(order) {
            let n = *node as usize;
            self.tokens.push(self.tokens[n]);
            self.parents.push(self.scratch[self.parents[n] as usize]);
            self.depths.push(self.depths[n]);
            self.ranks.push(self.ranks[n]);
            self.scores.push(self.scores[n]);
        }
        let mut origins = std::mem::take(&mut self.scratch);
        origins.clear();
        origins.extend(std::iter::once(&ROOT).chain(order).map(|&n| was(&self.origins, n)));
        self.scratch = std::mem::replace(&mut self.origins, origins);
        self.tokens.drain(..rows);
        self.parents.drain(..rows);
        self.depths.drain(..rows);
        self.ranks.drain(..rows);
        self.scores.drain(..rows);
        self.capacity = self.budget;
        Ok(())
    }

    /// The index that `node` had while the tree was grown: the one under which a conditional drafter knows it (its row of
    /// candidates, its KV). `node` itself for a tree that was never rebuilt.
    #[must_use]
    pub fn origin(&self, node: NodeId) -> NodeId {
        self.origins.get(node as usize).copied().unwrap_or(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_tree() -> Tree {
        let mut tree = Tree::new(9, 2, 3);
        tree.open(5);
        for (parent, token) in [(0, 10), (0, 11), (1, 12), (2, 13)] {
            tree.push(parent, token, 0, -f64::from(token)).unwrap();
        }
        tree
    }

    #[test]
    fn keep_rebuilds_in_the_given_order_and_remembers_where_nodes_were() {
        let mut tree = open_tree();
        assert_eq!(tree.check(false), Err(TreeError::Full { budget: 2 }));
        tree.keep(&[2, 4]).unwrap();
        assert_eq!((tree.tokens(), tree.parents()), (&[9, 11, 13][..], &[0, 0, 1][..]));
        assert_eq!((tree.depths(), tree.scores()), (&[0, 1, 2][..], &[0.0, -11.0, -13.0][..]));
        assert_eq!([0, 1, 2].map(|n| tree.origin(n)), [0, 2, 4]);
        assert_eq!(tree.check(false), Ok(()));
        assert_eq!(tree.push(0, 5, 1, 0.0), Err(TreeError::Full { budget: 2 }), "capacity ends with keep");
        // A second rebuild still names the indices of growth.
        tree.keep(&[1]).unwrap();
        assert_eq!(tree.origin(1), 2);
    }

    #[test]
    fn keep_refuses_what_is_no_tree() {
        for bad in [&[4u32][..], &[4, 2], &[2, 2], &[7], &[0]] {
            let mut tree = open_tree();
            assert!(matches!(tree.keep(bad), Err(TreeError::Parent { .. })), "{bad:?}");
            assert_eq!(tree, open_tree());
        }
        assert_eq!(open_tree().keep(&[1, 2, 3]), Err(TreeError::Full { budget: 2 }));
    }
}
