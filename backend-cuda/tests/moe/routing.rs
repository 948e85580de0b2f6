//! Routing: every kind of router against f64, and where it is delicate: ties, NaN, forced experts, padding, and the lists of picks by expert.

use crate::reference::{route, run_router};
use treeline_checkpoint::Router as Kind;
use treeline_cuda::device::Ptr;
use treeline_cuda::ops::moe::Router;
use treeline_cuda::testing::{Numbers, gpus};

const SIGMOID: Kind = Kind::Sigmoid { n_group: 1, topk_group: 1, norm_topk: true, scaling: 2.5 };
const SOFTMAX: Kind = Kind::Softmax { norm_topk: true };

fn ids(picks: &[(i32, f32)]) -> Vec<i32> {
    picks.iter().map(|p| p.0).collect()
}

#[test]
fn router_agrees_with_f64() {
    let sigmoid = |n_group, topk_group, norm_topk| Kind::Sigmoid { n_group, topk_group, norm_topk, scaling: 2.827 };
    let cases = [
        (384, 8, sigmoid(1, 1, true), 65),
        (256, 8, sigmoid(8, 4, true), 20),
        (96, 5, sigmoid(4, 2, false), 3),
        (128, 4, SOFTMAX, 257),
        (33, 3, Kind::Softmax { norm_topk: false }, 9),
        (4, 4, SOFTMAX, 1),
    ];
    for (experts, top_k, kind, rows) in cases {
        let mut numbers = Numbers(experts as u64);
        let logits = numbers.floats(rows * experts, 4.0);
        let bias = numbers.floats(experts, 0.2);
        let seq: Vec<i32> = (0..rows).map(|r| if r % 5 == 4 { -1 } else { 0 }).collect();
        for gpu in gpus() {
            let router = Router::new(&gpu, experts, top_k, &kind, rows).unwrap();
            let routed = run_router(&gpu, &router, top_k, &seq, &logits, Some(&bias), None);
            let mut seen = vec![false; experts];
            for (row, picks) in routed.picks(&gpu).chunks_exact(top_k).enumerate() {
                if seq[row] < 0 {
                    assert!(picks.iter().all(|&(e, w)| e == -1 && w == 0.0), "padding is routed: {picks:?}");
                    continue;
                }
                let want = route(&kind, top_k, &bias, &logits[row * experts..(row + 1) * experts]);
                for ((e, w), (want_e, want_w)) in picks.iter().zip(&want) {
                    seen[*e as usize] = true;
                    assert_eq!(e, want_e, "{kind:?} row {row}: {picks:?} {want:?}");
                    assert!((f64::from(*w) - want_w).abs() <= 1e-5 * want_w.abs(), "{kind:?}: {w} {want_w}");
                }
            }
            assert_eq!(routed.distinct(&gpu) as usize, seen.iter().filter(|s| **s).count());
        }
    }
}

#[test]
fn equal_scores_go_to_the_smaller_id() {
    let mut logits = vec![0.0f32; 3 * 40];
    // Row 0: all equal. Row 1: two best, the rest equal. Row 2: -0 equals 0.
    logits[40 + 33] = 1.0;
    logits[40 + 7] = 1.0;
    logits[80..120].iter_mut().step_by(2).for_each(|x| *x = -0.0);
    let bias = vec![0.0f32; 40];
    for gpu in gpus() {
        for kind in [SIGMOID, SOFTMAX] {
            let router = Router::new(&gpu, 40, 4, &kind, 3).unwrap();
            let routed = run_router(&gpu, &router, 4, &[0, 0, 0], &logits, Some(&bias), None);
            let picks = routed.picks(&gpu);
            assert_eq!(ids(&picks), [0, 1, 2, 3, 0, 1, 7, 33, 0, 1, 2, 3], "{kind:?}");
        }
    }
}

/// Unusable scores come last, but never twice.
#[test]
fn nan_still_gives_distinct_experts() {
    let mut logits = vec![f32::NAN; 3 * 40];
    // Row 1: three usable. Row 2: one NaN only.
    [21, 39, 2].iter().for_each(|&e| logits[40 + e] = 0.5);
    logits[80..].fill(0.25);
    logits[80] = f32::NAN;
    let bias = vec![0.0f32; 40];
    for gpu in gpus() {
        let router = Router::new(&gpu, 40, 5, &SIGMOID, 3).unwrap();
        let routed = run_router(&gpu, &router, 5, &[0, 0, 0], &logits, Some(&bias), None);
        let picks = routed.picks(&gpu);
        assert_eq!(ids(&picks), [0, 1, 2, 3, 4, 0, 1, 2, 21, 39, 1, 2, 3, 4, 5]);
        assert!(picks[..10].iter().all(|p| p.1.is_nan()), "NaN weights are hidden");
        assert!(picks[10..].iter().all(|p| (p.1 - 0.5).abs() < 1e-6));
        let router = Router::new(&gpu, 40, 5, &SOFTMAX, 3).unwrap();
        let routed = run_router(&gpu, &router, 5, &[0, 0, 0], &logits, None, None);
        assert_eq!(ids(&routed.picks(&gpu)), [0, 1, 2, 3, 4].repeat(3));
        assert_eq!(routed.distinct(&gpu), 5);
    }
}

/// Forced experts get the weights that their scores give; a row that cannot be forced routes itself.
#[test]
fn forced_experts_are_weighted_by_their_scores() {
    let (experts, top_k, rows) = (64, 4, 6);
    let mut numbers = Numbers(5);
    let logits = numbers.floats(rows * experts, 2.0);
    let bias = numbers.floats(experts, 0.5);
    let mut forced: Vec<i32> = (0..rows).flat_map(|r| [60 - r as i32, 3, 17, r as i32 + 20]).collect();
    forced[4 * 3 + 1] = 64; // row 3: out of range
    forced[4 * 4] = forced[4 * 4 + 2]; // row 4: the same expert twice
    let score = |row: usize, e: i32| 1.0 / (1.0 + (-f64::from(logits[row * experts + e as usize])).exp());
    for gpu in gpus() {
        let router = Router::new(&gpu, experts, top_k, &SIGMOID, rows).unwrap();
        let routed = run_router(&gpu, &router, top_k, &[0; 6], &logits, Some(&bias), Some(&forced));
        for (row, picks) in routed.picks(&gpu).chunks_exact(top_k).enumerate() {
            let want: Vec<(i32, f64)> = if row == 3 || row == 4 {
                route(&SIGMOID, top_k, &bias, &logits[row * experts..(row + 1) * experts])
            } else {
                let mut own = forced[row * top_k..(row + 1) * top_k].to_vec();
                own.sort_unstable();
                let sum: f64 = own.iter().map(|&e| score(row, e)).sum();
                own.iter().map(|&e| (e, score(row, e) / sum * 2.5)).collect()
            };
            for ((e, w), (want_e, want_w)) in picks.iter().zip(&want) {
                assert_eq!(e, want_e, "row {row}: {picks:?} {want:?}");
                assert!((f64::from(*w) - want_w).abs() < 1e-5, "row {row}: {w} {want_w}");
            }
        }
    }
}

/// The lists hold each pick of real rows once, by ascending expert, at most eight a segment; padding is neither listed nor
/// counted. Negative control: the same rows without padding count more.
#[test]
fn lists_hold_every_pick_once_and_no_padding() {
    let (experts, top_k) = (48usize, 3usize);
    for rows in [1usize, 2, 31, 64, 257] {
        let mut numbers = Numbers(rows as u64);
        let logits = numbers.floats(rows * experts, 3.0);
        let seq: Vec<i32> = (0..rows).map(|r| if r % 4 == 3 { -1 } else { 0 }).collect();
        for gpu in gpus() {
            let router = Router::new(&gpu, experts, top_k, &SOFTMAX, rows).unwrap();
            // Twice: the second finds what the first left.
            for _ in 0..2 {
                let routed = run_router(&gpu, &router, top_k, &seq, &logits, None, None);
                let lists = router.dispatch();
                let counts: Vec<u32> = gpu.read(lists.counts, 3).unwrap();
                let words: Vec<u32> = gpu.read(lists.segments, counts[0] as usize * 12).unwrap();
                let (mut listed, mut last) = (Vec::new(), 0);
                let mut used = vec![0usize; experts];
                for segment in words.chunks_exact(12) {
                    let [expert, count] = [segment[0], segment[1]];
                    assert!((1..=8).contains(&count) && expert >= last);
                    last = expert;
                    used[expert as usize] += count as usize;
                    listed.extend(segment[4..].iter().take(count as usize).map(|pick| (*pick, expert as i32)));
                }
                let picks = routed.picks(&gpu);
                let mut want: Vec<(u32, i32)> =
                    (0..rows * top_k).filter(|i| seq[i / top_k] >= 0).map(|i| (i as u32, picks[i].0)).collect();
                listed.sort_unstable();
                want.sort_unstable();
                assert_eq!(listed, want);
                assert_eq!(counts[1] as usize, want.len());
                assert_eq!(counts[0] as usize, used.iter().map(|n| n.div_ceil(8)).sum::<usize>());
                let distinct = used.iter().filter(|n| **n > 0).count() as u32;
                assert_eq!((counts[2], routed.distinct(&gpu)), (distinct, distinct));
                if rows == 31 {
                    let whole = run_router(&gpu, &router, top_k, &vec![0; rows], &logits, None, None);
                    assert!(whole.distinct(&gpu) > distinct, "the count does not depend on padding at all");
                }
            }
        }
    }
}

#[test]
fn impossible_routers_are_refused() {
    for gpu in gpus() {
        assert!(Router::new(&gpu, 4, 5, &SOFTMAX, 1).is_err());
        assert!(Router::new(&gpu, 64, 33, &SOFTMAX, 1).is_err());
        let groups = Kind::Sigmoid { n_group: 3, topk_group: 1, norm_topk: true, scaling: 1.0 };
        assert!(Router::new(&gpu, 64, 4, &groups, 1).is_err());
        let router = Router::new(&gpu, 8, 2, &SOFTMAX, 2).unwrap();
        assert_ne!(router.dispatch().segments, Ptr::NULL);
    }
}
