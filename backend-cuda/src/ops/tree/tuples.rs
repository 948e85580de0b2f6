//! The rank tuples that a best-first tree can be made of.

/// Deepest level whose ranks fit a tuple's bytes.
const MOST_LEVELS: usize = 16;

/// One prefix by its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Rank at each level, 0 = best; 0 behind the end.
    pub path: [u8; MOST_LEVELS],
    /// Levels.
    pub depth: u32,
    /// Index of the prefix without the last rank; `u32::MAX` = the root.
    pub parent: u32,
}

/// All tuples of at most `levels` ranks that can be among the `nodes` best of some draft, in lexicographic order, a prefix
/// before its extensions. `None` when there are more than `most`, or their ranks do not fit a byte.
///
/// Whatever the draft (its log-probabilities are at most 0 and fall along a row), a tuple comes behind its prefixes and behind
/// every tuple of the same length with no greater rank: behind Σ_j ∏_{i≤j} (rank_i + 1) − 1 others in all.
#[must_use]
pub fn tuples(levels: usize, nodes: usize, most: usize) -> Option<Vec<Tuple>> {
    if levels > MOST_LEVELS || nodes > 256 {
        return None;
    }
    let mut list = Vec::new();
    let root = Tuple { path: [0; MOST_LEVELS], depth: 0, parent: u32::MAX };
    extend(root, u32::MAX, 1, 0, &Bounds { levels: levels as u32, nodes, most }, &mut list).then_some(list)
}

struct Bounds {
    levels: u32,
    nodes: usize,
    most: usize,
}

/// Adds what begins with `prefix` (list index `at`): `product` = ∏ (rank + 1) of it, `sum` = the sum of those products.
fn extend(prefix: Tuple, at: u32, product: usize, sum: usize, bounds: &Bounds, list: &mut Vec<Tuple>) -> bool {
    if prefix.depth == bounds.levels {
        return true;
    }
    for rank in 1.. {
        let (product, sum) = (product * rank, sum + product * rank);
        if sum > bounds.nodes {
            break;
        }
        if list.len() == bounds.most {
            return false;
        }
        let mut tuple = Tuple { depth: prefix.depth + 1, parent: at, ..prefix };
        tuple.path[prefix.depth as usize] = (rank - 1) as u8;
        let own = list.len() as u32;
        list.push(tuple);
        if !extend(tuple, own, product, sum, bounds, list) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_the_list() {
        let length = |levels, nodes| tuples(levels, nodes, usize::MAX).unwrap().len();
        assert_eq!((length(7, 16), length(7, 64)), (285, 6005));
        assert_eq!((length(1, 9), length(3, 1)), (9, 1));
        assert_eq!((tuples(7, 64, 6004), tuples(17, 2, 100), tuples(2, 257, 10_000)), (None, None, None));
    }

    #[test]
    fn parents_come_first_and_the_order_is_lexicographic() {
        let list = tuples(5, 24, usize::MAX).unwrap();
        let ranks = |t: &Tuple| t.path[..t.depth as usize].to_vec();
        for (i, t) in list.iter().enumerate() {
            match t.depth {
                1 => assert_eq!(t.parent, u32::MAX),
                d => assert_eq!(ranks(&list[t.parent as usize]), ranks(t)[..d as usize - 1]),
            }
            assert!(i == 0 || ranks(&list[i - 1]) < ranks(t), "a prefix is less than its extension");
        }
    }
}
