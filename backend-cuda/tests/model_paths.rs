//! What a row's logits may depend on: its path, and nothing else. Trees against their paths, positions, chunks, padding, stale
//! contents, neighbours with NaN, graphs against eager passes, ranks against the whole.

mod rig;

use rig::{Rig, STRIDE, Span, TARGETS, bits, parents, path, tokens};
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::model::{Head, Shard};
use treeline_cuda::ops::rows::{Bucket, MASK_WORDS};
use treeline_cuda::testing::{Numbers, gpus, relative_error};

const NO_PAD: Bucket = Bucket { rows: 0, seqs: 0 };

/// Logits of every node equal those of its path decoded alone (public fault 18), and a tree that is verified causally shows.
#[test]
fn fault_18_trees_equal_their_paths() {
    for gpu in gpus() {
        for name in TARGETS {
            for (dtype, tolerance) in [(Dtype::F32, 2e-5), (Dtype::Bf16, 3e-2)] {
                let mut noise = Numbers(18);
                let (prefix, own) = (tokens(&mut noise, 19), tokens(&mut noise, 14));
                let parents = parents(&mut noise, own.len(), 5);
                let mut rig = Rig::new(&gpu, name, dtype);
                rig.run(&[Span::chunk(0, 0, &prefix)]);
                let tree = rig.run(&[Span::tree(0, 19, &own, &parents)]);
                let causal = rig.run(&[Span::chunk(0, 19, &own)]);
                let mut seen = 0;
                for node in 0..own.len() {
                    let path = path(&parents, node);
                    let alone: Vec<u32> = path.iter().map(|&row| own[row]).collect();
                    let want = rig.run(&[Span::chunk(0, 19, &alone)]).pop().unwrap();
                    let error = relative_error(&tree[node], &want);
                    assert!(error <= tolerance, "{name} {dtype:?}, node {node}: {error:e}");
                    if path.len() <= node {
                        seen += usize::from(relative_error(&causal[node], &want) > 2.0 * tolerance);
                    }
                }
                assert!(seen > 0, "{name} {dtype:?}: the negative control does not show");
            }
        }
    }
}

/// Public fault 8: the position of a row is that of its depth, its cache row that of its index (root, a and b under the root,
/// c under b). Public fault 10: the root is index 0, so its logits are those of plain decoding.
#[test]
fn faults_08_and_10_positions_go_by_depth() {
    for gpu in gpus() {
        let mut rig = Rig::new(&gpu, "qwen3", Dtype::F32);
        let past = tokens(&mut Numbers(8), 10);
        rig.run(&[Span::chunk(0, 0, &past)]);
        let plain = rig.run(&[Span::chunk(0, 10, &[7])]);
        let tree = rig.run(&[Span::tree(0, 10, &[7, 1, 2, 3], &[0, 0, 0, 2])]);
        assert!(relative_error(&tree[0], &plain[0]) < 1e-5);
        let at = rig.plan.ptrs();
        assert_eq!(gpu.read::<u32>(at.position, 4).unwrap(), [10, 11, 11, 12]);
        assert_eq!(gpu.read::<u32>(at.kv_row, 4).unwrap(), [10, 11, 12, 13]);
        let masks: Vec<u32> = gpu.read::<u32>(at.mask, 4 * MASK_WORDS).unwrap();
        assert_eq!(masks.iter().step_by(MASK_WORDS).copied().collect::<Vec<_>>(), [0b1, 0b11, 0b101, 0b1101]);
        // The same tokens with wrong positions show: the negative control.
        gpu.copy_in(at.position, &[10u32, 11, 12, 13]).unwrap();
        let bucket = Bucket { rows: 4, seqs: 1 };
        rig.target.forward(&gpu, bucket, at, &rig.cache, &rig.work, Head::All).unwrap();
        assert!(relative_error(&rig.logits(4)[3], &tree[3]) > 1e-3);
    }
}

/// Every chunking of a prompt gives the same logits.
#[test]
fn chunks_do_not_change_logits() {
    for gpu in gpus() {
        for name in TARGETS {
            let mut rig = Rig::new(&gpu, name, Dtype::F32);
            let prompt = tokens(&mut Numbers(21), 70);
            let whole = rig.run(&[Span::chunk(0, 0, &prompt)]);
            for size in [1, 16, 33] {
                let mut start = 0;
                let mut rows = Vec::new();
                for part in prompt.chunks(size).take(if size == 1 { 12 } else { 9 }) {
                    rows.extend(rig.run(&[Span::chunk(1, start, part)]));
                    start += part.len() as u32;
                }
                for (row, (got, want)) in rows.iter().zip(&whole).enumerate() {
                    let error = relative_error(got, want);
                    assert!(error < 2e-5, "{name}, chunks of {size}, row {row}: {error:e}");
                }
            }
        }
    }
}

/// Three sequences with trees, of which one may be spoilt.
fn batch(spoilt: bool) -> Vec<Span> {
    let mut noise = Numbers(7);
    let span = |slot: u32, past: u32, rows: usize, noise: &mut Numbers| {
        let own = tokens(noise, rows);
        Span::tree(slot, past, &own, &parents(noise, rows, 4))
    };
    let mut spans = vec![span(0, 20, 7, &mut noise), span(1, 11, 12, &mut noise), span(2, 30, 9, &mut noise)];
    if spoilt {
        // No such token: its row, and all below it, become NaN.
        spans[1].tokens[3] = 1 << 20;
    }
    spans
}

fn with_pasts(gpu: &Gpu, name: &str, dtype: Dtype) -> Rig {
    let mut rig = Rig::new(gpu, name, dtype);
    for (slot, past) in [(0, 20), (1, 11), (2, 30)] {
        rig.run(&[Span::chunk(slot, 0, &tokens(&mut Numbers(slot.into()), past))]);
    }
    rig
}

/// One row of NaN stays in its sequence, and in the rows that see it; all others keep their bits.
#[test]
fn nan_stays_in_its_own_path() {
    for gpu in gpus() {
        for name in TARGETS {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let mut rig = with_pasts(&gpu, name, dtype);
                let clean = rig.padded(&batch(false), Bucket { rows: 4, seqs: 1 });
                let spoilt = rig.padded(&batch(true), Bucket { rows: 4, seqs: 1 });
                let parents = batch(true)[1].parents.clone().unwrap();
                let below = |row: usize| (7..19).contains(&row) && path(&parents, row - 7).contains(&3);
                for (row, (a, b)) in bits(&clean).iter().zip(bits(&spoilt)).enumerate() {
                    match below(row) {
                        true => assert!(spoilt[row].iter().all(|x| x.is_nan()), "{name} {dtype:?}, row {row}"),
                        false => assert!(*a == b, "{name} {dtype:?}: row {row} was changed by another's NaN"),
                    }
                }
                // The same buffers serve again, without a trace.
                assert_eq!(
                    bits(&rig.padded(&batch(false), Bucket { rows: 4, seqs: 1 })),
                    bits(&clean),
                    "{name} {dtype:?}"
                );
            }
        }
    }
}

/// Public faults 13 and 30: a small batch in the bucket of a large one gives the same bits whatever was in the buffers, and
/// padded rows write the sink alone.
#[test]
fn faults_13_and_30_stale_contents_do_not_show() {
    for gpu in gpus() {
        for name in TARGETS {
            let mut rig = with_pasts(&gpu, name, Dtype::F32);
            let small = [Span::tree(0, 20, &[5, 6, 7], &[0, 0, 1])];
            let pad = Bucket { rows: 25, seqs: 2 };
            let fresh = rig.padded(&small, pad);
            let rows = rig.cache.row_bytes() * STRIDE as usize * 4;
            let before: Vec<Vec<u8>> =
                (0..rig.cache.parts()).map(|i| gpu.read(rig.cache.part(i), rows).unwrap()).collect();
            rig.padded(&batch(true), NO_PAD);
            rig.run(&[
                Span::chunk(1, 0, &tokens(&mut Numbers(1), 11)),
                Span::chunk(2, 0, &tokens(&mut Numbers(2), 30)),
            ]);
            assert_eq!(bits(&rig.padded(&small, pad)), bits(&fresh), "{name}");
            // Rows of other slots behind their pasts were written by the batch; those of slot 3 never.
            let after: Vec<Vec<u8>> =
                (0..rig.cache.parts()).map(|i| gpu.read(rig.cache.part(i), rows).unwrap()).collect();
            let third = rig.cache.row_bytes() * STRIDE as usize * 3;
            assert!(before.iter().zip(&after).all(|(a, b)| a[third..] == b[third..]), "{name}: padding wrote a slot");
            let own = rig.cache.row_bytes() * 20;
            assert!(before.iter().zip(&after).all(|(a, b)| a[..own] == b[..own]), "{name}: the past was changed");
        }
    }
}

/// A captured pass gives the bits of an eager one, for contents that came after the capture (public faults 31, 32, 34).
#[test]
fn graphs_equal_eager_passes() {
    for gpu in gpus() {
        for name in TARGETS {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let mut rig = with_pasts(&gpu, name, dtype);
                let spans = batch(false);
                let eager = rig.padded(&spans, Bucket { rows: 4, seqs: 1 });
                let counts = rig.experts();
                let other = [Span::chunk(3, 0, &[1, 2, 3])];
                let bucket = rig.plan(&other, Bucket { rows: 29, seqs: 3 });
                let forward = || rig.target.forward(&gpu, bucket, rig.plan.ptrs(), &rig.cache, &rig.work, Head::All);
                forward().unwrap();
                let graph = gpu.capture(forward).unwrap();
                assert!(graph.nodes() > 0);
                for _ in 0..2 {
                    let poison = vec![f32::NAN; bucket.rows as usize * rig.target.logits_width()];
                    gpu.copy_in(rig.work.logits(), &poison).unwrap();
                    assert_eq!(rig.plan(&spans, Bucket { rows: 4, seqs: 1 }), bucket);
                    graph.launch().unwrap();
                    let got = rig.logits(28);
                    assert_eq!(bits(&got), bits(&eager), "{name} {dtype:?}");
                    assert_eq!(rig.experts(), counts, "{name} {dtype:?}");
                }
            }
        }
    }
}

/// Picked rows of the head equal those of the whole, and tapped layers do not depend on what the head does.
#[test]
fn picked_rows_and_taps() {
    for gpu in gpus() {
        for name in ["qwen3", "kimi_k2"] {
            let last = if name == "qwen3" { 3 } else { 2 };
            let taps = [last, 0];
            let mut rig = Rig::with(&gpu, name, Dtype::F32, Shard::ONE, &taps);
            let spans = [Span::chunk(0, 0, &[3, 1, 4, 1, 5, 9, 2, 6])];
            let all = rig.padded(&spans, Bucket { rows: 3, seqs: 0 });
            let width = taps.len() * rig.target.config().hidden;
            let tapped: Vec<f32> = gpu.read(rig.work.taps(), 8 * width).unwrap();
            assert!(tapped.iter().all(|x| x.is_finite()) && tapped.iter().any(|x| *x != 0.0));
            let index = gpu.upload("rows", &[7u32, 2, 2]).unwrap();
            for head in [Head::Rows { index: index.ptr(), count: 3 }, Head::None] {
                let poison = vec![f32::NAN; 8 * width];
                gpu.copy_in(rig.work.taps(), &poison).unwrap();
                let bucket = rig.plan(&spans, Bucket { rows: 3, seqs: 0 });
                rig.target.forward(&gpu, bucket, rig.plan.ptrs(), &rig.cache, &rig.work, head).unwrap();
                assert_eq!(gpu.read::<f32>(rig.work.taps(), 8 * width).unwrap(), tapped, "{name} {head:?}");
                if head != Head::None {
                    let got = rig.logits(3);
                    for (got, row) in got.iter().zip([7, 2, 2]) {
                        assert!(relative_error(got, &all[row]) < 1e-6, "{name}: row {row}");
                    }
                }
            }
        }
    }
}
