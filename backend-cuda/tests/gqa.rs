//! Grouped-query attention of ragged trees against f64, on every form; and what must not change its result.

#![allow(clippy::print_stderr, reason = "a test says what it found")]

mod gqa_reference;
mod typed;

use gqa_reference::{Kind, Pass, Seq, tree};
use treeline_cuda::device::{Dtype, Gpu, Ptr};
use treeline_cuda::ops::gqa_attend::{GqaForm, GqaShape};
use treeline_cuda::ops::rows::{Bucket, RowPlan};
use treeline_cuda::testing::{Numbers, gpus};
use typed::worst;

const SMALL: GqaShape = GqaShape { heads: 8, kv_heads: 2, head_dim: 64 };

/// Every way to compute a pass of this type and shape: form, tile, multiprocessors to share it among.
fn ways(gpu: &Gpu, dtype: Dtype, shape: GqaShape) -> Vec<(GqaForm, Option<usize>, u32)> {
    let tiles = |form: GqaForm| -> &[(usize, u32)] {
        match form {
            GqaForm::Any => &[],
            GqaForm::Portable => &[(0, 9), (1, 8), (2, 1)],
            GqaForm::Hopper => &[(2, 11), (3, 1), (4, 7)],
        }
    };
    let of = |form: GqaForm| tiles(form).iter().map(move |&(h, sms)| (form, Some(h), sms)).chain([(form, None, 13)]);
    GqaForm::all(gpu, dtype, shape).into_iter().flat_map(of).collect()
}

fn limit(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-5 } else { 1e-2 }
}

/// Compares one pass in every form with f64.
fn check(gpu: &Gpu, pass: &Pass, more_rows: u32, more_seqs: u32) {
    let want = pass.reference();
    for (form, height, sms) in ways(gpu, pass.dtype, pass.shape) {
        let got = pass.on(gpu, form, sms, pass.bucket(more_rows, more_seqs)).run(height);
        let error = worst(&got, &want, pass.shape.head_dim);
        let sizes: Vec<(u32, usize)> = pass.seqs.iter().map(|s| (s.start, s.rows())).collect();
        assert!(error <= limit(pass.dtype), "{form:?} {height:?} {sms} {:?} {sizes:?}: {error:e}", pass.shape);
    }
}

fn seq(numbers: &mut Numbers, start: u32, rows: usize) -> Seq {
    Seq { start, kind: tree(numbers, rows) }
}

#[test]
fn trees_of_all_sizes_match_f64() {
    let mut numbers = Numbers(1);
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (start, rows) in
                [(0, 1), (1, 31), (63, 32), (64, 33), (65, 63), (1000, 64), (0, 65), (127, 128), (300, 257)]
            {
                let pass = Pass::new(numbers.bits(), dtype, SMALL, &[seq(&mut numbers, start, rows)]);
                check(&gpu, &pass, 2, 1);
            }
        }
    }
}

#[test]
fn ragged_batches_and_other_shapes_match_f64() {
    let mut numbers = Numbers(2);
    let shapes = [
        GqaShape { heads: 8, kv_heads: 1, head_dim: 128 },
        GqaShape { heads: 4, kv_heads: 4, head_dim: 64 },
        GqaShape { heads: 6, kv_heads: 2, head_dim: 128 },
        GqaShape { heads: 6, kv_heads: 2, head_dim: 24 },
        GqaShape { heads: 3, kv_heads: 1, head_dim: 10 },
    ];
    for gpu in gpus() {
        for (dtype, shape) in shapes.iter().flat_map(|s| [(Dtype::F32, *s), (Dtype::Bf16, *s)]) {
            let seqs = [
                seq(&mut numbers, 200, 17),
                seq(&mut numbers, 0, 1),
                Seq { start: 77, kind: Kind::Causal(40) },
                seq(&mut numbers, 3, 9),
                Seq { start: 129, kind: Kind::Block(8) },
            ];
            check(&gpu, &Pass::new(numbers.bits(), dtype, shape, &seqs), 5, 2);
        }
    }
}

#[test]
fn many_sequences_match_f64() {
    let mut numbers = Numbers(3);
    let seqs: Vec<Seq> = (0..37).map(|i| seq(&mut numbers, 11 * (i % 7), 1 + i as usize % 3)).collect();
    for gpu in gpus() {
        check(&gpu, &Pass::new(3, Dtype::Bf16, SMALL, &seqs), 0, 3);
    }
}

/// Public fault 19: windows go by position. Six siblings behind a root share one position, so a window of four still shows
/// each the root and three tokens of the past less one for its own.
#[test]
fn fault_19_windows_go_by_position() {
    let siblings = Kind::Tree(vec![0; 7]);
    let chain = Kind::Tree((0..9u32).map(|i| i.saturating_sub(1)).collect());
    let mut numbers = Numbers(4);
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (window, tail) in [(4, true), (4, false), (1, true), (100, true), (64, false), (2, false)] {
                for start in [2, 70, 200] {
                    let kinds = [siblings.clone(), chain.clone(), tree(&mut numbers, 20), Kind::Block(8)];
                    let seqs: Vec<Seq> = kinds.into_iter().map(|kind| Seq { start, kind }).collect();
                    let pass = Pass::new(numbers.bits(), dtype, SMALL, &seqs).windowed(window, tail);
                    check(&gpu, &pass, 0, 0);
                }
            }
        }
    }
    // By slot, the last sibling would see less: the reference itself tells the two apart.
    let pass = Pass::new(9, Dtype::F32, SMALL, &[Seq { start: 10, kind: siblings }]).windowed(4, true);
    let chain = Pass { seqs: vec![Seq { start: 10, kind: Kind::Causal(7) }], ..pass.clone() };
    assert_ne!(pass.reference(), chain.reference());
}

/// Public fault 17, with NaN as the strongest perturbation: what a row does not see cannot change a bit of it.
#[test]
fn fault_17_unseen_rows_change_nothing() {
    let mut numbers = Numbers(5);
    let width = SMALL.kv_heads * SMALL.head_dim;
    let wide = SMALL.heads * SMALL.head_dim;
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let seqs = [seq(&mut numbers, 50, 40), seq(&mut numbers, 20, 9)];
            let pass = Pass::new(numbers.bits(), dtype, SMALL, &seqs);
            for poison in [7.0, f32::NAN, f32::INFINITY] {
                let j = 1 + numbers.below(38) as usize;
                let mut other = pass.clone();
                let at = (seqs[0].start as usize + j) * width;
                other.k[at..at + width].fill(poison);
                other.v[at..at + width].fill(poison);
                for (form, height, sms) in ways(&gpu, dtype, SMALL) {
                    let before = pass.on(&gpu, form, sms, pass.bucket(0, 0)).run(height);
                    let after = other.on(&gpu, form, sms, pass.bucket(0, 0)).run(height);
                    for r in 0..pass.rows() {
                        let sees = r < 40 && seqs[0].row(r).1.contains(&j);
                        let bits = |x: &[f32]| x[r * wide..][..wide].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&before) != bits(&after), sees, "{form:?} {height:?}: row {r}, changed {j}");
                        if sees && poison.is_nan() {
                            assert!(after[r * wide..][..wide].iter().all(|x| x.is_nan()), "{form:?} {height:?}: {r}");
                        }
                    }
                }
            }
        }
    }
}

/// A query of NaN stays in its row.
#[test]
fn a_broken_query_stays_alone() {
    let mut numbers = Numbers(6);
    let wide = SMALL.heads * SMALL.head_dim;
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let pass = Pass::new(6, dtype, SMALL, &[seq(&mut numbers, 30, 20)]);
            let mut broken = pass.clone();
            broken.q[7 * wide..8 * wide].fill(f32::NAN);
            for (form, height, sms) in ways(&gpu, dtype, SMALL) {
                let before = pass.on(&gpu, form, sms, pass.bucket(0, 0)).run(height);
                let after = broken.on(&gpu, form, sms, pass.bucket(0, 0)).run(height);
                for r in 0..20 {
                    let (a, b) = (&before[r * wide..][..wide], &after[r * wide..][..wide]);
                    assert!(if r == 7 { b.iter().all(|x| x.is_nan()) } else { a == b }, "{form:?} {height:?}: row {r}");
                }
            }
        }
    }
}

/// Public faults 12, 13, 15, 16: buffers that served a larger batch of other trees leave nothing behind, in a captured graph
/// as in an eager run.
#[test]
fn fault_13_a_shrunk_batch_sees_nothing_stale() {
    let mut numbers = Numbers(7);
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let all: Vec<Seq> = [33, 65, 5, 31].iter().map(|n| seq(&mut numbers, 20 + *n as u32, *n)).collect();
            let big = Pass::new(70, dtype, SMALL, &all);
            let bucket = Bucket { rows: big.rows() as u32 + 2, seqs: 4 };
            for (form, height, sms) in ways(&gpu, dtype, SMALL).into_iter().filter(|w| w.1.is_none()) {
                let mut device = big.on(&gpu, form, sms, bucket);
                let first = device.run(height);
                let graph = gpu.capture(|| device.attend.run(&gpu, bucket, &device.call())).unwrap();
                // Two of the four sequences, then all again, through the same buffers and the same graph.
                let small = Pass { seqs: all[..2].to_vec(), q: big.q[..98 * 512].to_vec(), ..big.clone() };
                device.plan.clear();
                small.plan(&mut device.plan);
                device.plan.push(&gpu, bucket).unwrap();
                gpu.fill(&device.out, 0xFF).unwrap();
                graph.launch().unwrap();
                device.pass = &small;
                let shrunk = device.result();
                assert_eq!(shrunk, small.on(&gpu, form, sms, bucket).run(height));
                assert!(worst(&shrunk, &small.reference(), 64) <= limit(dtype));
                device.pass = &big;
                device.plan.clear();
                big.plan(&mut device.plan);
                device.plan.push(&gpu, bucket).unwrap();
                gpu.fill(&device.out, 0xFF).unwrap();
                graph.launch().unwrap();
                assert_eq!(device.result(), first, "{form:?} {height:?}");
            }
        }
    }
}

/// Offsets beyond 32 bits: a cache whose base lies far before its memory, so that only the right address of a far row hits it.
#[test]
fn fault_29_far_cache_rows_are_reached() {
    let mut numbers = Numbers(8);
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let pass = Pass::new(8, dtype, SMALL, &[seq(&mut numbers, 100, 9)]);
            let far = 1u32 << 26;
            let bytes = u64::from(far) * (SMALL.kv_heads * SMALL.head_dim * dtype.bytes()) as u64;
            assert!(bytes > 1 << 33);
            for (form, height, sms) in ways(&gpu, dtype, SMALL) {
                let mut device = pass.on(&gpu, form, sms, pass.bucket(0, 0));
                let near = device.run(height);
                device.plan = RowPlan::new(&gpu, 9, 1, 0).unwrap();
                let Kind::Tree(parents) = &pass.seqs[0].kind else { unreachable!() };
                let sight = treeline_cuda::ops::rows::Sight::Tree(parents);
                device.plan.add(far, 100, &[0; 9], sight).unwrap();
                device.plan.push(&gpu, device.bucket).unwrap();
                let mut call = device.call();
                call.k_cache = Ptr(call.k_cache.0.wrapping_sub(bytes));
                call.v_cache = Ptr(call.v_cache.0.wrapping_sub(bytes));
                gpu.fill(&device.out, 0xFF).unwrap();
                match height {
                    Some(height) => device.attend.run_with(&gpu, device.bucket, &call, height).unwrap(),
                    None => device.attend.run(&gpu, device.bucket, &call).unwrap(),
                }
                assert_eq!(device.result(), near, "{form:?} {height:?}");
            }
        }
    }
}
