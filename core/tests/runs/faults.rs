//! Public faults of tree-speculation engines, by their number. Each check passes on the real code and fails on a seeded
//! fault: of the scripted engine, or of a wrong version of one function given here.

use super::common::{VOCAB, exact, play, requests};
use treeline_core::draft::top_ranks;
use treeline_core::sampling::argmax;
use treeline_core::stream::unit;
use treeline_core::testing::{Script, Seeded, Shape};
use treeline_core::{AncestorMask, Candidate, Fault, Law, Sampling, Tree, TreeBuilder, TreeError};

const WARM: Sampling = Sampling { temperature: 0.7, top_k: 0, top_p: 1.0 };

/// Whether runs of every shape and batch emit what plain decoding emits, with `seeded` in the engine.
fn exact_with(seeded: Seeded) -> bool {
    exact(&Script { noise: 1.0, seeded, ..Script::new(VOCAB) }, &Law::SampleMatch { seed: 3 }, WARM)
}

#[test]
fn fault_01_absent_parents_and_cycles_are_errors() {
    type Build = fn(&[u32]) -> Result<Tree, TreeError>;
    let check = |build: Build| {
        let good = [0, 0, 1, 1, 0];
        let bad: [&[u32]; 4] = [&[0, 2, 1], &[0, 1], &[0, 0, 7], &[0, 0, u32::MAX]];
        build(&good).is_ok() && bad.iter().all(|parents| build(parents).is_err())
    };
    let tokens = |parents: &[u32]| (0..parents.len() as u32).collect::<Vec<_>>();
    let real: Build = |parents| Tree::from_arrays(&(0..parents.len() as u32).collect::<Vec<_>>(), parents, &[], &[]);
    assert!(check(real));
    // Control: one entry too few is looked at.
    let short: Build = |parents| {
        let short = &parents[..parents.len() - 1];
        Tree::from_arrays(&(0..short.len() as u32).collect::<Vec<_>>(), short, &[], &[])
    };
    assert!(!check(short));
    // Parents that are missing altogether.
    assert!(Tree::from_arrays(&tokens(&[0, 0, 0]), &[0], &[], &[]).is_err());
}

#[test]
fn fault_02_a_nan_draft_row_fails_that_request_alone() {
    let check = |seeded| {
        let list = requests(3, 20, Sampling::GREEDY);
        let at = list[1].prompt.len() as u32 + 6;
        let script = Script { nan_draft: Some((1, at)), seeded, ..Script::new(VOCAB) };
        let (_, responses, _) = play(&script, &Shape::chain(4), &list, &Law::Greedy, 4, 3);
        let failed: Vec<u64> = responses.iter().filter(|r| r.end.is_err()).map(|r| r.request).collect();
        failed == [1] && matches!(responses[1].end, Err(Fault::Draft { .. }))
    };
    assert!(check(Seeded::Nothing));
    assert!(!check(Seeded::NanDraft));
}

#[test]
fn fault_04_a_shorter_request_sees_nothing_beyond_its_length() {
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::Padded));
}

#[test]
fn fault_05_minus_infinity_never_becomes_a_node() {
    type Top = fn(&[f32], usize) -> Vec<Candidate>;
    let check = |top: Top| {
        let row = top(&[f32::NEG_INFINITY, -0.5, f32::NEG_INFINITY, -1.0, f32::NEG_INFINITY], 4);
        let mut tree = Tree::new(0, 8, 2);
        let mut builder = TreeBuilder::new(&mut tree);
        for (rank, &candidate) in row.iter().enumerate() {
            builder.add(0, rank as u32, candidate).unwrap();
        }
        // A best-first search steps to the next sibling by − log q(r) + log q(r + 1).
        let steps = row.windows(2).map(|w| w[0].logp - w[0].logp - w[0].logp + w[1].logp);
        tree.nodes() == 2 && tree.scores().iter().all(|s| s.is_finite()) && steps.into_iter().all(|s| !s.is_nan())
    };
    assert!(check(|row, width| {
        let mut out = Vec::new();
        top_ranks(row, width, 1, &mut out).unwrap();
        out
    }));
    // Control: the plain top-k keeps what is impossible.
    assert!(!check(|row, width| {
        let mut all: Vec<Candidate> = (0..).zip(row).map(|(token, &logp)| Candidate { token, logp }).collect();
        all.sort_by(|a, b| b.logp.total_cmp(&a.logp));
        all.truncate(width);
        all
    }));
}

#[test]
fn fault_06_ties_go_to_the_first_maximum_everywhere() {
    let check = |max: fn(&[f32]) -> u32| max(&[1.0, 1.0, 0.0]) == 0 && max(&[0.0, 2.0, 2.0]) == 1;
    assert!(check(|x| argmax(x, 0).unwrap()));
    assert!(check(|x| {
        let mut out = Vec::new();
        top_ranks(x, 2, 1, &mut out).unwrap();
        out[0].token
    }));
    // Control: `max_by` keeps the last.
    assert!(!check(|x| (0..3).max_by(|&a, &b| x[a as usize].total_cmp(&x[b as usize])).unwrap()));
}

#[test]
fn fault_07_an_all_nan_target_row_fails_loudly() {
    let check = |seeded| {
        let list = requests(2, 20, WARM);
        let at = list[0].prompt.len() as u32 + 5;
        let script = Script { nan_target: Some((0, at)), seeded, ..Script::new(VOCAB) };
        let law = Law::SampleMatch { seed: 3 };
        let (_, responses, _) = play(&script, &Shape::chain(4), &list, &law, 4, 2);
        matches!(responses[0].end, Err(Fault::TargetLogits { .. })) && responses[1].end.is_ok()
    };
    assert!(check(Seeded::Nothing));
    assert!(!check(Seeded::NanIsZero));
}

#[test]
fn fault_08_a_rows_position_is_its_depth_not_its_slot() {
    let mut tree = Tree::new(9, 3, 2);
    let a = tree.push(0, 1, 0, 0.0).unwrap();
    let b = tree.push(0, 2, 1, 0.0).unwrap();
    assert_eq!((a, b, tree.push(b, 3, 0, 0.0)), (1, 2, Ok(3)));
    let start = 100;
    let positions: Vec<u32> = tree.depths().iter().map(|d| start + d).collect();
    assert_eq!(positions, [100, 101, 101, 102]);
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::SlotPositions));
}

#[test]
fn fault_09_a_tree_of_width_1_is_the_chain() {
    let check = |parents: fn(u32) -> Vec<u32>| {
        let mask = AncestorMask::of(&parents(70));
        (0..70).all(|row| (0..70).all(|column| mask.sees(row, column) == (column <= row)))
    };
    let chain: fn(u32) -> Vec<u32> = |rows| {
        let mut tree = Tree::new(0, rows - 1, rows);
        (0..rows - 1).for_each(|node| assert_eq!(tree.push(node, node, 0, 0.0), Ok(node + 1)));
        tree.parents().to_vec()
    };
    assert!(check(chain));
    // Control: a star of the same size.
    assert!(!check(|rows| vec![0; rows as usize]));
}

#[test]
fn fault_10_index_0_is_the_root() {
    // A drafter that knows the target: seven accepted and the bonus, as long as the response lasts.
    let tau = |seeded| {
        let list = requests(3, 33, Sampling::GREEDY);
        let script = Script { noise: 0.0, seeded, ..Script::new(VOCAB) };
        let (_, _, entries) = play(&script, &Shape::chain(7), &list, &Law::Greedy, 7, 3);
        entries.iter().map(|e| e.result.as_ref().unwrap().emitted.len()).sum::<usize>() as f64 / entries.len() as f64
    };
    assert_eq!(tau(Seeded::Nothing), 8.0);
    assert!(tau(Seeded::OffByOne) < 2.0);
    assert!(!exact_with(Seeded::OffByOne));
}

/// 12 and 13: a buffer that held larger trees, poisoned or stale, gives the mask of the tree at hand.
#[test]
fn fault_13_a_rebuilt_mask_keeps_no_stale_bits() {
    let star = |rows: usize| vec![0u32; rows];
    let chain = |rows: u32| (0..rows).map(|r| r.saturating_sub(1)).collect::<Vec<u32>>();
    let sequence = [chain(130), star(5), chain(3), star(65), chain(64), star(1), star(130)];
    let check = |rebuild: &mut dyn FnMut(&[u32]) -> Vec<Vec<usize>>| {
        sequence.iter().all(|parents| rebuild(parents) == columns(&AncestorMask::of(parents)))
    };
    let mut mask = AncestorMask::default();
    assert!(check(&mut |parents| {
        mask.rebuild(parents);
        columns(&mask)
    }));
    // Control: bits are only ever set.
    let mut stale = vec![vec![false; 130]; 130];
    assert!(!check(&mut |parents| {
        let fresh = AncestorMask::of(parents);
        let rows = 0..parents.len();
        rows.map(|row| {
            fresh.columns(row).for_each(|column| stale[row][column] = true);
            (0..parents.len()).filter(|&column| stale[row][column]).collect()
        })
        .collect()
    }));
}

fn columns(mask: &AncestorMask) -> Vec<Vec<usize>> {
    (0..mask.rows()).map(|row| mask.columns(row).collect()).collect()
}

#[test]
fn fault_15_masks_of_any_row_count() {
    let check = |sees: fn(&AncestorMask, usize, usize) -> bool| {
        [31, 32, 33, 63, 64, 65, 128].iter().all(|&rows| {
            // Row n hangs under n/2: depth 7 at 128 rows.
            let parents: Vec<u32> = (0..rows as u32).map(|n| n / 2).collect();
            let mask = AncestorMask::of(&parents);
            (0..rows).all(|row| {
                let mut at = row;
                let mut above = vec![row];
                while at != 0 {
                    at = parents[at] as usize;
                    above.push(at);
                }
                (0..rows).all(|column| sees(&mask, row, column) == above.contains(&column))
            })
        })
    };
    assert!(check(AncestorMask::sees));
    // Control: one word of 32 bits a row.
    assert!(!check(|mask, row, column| mask.row(row)[0] >> (column % 32) & 1 == 1));
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::Bits32));
}

#[test]
fn fault_16_trees_of_different_size_in_one_batch() {
    // Requests end at different tokens, so trees of a batch differ near the ends; 16's stride shows there.
    assert!(exact_uneven(Seeded::Nothing));
    assert!(!exact_uneven(Seeded::Stride));
}

/// Like [`exact_with`], with length limits that make the caps of a batch differ.
fn exact_uneven(seeded: Seeded) -> bool {
    let script = Script { seeded, ..Script::new(VOCAB) };
    let law = Law::SampleMatch { seed: 3 };
    let mut list = requests(6, 30, WARM);
    list.iter_mut().for_each(|r| r.max_new = 5 + r.id as u32 * 3);
    let shape = Shape::widths(&[2, 2, 1]);
    let (_, responses, _) = play(&script, &shape, &list, &law, shape.nodes(), 3);
    responses.iter().zip(&list).all(|(r, request)| r.tokens == super::common::plain(&script, request, 3))
}

#[test]
fn fault_17_siblings_do_not_see_each_other() {
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::Causal));
}

#[test]
fn fault_20_no_coin_accepts_the_impossible() {
    let check = |coin: fn(u32, f64) -> bool| [0, 1, u32::MAX].iter().all(|&bits| !coin(bits, 0.0) && coin(bits, 1.0));
    assert!(check(|bits, p| unit(bits) < p));
    // Control: the usual uniform in [0, 1), compared with ≤.
    assert!(!check(|bits, p| f64::from(bits) / 4_294_967_296.0 <= p));
}

#[test]
fn fault_21_bonus_and_accepted_path_of_each_request_are_its_own() {
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::BonusStride));
}

#[test]
fn fault_26_the_accepted_path_is_gathered() {
    assert!(exact_with(Seeded::Nothing));
    assert!(!exact_with(Seeded::Scattered));
}
