//! Trees from anything: what is built is a tree, and what is no tree is an error.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use treeline_core::draft::{check_row, top_ranks};
use treeline_core::metrics::looped;
use treeline_core::{AncestorMask, Candidate, Tree, TreeError};

proptest! {
    /// Pushes under arbitrary parents: refused ones leave the tree alone, the rest is prefix-closed, parents first, within
    /// its limits; cutting it anywhere leaves a tree.
    #[test]
    fn pushes_keep_a_tree(
        pushes in prop::collection::vec((0u32..40, 0u32..5), 0..60),
        budget in 0u32..40,
        limit in 0u32..8,
        cut in 0u32..50,
    ) {
        let mut tree = Tree::new(7, budget, limit);
        for (parent, token) in pushes {
            let before = tree.clone();
            match tree.push(parent, token, 0, -1.0) {
                Ok(node) => prop_assert_eq!(node, before.rows()),
                Err(TreeError::Parent { .. }) => prop_assert!(parent >= before.rows()),
                Err(TreeError::Full { .. }) => prop_assert_eq!(before.nodes(), budget),
                Err(TreeError::TooDeep { .. }) => prop_assert_eq!(before.depths()[parent as usize], limit),
                Err(e) => prop_assert!(false, "{}", e),
            }
            prop_assert!(tree.rows() - before.rows() <= 1);
        }
        prop_assert_eq!(tree.check(true), Ok(()));
        let mask = tree.mask();
        for node in 0..tree.rows() {
            let mut seen: Vec<usize> = tree.path(node).iter().map(|&n| n as usize).collect();
            seen.insert(0, 0);
            prop_assert_eq!(mask.columns(node as usize).collect::<Vec<_>>(), seen);
        }
        let rows = tree.rows();
        tree.truncate(cut);
        prop_assert_eq!(tree.rows(), rows.min(cut.max(1)));
        prop_assert_eq!(tree.check(true), Ok(()));
    }

    /// Arrays from elsewhere, of any content and length: a tree that checks, or an error; never a panic or a hang.
    #[test]
    fn arrays_from_elsewhere(
        tokens in prop::collection::vec(0u32..6, 0..20),
        parents in prop::collection::vec(prop_oneof![0u32..20, Just(u32::MAX)], 0..20),
        scores in prop::collection::vec(prop::num::f64::ANY, 0..20),
    ) {
        match Tree::from_arrays(&tokens, &parents, &[], &scores) {
            Ok(tree) => {
                prop_assert_eq!(tree.check(false), Ok(()));
                prop_assert_eq!(tree.rows() as usize, tokens.len().max(1));
                prop_assert_eq!(AncestorMask::of(tree.parents()).rows() as u32, tree.rows());
            }
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }

    /// The best ranks are those of a full sort, for any row without NaN; with one, its token is named.
    #[test]
    fn ranks_are_those_of_a_full_sort(
        mut row in prop::collection::vec(prop_oneof![-9i8..0, Just(-128)], 1..300),
        width in 0usize..70,
        nan in prop::option::of(0usize..300),
    ) {
        row.iter_mut().for_each(|x| *x /= 2);
        let mut logp: Vec<f32> =
            row.iter().map(|&x| if x == -64 { f32::NEG_INFINITY } else { f32::from(x) }).collect();
        if let Some(slot) = nan.and_then(|at| logp.get_mut(at)) {
            *slot = f32::NAN;
        }
        let mut got = Vec::new();
        let made = top_ranks(&logp, width, 1, &mut got);
        prop_assert_eq!(made.is_err(), logp.iter().any(|x| x.is_nan()));
        if made.is_err() {
            return Ok(());
        }
        let mut all: Vec<Candidate> = (0..).zip(&logp).map(|(token, &logp)| Candidate { token, logp }).collect();
        all.retain(|c| c.logp > f32::NEG_INFINITY);
        all.sort_by(|a, b| b.logp.total_cmp(&a.logp));
        all.truncate(width);
        prop_assert_eq!(&got, &all);
        prop_assert_eq!(check_row(&got, 1, true, true), Ok(()));
    }

    /// A tail of any period up to 32 is found, whatever comes before.
    #[test]
    fn loops_are_found(head in prop::collection::vec(0u32..9, 32..90), period in prop::collection::vec(0u32..9, 1..33)) {
        let tokens: Vec<u32> = head.iter().chain(period.iter().cycle().take(64)).copied().collect();
        prop_assert_eq!(looped(&tokens), Some(true));
    }
}
