//! Latent attention against f64: ragged batches, trees, windows, padding, stale buffers, NaN, far offsets, in every form.

mod mla_reference;

use mla_reference::{Pass, Sequence, Shape, forms, op, tree};
use treeline_cuda::device::{Dtype, Gpu, Ptr};
use treeline_cuda::ops::mla_attend::{MlaCall, MlaForm};
use treeline_cuda::ops::rows::Bucket;
use treeline_cuda::testing::{Numbers, gpus, relative_error};

const MINI: Shape = Shape { heads: 8, lora: 128, rope: 16 };
const TINY: Shape = Shape { heads: 3, lora: 20, rope: 6 };
const KIMI: Shape = Shape { heads: 8, lora: 512, rope: 64 };

fn bound(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-5 } else { 5e-3 }
}

/// Every form of every device in both types against the reference, with padding of rows and sequences.
fn check(shape: Shape, sequences: &[Sequence], window: u32, seed: u64) {
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let mut pass = Pass::new(&gpu, dtype, shape, sequences, seed);
            let want = pass.reference(window);
            for form in forms(&gpu, dtype, shape) {
                let rows = pass.rows() as u32;
                for bucket in [Bucket { rows, seqs: sequences.len() as u32 }, Bucket { rows: rows + 3, seqs: 7 }] {
                    let got = pass.run(&gpu, &op(&gpu, form, dtype, shape, bucket), bucket, window);
                    let (real, padding) = got.split_at(want.len());
                    let error = relative_error(real, &want);
                    let at = format!("{form:?} {dtype:?} {shape:?} {bucket:?} on {}", gpu.info().name);
                    assert!(error <= bound(dtype), "{at}: error {error:e}");
                    assert!(padding.iter().all(|x| x.to_bits() == 0), "{at}: padded rows are not zero");
                }
            }
        }
    }
}

#[test]
fn ragged_batches_agree_with_f64() {
    let of = |starts: &[(u32, usize)], seed| -> Vec<Sequence> {
        starts.iter().enumerate().map(|(i, &(start, n))| Sequence::new(start, tree(n, seed + i as u64))).collect()
    };
    check(MINI, &of(&[(0, 1)], 1), 0, 1);
    check(MINI, &of(&[(1, 2), (63, 1), (64, 5)], 2), 0, 2);
    check(MINI, &of(&[(65, 9), (1000, 17), (0, 3), (130, 1), (64, 2)], 3), 0, 3);
    check(TINY, &of(&[(5, 4), (0, 1), (70, 33)], 4), 0, 4);
    check(KIMI, &of(&[(100, 1), (64, 3)], 5), 0, 5);
    check(KIMI, &of(&[(63, 9)], 6), 0, 6);
    check(KIMI, &of(&[(150, 17), (400, 9), (3, 12)], 7), 0, 7);
    check(KIMI, &of(&[(300, 20)], 8), 100, 8);
}

#[test]
fn every_row_count_agrees_with_f64() {
    for n in [1, 2, 31, 32, 33, 63, 64, 65, 128, 257] {
        check(Shape { heads: 2, ..MINI }, &[Sequence::new(65, tree(n, n as u64))], 0, n as u64);
    }
}

#[test]
fn other_head_counts_agree_with_f64() {
    for heads in [1, 5, 16, 64] {
        check(
            Shape { heads, ..MINI },
            &[Sequence::new(70, tree(3, 9)), Sequence::new(3, tree(1, 10))],
            0,
            heads as u64,
        );
    }
}

#[test]
fn windows_go_by_position() {
    // Six siblings share a position: a window by row would cut them differently.
    let siblings = Sequence::new(90, vec![0; 7]);
    for window in [1, 4, 64, 65, 91, 1000] {
        check(MINI, &[siblings.clone(), Sequence::new(2, tree(4, 1)), Sequence::new(300, tree(9, 2))], window, 11);
    }
}

/// Perturbing the cache row of one node leaves every row that is no descendant as it was, bit for bit; with `fault` the masks
/// claim that all rows see each other, and this must be noticed.
fn leaks(gpu: &Gpu, shape: Shape, form: MlaForm, poison: f32, fault: bool) -> usize {
    let dtype = Dtype::Bf16;
    let rows = if shape.lora > 128 { 12 } else { 40 };
    let parents = tree(rows, 77);
    let mut pass = Pass::new(gpu, dtype, shape, &[Sequence::new(30, parents.clone())], 5);
    if fault {
        pass.see_all();
    }
    let bucket = Bucket { rows: rows as u32, seqs: 1 };
    let attend = op(gpu, form, dtype, shape, bucket);
    let before = pass.run(gpu, &attend, bucket, 0);
    let width = shape.heads * shape.lora;
    let mut wrong = 0;
    for j in [1, rows / 2, rows - 1] {
        pass.poison_row(gpu, 0, j, poison);
        let after = pass.run(gpu, &attend, bucket, 0);
        pass.restore(gpu);
        for i in 0..rows {
            let mut at = i;
            while at > j {
                at = parents[at] as usize;
            }
            let row = i * width..(i + 1) * width;
            let same = before[row.clone()].iter().zip(&after[row]).all(|(a, b)| a.to_bits() == b.to_bits());
            if at == j {
                assert!(fault || !same, "{form:?}: row {i} does not notice its ancestor {j}");
            } else {
                wrong += usize::from(!same);
            }
        }
    }
    wrong
}

#[test]
fn a_row_sees_its_ancestors_alone() {
    for gpu in gpus() {
        for (shape, form) in shapes_and_forms(&gpu) {
            for poison in [3.0, f32::NAN, f32::INFINITY] {
                assert_eq!(leaks(&gpu, shape, form, poison, false), 0, "{form:?} {shape:?} with {poison}");
            }
        }
        for form in forms(&gpu, Dtype::Bf16, MINI) {
            assert!(leaks(&gpu, MINI, form, 3.0, true) > 0, "{form:?}: a mask that shows everything goes unnoticed");
        }
    }
}

#[test]
fn nan_stays_in_its_sequence() {
    let sequences = [Sequence::new(70, tree(5, 1)), Sequence::new(10, tree(9, 2)), Sequence::new(64, tree(2, 3))];
    for gpu in gpus() {
        for (shape, form) in shapes_and_forms(&gpu) {
            let mut pass = Pass::new(&gpu, Dtype::Bf16, shape, &sequences, 6);
            let bucket = Bucket { rows: 20, seqs: 4 };
            let attend = op(&gpu, form, Dtype::Bf16, shape, bucket);
            let before = pass.run(&gpu, &attend, bucket, 0);
            pass.poison_past(&gpu, 1, 4, f32::NAN);
            let after = pass.run(&gpu, &attend, bucket, 0);
            let width = shape.heads * shape.lora;
            for (row, (a, b)) in before.chunks(width).zip(after.chunks(width)).enumerate() {
                if (5..14).contains(&row) {
                    assert!(b.iter().any(|x| x.is_nan()), "{form:?}: row {row} hides the NaN it sees");
                } else {
                    assert!(
                        a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits()),
                        "{form:?}: NaN reaches row {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_shrunk_batch_leaves_nothing_behind() {
    let large: Vec<Sequence> = (0..5).map(|i| Sequence::new(100 + i * 40, tree(33, u64::from(i)))).collect();
    let small = [Sequence::new(3, tree(5, 8)), Sequence::new(0, tree(5, 9))];
    for gpu in gpus() {
        for form in forms(&gpu, Dtype::Bf16, MINI) {
            let bucket = Bucket { rows: 176, seqs: 6 };
            let used = op(&gpu, form, Dtype::Bf16, MINI, bucket);
            let mut pass = Pass::new(&gpu, Dtype::Bf16, MINI, &large, 12);
            let first = pass.run(&gpu, &used, bucket, 0);
            pass.replace(&small);
            let after_large = pass.run(&gpu, &used, bucket, 0);
            let fresh = pass.run(&gpu, &op(&gpu, form, Dtype::Bf16, MINI, bucket), bucket, 0);
            assert_eq!(bits(&after_large), bits(&fresh), "{form:?}: shrinking leaves something behind");
            let real = &after_large[..pass.rows() * MINI.heads * MINI.lora];
            let error = relative_error(real, &pass.reference(0));
            assert!(error <= bound(Dtype::Bf16), "{form:?}: error {error:e} after shrinking");
            pass.replace(&large);
            assert_eq!(bits(&pass.run(&gpu, &used, bucket, 0)), bits(&first), "{form:?}: growing again");
        }
    }
}

#[test]
fn a_replayed_graph_equals_an_eager_run_bit_for_bit() {
    for gpu in gpus() {
        for (shape, form) in shapes_and_forms(&gpu) {
            let bucket = Bucket { rows: 24, seqs: 3 };
            let attend = op(&gpu, form, Dtype::Bf16, shape, bucket);
            let mut pass = Pass::new(&gpu, Dtype::Bf16, shape, &[Sequence::new(200, tree(17, 4))], 13);
            let graph = gpu.capture(|| attend.run(&gpu, bucket, &pass.call(0))).unwrap();
            for sequences in [
                vec![Sequence::new(200, tree(17, 4))],
                vec![Sequence::new(0, tree(2, 5)), Sequence::new(129, tree(3, 6))],
                vec![Sequence::new(8, tree(20, 1)), Sequence::new(1, tree(1, 6)), Sequence::new(64, tree(3, 7))],
            ] {
                pass.replace(&sequences);
                let eager = pass.run(&gpu, &attend, bucket, 0);
                assert_eq!(bits(&eager), bits(&pass.run(&gpu, &attend, bucket, 0)), "{form:?}: a second run differs");
                pass.push(&gpu, bucket);
                graph.launch().unwrap();
                assert_eq!(bits(&eager), bits(&pass.output(&gpu, bucket)), "{form:?}: graph and eager differ");
            }
        }
    }
}

#[test]
fn far_cache_rows_are_reached() {
    // The cache is claimed to begin 2^25 rows earlier, 9 GiB: with a 32-bit offset the kernel would leave the buffer.
    const FAR: u32 = 1 << 25;
    for gpu in gpus() {
        for form in forms(&gpu, Dtype::Bf16, MINI) {
            let mut pass = Pass::new(&gpu, Dtype::Bf16, MINI, &[Sequence::new(90, tree(6, 4))], 14);
            let bucket = Bucket { rows: 6, seqs: 1 };
            let attend = op(&gpu, form, Dtype::Bf16, MINI, bucket);
            let near = pass.run(&gpu, &attend, bucket, 0);
            pass.shift(FAR);
            pass.push(&gpu, bucket);
            let call = pass.call(0);
            let back = u64::from(FAR) * (MINI.dim() * 2) as u64;
            let far = MlaCall { cache: Ptr(call.cache.0.wrapping_sub(back)), ..call };
            attend.run(&gpu, bucket, &far).unwrap();
            assert_eq!(bits(&near), bits(&pass.output(&gpu, bucket)), "{form:?}");
        }
    }
}

#[test]
fn any_number_of_blocks_gives_the_same_numbers() {
    let sequences = [Sequence::new(500, tree(9, 1)), Sequence::new(31, tree(17, 2)), Sequence::new(1, tree(1, 3))];
    for gpu in gpus() {
        for form in forms(&gpu, Dtype::Bf16, MINI).into_iter().filter(|f| *f != MlaForm::Any) {
            let mut pass = Pass::new(&gpu, Dtype::Bf16, MINI, &sequences, 15);
            let want = pass.reference(0);
            let bucket = Bucket { rows: 27, seqs: 3 };
            for blocks in [1, 2, 3, 7, 40, 200] {
                let attend = mla_reference::op_with(&gpu, form, Dtype::Bf16, MINI, bucket, blocks);
                let error = relative_error(&pass.run(&gpu, &attend, bucket, 0), &want);
                assert!(error <= bound(Dtype::Bf16), "{form:?} in {blocks} blocks: error {error:e}");
            }
        }
    }
}

#[test]
fn shapes_without_a_form_are_refused() {
    let mut numbers = Numbers(3);
    for gpu in gpus() {
        let bucket = Bucket { rows: 4, seqs: 1 };
        let odd = (8, 100 + numbers.below(20) as usize, 16);
        let made = treeline_cuda::ops::mla_attend::MlaAttend::with_form(
            &gpu,
            MlaForm::Portable,
            Dtype::Bf16,
            odd,
            bucket,
            64,
            4,
        );
        assert!(made.unwrap_err().to_string().contains("no Portable form"));
        let empty = Bucket { rows: 0, seqs: 1 };
        assert!(
            treeline_cuda::ops::mla_attend::MlaAttend::new(&gpu, Dtype::F32, 8, 128, 16, empty, 64).is_err(),
            "a bucket of no rows"
        );
    }
}

fn shapes_and_forms(gpu: &Gpu) -> Vec<(Shape, MlaForm)> {
    let of = |shape| forms(gpu, Dtype::Bf16, shape).into_iter().map(move |form| (shape, form));
    of(MINI).chain(of(KIMI).filter(|(_, form)| *form != MlaForm::Any)).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
