//! A row's logits are a function of its path alone, bit for bit.

mod common;

use common::{Noise, TARGETS, bits, model};
use treeline_cpu::Scorer;

/// Path of a node, root first.
fn path(node: usize, parents: &[u32]) -> Vec<usize> {
    let mut path = vec![node];
    while path[path.len() - 1] != 0 {
        path.push(parents[path[path.len() - 1]] as usize);
    }
    path.reverse();
    path
}

/// Public fault 18 (a mask that the backend ignores), and 8, 15, 17 with it: every node of trees of 31 … 130 rows equals its
/// path decoded alone, token by token.
#[test]
fn fault_18_tree_rows_equal_their_path_decoded_alone() {
    for name in TARGETS {
        let model = model(name);
        let vocab = model.config().vocab as u32;
        let mut noise = Noise(7);
        for (rows, span, prefix) in [(1, 1, 3), (2, 1, 17), (31, 4, 9), (33, 33, 30), (65, 8, 16), (130, 20, 5)] {
            let (past, tokens) = (noise.tokens(prefix, vocab), noise.tokens(rows, vocab));
            let parents = noise.parents(rows, span);
            let mut tree = Scorer::new(model.clone());
            tree.extend(&past);
            let got = tree.tree(&tokens, &parents);
            let mut plain = Scorer::new(model.clone());
            plain.extend(&past);
            for node in 0..rows {
                plain.truncate(prefix);
                let mut last = Vec::new();
                for n in path(node, &parents) {
                    last = bits(plain.extend(&tokens[n..=n]).row(0));
                }
                assert_eq!(bits(got.row(node)), last, "{name}: node {node} of {rows}");
            }
        }
    }
}

#[test]
fn chunking_of_a_prompt_changes_no_bit() {
    for name in TARGETS {
        let model = model(name);
        let tokens = Noise(3).tokens(150, model.config().vocab as u32);
        let mut whole = Scorer::new(model.clone());
        let want = whole.extend(&tokens);
        for chunk in [1, 2, 7, 16, 33, 64, 149] {
            let mut scorer = Scorer::new(model.clone());
            let mut row = 0;
            for part in tokens.chunks(chunk) {
                for got in scorer.extend(part).rows() {
                    assert_eq!(bits(got), bits(want.row(row)), "{name}: row {row} in chunks of {chunk}");
                    row += 1;
                }
            }
        }
    }
}

/// Public faults 25 and 26: after a scattered path is gathered, the cache continues as a fresh prefill of the same tokens.
#[test]
fn fault_26_commit_and_continue_equals_a_fresh_prefill() {
    for name in TARGETS {
        let model = model(name);
        let vocab = model.config().vocab as u32;
        let mut noise = Noise(11);
        let mut history = noise.tokens(6, vocab);
        let mut scorer = Scorer::new(model.clone());
        scorer.extend(&history);
        for round in 0..12 {
            let rows = 1 + noise.below(40) as usize;
            let (tokens, parents) = (noise.tokens(rows, vocab), noise.parents(rows, 9));
            let logits = scorer.tree(&tokens, &parents);
            let accepted: Vec<u32> =
                path(noise.below(rows as u32) as usize, &parents).into_iter().map(|n| n as u32).collect();
            scorer.commit(&accepted);
            history.extend(accepted.iter().map(|&n| tokens[n as usize]));
            let mut fresh = Scorer::new(model.clone());
            let want = fresh.extend(&history);
            let last = *accepted.last().unwrap() as usize;
            assert_eq!(bits(logits.row(last)), bits(want.row(history.len() - 1)), "{name}: round {round}");
        }
    }
}
