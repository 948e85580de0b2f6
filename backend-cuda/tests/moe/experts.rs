//! Routed experts against f64: every type, every form.

use crate::reference::{Pass, Tensor, bf16, combine, load, random_layer, run_experts, run_router};
use treeline_checkpoint::Router as Kind;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::ops::moe::{ExpertKind, ExpertShape, Experts, Router, Tuning};
use treeline_cuda::testing::{Numbers, gpus, relative_error, to_bf16};

const SOFTMAX: Kind = Kind::Softmax { norm_topk: true };

const fn int4(hidden: usize, intermediate: usize, experts: usize, top_k: usize) -> ExpertShape {
    ExpertShape { hidden, intermediate, experts, top_k, kind: ExpertKind::Int4 }
}

const FAST: ExpertShape = int4(512, 128, 24, 4);

/// The forms that serve a shape: the chosen one, and the plain one beside it.
fn forms(gpu: &Gpu, dtype: Dtype, shape: ExpertShape, rows: usize) -> Vec<(&'static str, Experts)> {
    let mut all = vec![("plain", Experts::with(gpu, dtype, shape, rows, None).unwrap())];
    if Tuning::of(dtype, &shape).is_some() {
        all.push(("fast", Experts::new(gpu, dtype, shape, rows).unwrap()));
    }
    all
}

fn bound(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-5 } else { 6e-3 }
}

/// A pass of `real` rows and `padding` more: each row against f64, padding zero.
fn check(shape: ExpertShape, dtype: Dtype, real: usize, padding: usize, forced: Option<&[i32]>, seed: u64) {
    let layer = random_layer(&shape, dtype, seed);
    let mut numbers = Numbers(seed ^ 0x5eed);
    let rows = real + padding;
    let mut h = numbers.floats(rows * shape.hidden, 1.0);
    if dtype == Dtype::Bf16 {
        h.iter_mut().for_each(|x| *x = bf16(*x));
    }
    h[real * shape.hidden..].fill(0.0);
    let logits = numbers.floats(rows * shape.experts, 3.0);
    let seq: Vec<i32> = (0..rows).map(|r| if r < real { 0 } else { -1 }).collect();
    for gpu in gpus() {
        let router = Router::new(&gpu, shape.experts, shape.top_k, &SOFTMAX, rows).unwrap();
        let routed = run_router(&gpu, &router, shape.top_k, &seq, &logits, None, forced);
        let picks = routed.picks(&gpu);
        for (name, experts) in forms(&gpu, dtype, shape, rows) {
            let weights = load(&gpu, &experts, &layer);
            let got = run_experts(&gpu, &experts, &weights, &router, &routed, dtype, &h);
            for row in 0..real {
                let own = &picks[row * shape.top_k..(row + 1) * shape.top_k];
                let from = &h[row * shape.hidden..(row + 1) * shape.hidden];
                let want: Vec<f32> = combine(&layer, own, from).into_iter().map(|x| x as f32).collect();
                let error = relative_error(&got[row * shape.hidden..(row + 1) * shape.hidden], &want);
                let at = format!("{name} {dtype:?} {shape:?}, {real} rows, row {row} on {}", gpu.info().name);
                assert!(error <= bound(dtype), "{at}: error {error:e}");
            }
            assert!(got[real * shape.hidden..].iter().all(|x| x.to_bits() == 0), "{name}: padding is not zero");
        }
    }
}

#[test]
fn plain_shapes_agree_with_f64() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        check(int4(256, 32, 16, 4), dtype, 5, 3, None, 1);
        check(int4(96, 32, 5, 2), dtype, 9, 0, None, 2);
        check(int4(32, 160, 3, 1), dtype, 4, 1, None, 3);
        for (hidden, intermediate) in [(64, 24), (48, 16), (20, 7)] {
            let shape = ExpertShape { hidden, intermediate, experts: 6, top_k: 3, kind: ExpertKind::Dense };
            if (hidden * intermediate).is_multiple_of(2) {
                check(shape, dtype, 7, 2, None, 4);
            }
        }
    }
}

#[test]
fn fast_shapes_agree_with_f64() {
    check(FAST, Dtype::Bf16, 6, 2, None, 11);
    check(int4(64, 64, 3, 2), Dtype::Bf16, 3, 0, None, 12);
    check(int4(192, 192, 4, 4), Dtype::Bf16, 9, 1, None, 13);
    check(int4(1024, 64, 8, 8), Dtype::Bf16, 17, 0, None, 14);
    check(int4(7168, 256, 2, 1), Dtype::Bf16, 3, 1, None, 15);
}

#[test]
fn tile_edges_and_crowded_experts_agree_with_f64() {
    let small = int4(128, 64, 6, 2);
    for rows in [1, 7, 8, 9, 15, 16, 17, 33] {
        // All rows use experts 1 and 4: two experts, whole and partly filled tiles.
        let forced: Vec<i32> = (0..rows).flat_map(|_| [4, 1]).collect();
        check(small, Dtype::Bf16, rows, 0, Some(&forced), 20 + rows as u64);
        check(small, Dtype::F32, rows, 0, Some(&forced), 50 + rows as u64);
    }
    check(int4(64, 64, 5, 1), Dtype::Bf16, 1, 0, Some(&[3]), 90);
    check(small, Dtype::Bf16, 257, 0, None, 91);
    // More segments than a block looks up at once.
    check(int4(64, 64, 8, 8), Dtype::Bf16, 600, 5, None, 92);
}

#[test]
fn rows_do_not_see_each_other() {
    let shape = FAST;
    let (rows, seq) = (19, [0i32; 19]);
    let mut numbers = Numbers(31);
    let h: Vec<f32> = numbers.floats(rows * shape.hidden, 1.0).into_iter().map(bf16).collect();
    let logits = numbers.floats(rows * shape.experts, 3.0);
    let layer = random_layer(&shape, Dtype::Bf16, 32);
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for gpu in gpus() {
        let router = Router::new(&gpu, shape.experts, shape.top_k, &SOFTMAX, rows).unwrap();
        for (name, experts) in forms(&gpu, Dtype::Bf16, shape, rows) {
            let weights = load(&gpu, &experts, &layer);
            let run = |seq: &[i32], logits: &[f32], h: &[f32]| {
                let routed = run_router(&gpu, &router, shape.top_k, seq, logits, None, None);
                run_experts(&gpu, &experts, &weights, &router, &routed, Dtype::Bf16, h)
            };
            let all = run(&seq, &logits, &h);
            assert_eq!(bits(&all), bits(&run(&seq, &logits, &h)), "{name}: the same pass twice");
            for row in [0, 7, 18] {
                let (l, x) =
                    (&logits[row * shape.experts..][..shape.experts], &h[row * shape.hidden..][..shape.hidden]);
                let own = &all[row * shape.hidden..][..shape.hidden];
                assert_eq!(bits(own), bits(&run(&[0], l, x)), "{name}: row {row} alone");
            }
            // A row of NaN: its own output is NaN, all others keep their bits.
            let (mut bad_logits, mut bad_h) = (logits.clone(), h.clone());
            bad_logits[5 * shape.experts..][..shape.experts].fill(f32::NAN);
            bad_h[5 * shape.hidden..][..shape.hidden].fill(f32::NAN);
            let bad = run(&seq, &bad_logits, &bad_h);
            for row in 0..rows {
                let (was, is) = (&all[row * shape.hidden..], &bad[row * shape.hidden..]);
                let (was, is) = (&was[..shape.hidden], &is[..shape.hidden]);
                if row == 5 {
                    assert!(is.iter().all(|x| x.is_nan()), "{name}: the bad row hides it");
                } else {
                    assert_eq!(bits(was), bits(is), "{name}: row {row} sees the bad row");
                }
            }
        }
    }
}

/// Every nibble with scales of every size gives the very product, through both layouts and all three projections.
#[test]
fn int4_is_exact() {
    let shape = int4(128, 64, 4, 1);
    let (hidden, inner) = (shape.hidden, shape.intermediate);
    let mut numbers = Numbers(77);
    // gate: 64 for any input of 1; up: one column, so that column `k` of the middle is 64 q s; down likewise.
    let scale = |numbers: &mut Numbers, powers: bool| {
        let power = 2f32.powi(numbers.below(9) as i32 - 4);
        if powers { power } else { bf16(power * (1.0 + numbers.below(128) as f32 / 128.0)) }
    };
    let mut layer = Vec::new();
    for _ in 0..shape.experts {
        let gate = Tensor::int4(&vec![9; hidden * inner], &vec![64.0; hidden * inner / 32]);
        let nibbles = |n: &mut Numbers| (0..hidden * inner).map(|_| n.below(16) as u8).collect::<Vec<_>>();
        let scales = |n: &mut Numbers, p| (0..hidden * inner / 32).map(|_| scale(n, p)).collect::<Vec<_>>();
        let mut up = nibbles(&mut numbers);
        for (i, row) in up.chunks_exact_mut(hidden).enumerate() {
            // Row i reads column i alone among the first 64, and column 64 + (i + 1) % 64 among the rest.
            row.iter_mut().enumerate().filter(|(k, _)| k % 64 != (i + k / 64) % 64).for_each(|(_, q)| *q = 8);
        }
        let up = Tensor::int4(&up, &scales(&mut numbers, true));
        layer.push([gate, up, Tensor::int4(&nibbles(&mut numbers), &scales(&mut numbers, false))]);
    }
    for gpu in gpus() {
        let router = Router::new(&gpu, shape.experts, 1, &SOFTMAX, hidden).unwrap();
        let forced: Vec<i32> = (0..hidden).map(|k| (k % shape.experts) as i32).collect();
        let mut h = vec![0.0; hidden * hidden];
        (0..hidden).for_each(|k| h[k * hidden + k] = 1.0);
        let logits = vec![0.0; hidden * shape.experts];
        let routed = run_router(&gpu, &router, 1, &vec![0; hidden], &logits, None, Some(&forced));
        for (name, experts) in forms(&gpu, Dtype::Bf16, shape, hidden) {
            let weights = load(&gpu, &experts, &layer);
            let got = run_experts(&gpu, &experts, &weights, &router, &routed, Dtype::Bf16, &h);
            for k in 0..hidden {
                let [_, up, down] = &layer[forced[k] as usize];
                let i = (0..inner).find(|i| k % 64 == (i + k / 64) % 64).unwrap();
                let middle = 64.0 * up.values[i * hidden + k];
                let want: Vec<f32> = (0..hidden).map(|o| (middle * down.values[o * inner + i]) as f32).collect();
                let (got, want) = (to_bf16(&got[k * hidden..(k + 1) * hidden]), to_bf16(&want));
                let same = got.iter().zip(&want).all(|(a, b)| a == b || (a | b) == 0x8000);
                assert!(same, "{name}: input {k}\n{got:x?}\n{want:x?}");
            }
        }
    }
}

/// Synthetic weights are the same in both layouts, differ between seeds and experts, and keep the size of what passes.
#[test]
fn synthetic_weights_do_not_depend_on_the_layout() {
    let shape = int4(256, 128, 3, 1);
    let rows = 3;
    let mut numbers = Numbers(8);
    let one: Vec<f32> = numbers.floats(shape.hidden, 1.0).into_iter().map(bf16).collect();
    let h = one.repeat(rows);
    let size = |x: &[f32]| (x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
    for gpu in gpus() {
        let router = Router::new(&gpu, shape.experts, 1, &SOFTMAX, rows).unwrap();
        let logits = vec![0.0; rows * shape.experts];
        let routed = run_router(&gpu, &router, 1, &[0; 3], &logits, None, Some(&[0, 1, 2]));
        let outputs = |seed: u64| -> Vec<Vec<f32>> {
            let of = |(_, experts): (_, Experts)| {
                let weights = experts.layer(&gpu).unwrap();
                experts.synthetic(&gpu, &weights, seed).unwrap();
                run_experts(&gpu, &experts, &weights, &router, &routed, Dtype::Bf16, &h)
            };
            forms(&gpu, Dtype::Bf16, shape, rows).into_iter().map(of).collect()
        };
        let [plain, fast] = outputs(5).try_into().unwrap();
        assert!(relative_error(&fast, &plain) < bound(Dtype::Bf16));
        let ratio = size(&plain) / size(&one);
        assert!((0.02..20.0).contains(&ratio), "the output is {ratio} times the input");
        assert!(relative_error(&plain[..shape.hidden], &plain[shape.hidden..2 * shape.hidden]) > 0.5);
        assert!(relative_error(&outputs(6)[0], &plain) > 0.5);
    }
}

/// A recorded pass gives the bits of the eager one, again and again, for new contents of its buffers.
#[test]
fn a_graph_gives_the_bits_of_the_eager_pass() {
    let shape = int4(256, 64, 12, 3);
    let (rows, most) = (10usize, 16usize);
    let layer = random_layer(&shape, Dtype::Bf16, 3);
    for gpu in gpus() {
        let router = Router::new(&gpu, shape.experts, shape.top_k, &SOFTMAX, most).unwrap();
        for (name, experts) in forms(&gpu, Dtype::Bf16, shape, most) {
            let weights = load(&gpu, &experts, &layer);
            let pass = Pass::new(&gpu, &shape, rows);
            pass.fill(&gpu, &shape, 1, 10);
            pass.run(&gpu, &router, &experts, &weights).unwrap();
            let graph = gpu.capture(|| pass.run(&gpu, &router, &experts, &weights)).unwrap();
            for (seed, real) in [(1, 10), (2, 3), (3, 10), (4, 1)] {
                pass.fill(&gpu, &shape, seed, real);
                pass.run(&gpu, &router, &experts, &weights).unwrap();
                let eager: Vec<u16> = gpu.read_all(&pass.out).unwrap();
                gpu.fill(&pass.out, 0xFF).unwrap();
                graph.launch().unwrap();
                assert_eq!(gpu.read_all(&pass.out).unwrap(), eager, "{name}, {real} real rows");
                assert!(eager[real * shape.hidden..].iter().all(|x| *x == 0), "{name}: padding is not zero");
                assert!(eager[..real * shape.hidden].iter().any(|x| *x != 0), "{name}: nothing but zeros");
            }
        }
    }
}
