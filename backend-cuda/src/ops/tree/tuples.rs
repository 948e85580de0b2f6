//! The rank tuples that a best-first tree can be made of.

/// Levels that a tuple has ranks for.
const MOST_LEVELS: usize = 16;

/// One prefix by its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Rank at each level, 0 = best; 0 behind the end.
    pub path: [u8; MOST_LEVELS],
    /// Levels.
    pub depth: u32,
}

/// All tuples of at most `levels` ranks (16 at the most) that can be among the `nodes` (256 at the most) best of some draft, in
/// lexicographic order.
///
/// Whatever the draft (its log-probabilities are at most 0 and fall along a row), a tuple comes behind its prefixes and behind
/// every tuple of the same length with no greater rank: behind Σ_j ∏_{i≤j} (rank_i + 1) − 1 others in all.
#[must_use]
pub fn tuples(levels: usize, nodes: usize) -> Vec<Tuple> {
    let mut list = Vec::new();
    let root = Tuple { path: [0; MOST_LEVELS], depth: 0 };
    extend(root, 1, 0, levels.min(MOST_LEVELS) as u32, nodes.min(256), &mut list);
    list
}

/// Adds what begins with `prefix`: `product` = ∏ (rank + 1) of it, `sum` = the sum of those products over its prefixes.
fn extend(prefix: Tuple, product: usize, sum: usize, levels: u32, nodes: usize, list: &mut Vec<Tuple>) {
    if prefix.depth == levels {
        return;
    }
    for rank in 1.. {
        let (product, sum) = (product * rank, sum + product * rank);
        if sum > nodes {
            break;
        }
        let mut tuple = Tuple { depth: prefix.depth + 1, ..prefix };
        tuple.path[prefix.depth as usize] = (rank - 1) as u8;
        list.push(tuple);
        extend(tuple, product, sum, levels, nodes, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_the_list() {
        let length = |levels, nodes| tuples(levels, nodes).len();
        assert_eq!((length(7, 16), length(7, 64)), (285, 6005));
        assert_eq!((length(1, 9), length(3, 1), length(1, 999), length(31, 1)), (9, 1, 256, 1));
    }

    #[test]
    fn the_order_is_lexicographic() {
        let list = tuples(5, 24);
        let ranks = |t: &Tuple| t.path[..t.depth as usize].to_vec();
        // A prefix is less than its extension.
        assert!(list.windows(2).all(|w| ranks(&w[0]) < ranks(&w[1])));
    }
}
