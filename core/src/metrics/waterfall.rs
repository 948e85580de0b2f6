//! Where the tokens went that a perfect tree would have had.
//!
//! Of the `L` depths within reach of one round, counted along the true continuation: the truth is not among the drafter's
//! top W (and everything behind it) → the drafter knew, but no rank-monotone tree of this budget holds the path → such a
//! tree exists, the policy's surrogate chose other nodes → accepted. The hindsight oracle, a tree of the same budget that
//! knows the truth, spends one node a depth.

/// How many leading depths of a path with these 0-based ranks fit into some rank-monotone tree of `budget` nodes: a tree
/// that holds a node also holds every node whose ranks are all at most as large. Such a tree needs Σ_j ∏_{i≤j} ρ_i nodes
/// for 1-based ranks ρ, whatever the scores.
#[must_use]
pub fn reachable(ranks: &[Option<u32>], budget: u32) -> u32 {
    let (mut nodes, mut level) = (0u64, 1u64);
    let mut depth = 0;
    for rank in ranks {
        let Some(rank) = rank else { break };
        level = level.saturating_mul(u64::from(*rank) + 1);
        nodes = nodes.saturating_add(level);
        if nodes > u64::from(budget) {
            break;
        }
        depth += 1;
    }
    depth
}

/// Accepted length of the hindsight oracle tree: the leading depths whose truth the drafter lists, one node each.
#[must_use]
pub fn oracle(ranks: &[Option<u32>], budget: u32) -> u32 {
    leading(ranks).min(budget)
}

fn leading(ranks: &[Option<u32>]) -> u32 {
    ranks.iter().take_while(|r| r.is_some()).count() as u32
}

/// One round's depths by what became of them; the four sum to the depths within reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// The truth (or a token before it) is not in the drafter's row.
    pub unlisted: u32,
    /// No rank-monotone tree of this budget holds the path.
    pub unreachable: u32,
    /// A tree of this budget could have held it.
    pub surrogate: u32,
    /// Accepted.
    pub accepted: u32,
}

impl Loss {
    /// Splits one round: `ranks` are the truth's ranks at every depth within reach (the drafter's depth, cut where the
    /// response ends). A tree that is not rank-monotone may accept beyond [`reachable`]; that counts as accepted.
    #[must_use]
    pub fn of(ranks: &[Option<u32>], budget: u32, accepted: u32) -> Self {
        let depths = ranks.len() as u32;
        let accepted = accepted.min(depths);
        let listed = leading(ranks).max(accepted);
        let reach = reachable(ranks, budget).max(accepted);
        Self { unlisted: depths - listed, unreachable: listed - reach, surrogate: reach - accepted, accepted }
    }
}

/// Sums of [`Loss`] over rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waterfall {
    /// Rounds added.
    pub rounds: u64,
    /// Depths within reach: the sum of the four below.
    pub depths: u64,
    /// As [`Loss::unlisted`].
    pub unlisted: u64,
    /// As [`Loss::unreachable`].
    pub unreachable: u64,
    /// As [`Loss::surrogate`].
    pub surrogate: u64,
    /// As [`Loss::accepted`].
    pub accepted: u64,
    /// What the hindsight oracle would have accepted.
    pub oracle: u64,
}

impl Waterfall {
    /// Adds one round; arguments as [`Loss::of`].
    pub fn add(&mut self, ranks: &[Option<u32>], budget: u32, accepted: u32) {
        let loss = Loss::of(ranks, budget, accepted);
        self.rounds += 1;
        self.depths += ranks.len() as u64;
        self.unlisted += u64::from(loss.unlisted);
        self.unreachable += u64::from(loss.unreachable);
        self.surrogate += u64::from(loss.surrogate);
        self.accepted += u64::from(loss.accepted);
        self.oracle += u64::from(oracle(ranks, budget));
    }

    /// τ of the hindsight oracle on the same rounds, bonus included; `None` without a round.
    #[must_use]
    pub fn oracle_tau(&self) -> Option<f64> {
        (self.rounds > 0).then(|| 1.0 + self.oracle as f64 / self.rounds as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The counts that the DDTree candidate set has for 7 levels.
    #[test]
    fn reachable_counts_the_published_candidate_sets() {
        fn count(path: &mut Vec<Option<u32>>, levels: usize, budget: u32) -> usize {
            let mut found = 0;
            for rank in 0..budget {
                path.push(Some(rank));
                if reachable(path, budget) == path.len() as u32 {
                    found += 1;
                    if path.len() < levels {
                        found += count(path, levels, budget);
                    }
                }
                path.pop();
            }
            found
        }
        assert_eq!(count(&mut Vec::new(), 7, 16), 285);
        assert_eq!(count(&mut Vec::new(), 7, 64), 6005);
    }

    #[test]
    fn categories_by_hand() {
        let ranks = [Some(0), Some(1), Some(0), None, Some(0)];
        // 1 + 2 + 2 = 5 nodes hold the three listed depths.
        let of = |budget, accepted| {
            let l = Loss::of(&ranks, budget, accepted);
            (l.unlisted, l.unreachable, l.surrogate, l.accepted)
        };
        assert_eq!(of(5, 3), (2, 0, 0, 3));
        assert_eq!(of(5, 1), (2, 0, 2, 1));
        assert_eq!(of(4, 1), (2, 1, 1, 1));
        assert_eq!(of(2, 0), (2, 2, 1, 0));
        assert_eq!(of(0, 0), (2, 3, 0, 0));
        assert_eq!(oracle(&ranks, 2), 2);
        assert_eq!(oracle(&ranks, 9), 3);
    }

    proptest! {
        /// Nothing is lost and nothing counted twice, whatever the tree accepted; the oracle bounds every tree.
        #[test]
        fn categories_sum_to_the_depths(
            ranks in prop::collection::vec(prop::option::weighted(0.8, 0u32..8), 0..16),
            budget in 0u32..70,
            part in 0.0f64..1.0,
        ) {
            let accepted = (part * f64::from(oracle(&ranks, budget) + 1)) as u32;
            let l = Loss::of(&ranks, budget, accepted);
            prop_assert_eq!(l.accepted, accepted);
            prop_assert_eq!((l.unlisted + l.unreachable + l.surrogate + l.accepted) as usize, ranks.len());
            prop_assert!(reachable(&ranks, budget) <= oracle(&ranks, budget));
            prop_assert!(reachable(&ranks, budget) <= reachable(&ranks, budget + 1));
        }
    }
}
