//! Embedding, norm, activation and gather against plain loops in f64 or exact copies.

mod typed;

use treeline_cuda::device::{Dtype, Gpu, Ptr};
use treeline_cuda::ops::embed::Embed;
use treeline_cuda::ops::gather::{GatherKv, GatherKvCall, GatherRows, GatherRowsCall};
use treeline_cuda::ops::norm::{Norm, NormCall};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::ops::swiglu::Swiglu;
use treeline_cuda::testing::{Numbers, gpus};
use typed::{download, poisoned, round, upload, worst};

const TYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

fn limit(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-6 } else { 4e-3 }
}

/// Runs `body` on every device with both types.
fn each(body: impl Fn(&Gpu, Dtype)) {
    for gpu in gpus() {
        for dtype in TYPES {
            body(&gpu, dtype);
        }
    }
}

#[test]
fn embedding_copies_rows_and_zeroes_padding() {
    each(|gpu, dtype| {
        for hidden in [8, 24, 37, 2056] {
            let table = round(dtype, &Numbers(1).floats(50 * hidden, 1.0));
            let on_device = upload(gpu, dtype, &table);
            let mut plan = RowPlan::new(gpu, 9, 2, 0).unwrap();
            plan.add(0, 0, &[7, 0, 49], Sight::Causal).unwrap();
            plan.add(10, 0, &[3, 50], Sight::Causal).unwrap();
            plan.push(gpu, Bucket { rows: 9, seqs: 2 }).unwrap();
            let x = poisoned::<f32>(gpu, 9 * hidden);
            let embed = Embed::new(gpu, dtype, hidden).unwrap();
            embed.run(gpu, 9, &plan.ptrs(), on_device.ptr(), 50, x.ptr()).unwrap();
            let x = gpu.read_all(&x).unwrap();
            for (x, token) in x.chunks(hidden).zip([7, 0, 49, 3]) {
                assert_eq!(x, &table[token * hidden..][..hidden], "{dtype:?} {hidden}");
            }
            assert!(x[4 * hidden..5 * hidden].iter().all(|x| x.is_nan()), "a token that does not exist fails loudly");
            assert!(x[5 * hidden..].iter().all(|x| x.to_bits() == 0), "padding");
        }
    });
}

/// What a norm should give: the stream after the sum, and the normed rows.
fn norm_reference(x: &[f32], addends: &[&[f32]], weight: &[f32], eps: f32) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len();
    let sum: Vec<f64> = (0..x.len())
        .map(|i| f64::from(x[i]) + addends.iter().map(|a| f64::from(a[i % a.len()])).sum::<f64>())
        .collect();
    let out = sum.chunks(width).flat_map(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        row.iter().zip(weight).map(move |(x, w)| (x * scale * f64::from(*w)) as f32)
    });
    let out = out.collect();
    (sum.iter().map(|x| *x as f32).collect(), out)
}

#[test]
fn norm_adds_taps_and_norms() {
    const ROWS: usize = 5;
    each(|gpu, dtype| {
        for width in [8, 37, 96, 2048, 7168, 9000] {
            let mut numbers = Numbers(width as u64);
            let x = numbers.floats(ROWS * width, 2.0);
            let [a, b] = [1.0, 0.5].map(|s| round(dtype, &numbers.floats(ROWS * width, s)));
            let (bias, weight) = (numbers.floats(width, 0.3), numbers.floats(width, 1.5));
            let (da, db) = (upload(gpu, dtype, &a), upload(gpu, dtype, &b));
            let (dbias, dweight) = (gpu.upload("b", &bias).unwrap(), gpu.upload("w", &weight).unwrap());
            // Row 3 is padding: its stream and addends are NaN and must be left alone.
            let seq = gpu.upload("seq", &[0i32, 0, 1, -1, 2]).unwrap();
            let norm = Norm::new(gpu, dtype, width).unwrap();
            for (add, add2, with_bias) in
                [(true, true, true), (true, false, false), (false, false, false), (true, false, true)]
            {
                let mut start = x.clone();
                start[3 * width..4 * width].fill(f32::NAN);
                let dx = gpu.upload("x", &start).unwrap();
                let (stride, taps) = (2 * width, 3 * width);
                let out = poisoned::<u8>(gpu, ROWS * stride * dtype.bytes());
                let tap = poisoned::<u8>(gpu, ROWS * taps * dtype.bytes());
                let some = |on: bool, at: Ptr| if on { at } else { Ptr::NULL };
                let call = NormCall {
                    x: dx.ptr(),
                    add: some(add, da.ptr()),
                    add2: some(add2, db.ptr()),
                    bias: some(with_bias, dbias.ptr()),
                    weight: dweight.ptr(),
                    eps: 1e-5,
                    out: out.ptr(),
                    out_stride: stride,
                    tap: tap.ptr(),
                    tap_stride: taps,
                    tap_column: width,
                    seq: seq.ptr(),
                    ..NormCall::default()
                };
                norm.run(gpu, ROWS as u32, &call).unwrap();
                let addends: Vec<&[f32]> = [(add, &a[..]), (add2, &b), (with_bias, &bias)]
                    .iter()
                    .filter(|(on, _)| *on)
                    .map(|(_, a)| *a)
                    .collect();
                let (sum, want) = norm_reference(&x, &addends, &weight, 1e-5);
                let (got, stream) = (download(gpu, dtype, out.ptr(), out.len()), gpu.read_all(&dx).unwrap());
                let tapped = download(gpu, dtype, tap.ptr(), tap.len());
                for r in 0..ROWS {
                    let row = |all: &[f32], stride: usize, at: usize| all[r * stride + at..][..width].to_vec();
                    let (got, tapped) = (row(&got, stride, 0), row(&tapped, taps, width));
                    if r == 3 {
                        assert!(row(&stream, width, 0).iter().all(|x| x.is_nan()));
                        assert!(got.iter().chain(&tapped).all(|x| x.to_bits() == 0));
                        continue;
                    }
                    let near = |a: &[f32], b: &[f32], limit: f64| {
                        assert!(worst(a, b, width) <= limit, "{dtype:?} {width} {r}")
                    };
                    near(&row(&stream, width, 0), &row(&sum, width, 0), 1e-6);
                    near(&got, &row(&want, width, 0), limit(dtype));
                    near(&tapped, &row(&sum, width, 0), limit(dtype));
                }
                // Nothing is written beside the rows.
                let beside = download(gpu, dtype, out.ptr(), out.len());
                assert!(beside.chunks(stride).all(|row| row[width..].iter().all(|x| x.is_nan())));
            }
        }
    });
}

#[test]
fn norm_picks_rows_and_takes_activations() {
    each(|gpu, dtype| {
        let (width, rows) = (64, 4);
        let mut numbers = Numbers(3);
        let x = numbers.floats(rows * width, 2.0);
        let a = round(dtype, &numbers.floats(rows * width, 1.0));
        let weight = numbers.floats(width, 1.0);
        let (dx, da, dw) = (gpu.upload("x", &x).unwrap(), upload(gpu, dtype, &a), gpu.upload("w", &weight).unwrap());
        let index = gpu.upload("index", &[2u32, 0, u32::MAX, 2]).unwrap();
        let out = poisoned::<u8>(gpu, 4 * width * dtype.bytes());
        let norm = Norm::new(gpu, dtype, width).unwrap();
        let base = NormCall { weight: dw.ptr(), eps: 1e-6, out: out.ptr(), out_stride: width, ..NormCall::default() };

        norm.run(gpu, 4, &NormCall { x: dx.ptr(), add: da.ptr(), index: index.ptr(), ..base }).unwrap();
        let (_, all) = norm_reference(&x, &[&a], &weight, 1e-6);
        let got = download(gpu, dtype, out.ptr(), out.len());
        for (got, from) in got.chunks(width).zip([Some(2), Some(0), None, Some(2)]) {
            match from {
                Some(r) => assert!(worst(got, &all[r * width..][..width], width) <= limit(dtype)),
                None => assert!(got.iter().all(|x| x.to_bits() == 0)),
            }
        }
        assert_eq!(gpu.read_all(&dx).unwrap(), x, "picked rows are only read");

        // No residual stream: the addend is the input.
        norm.run(gpu, 4, &NormCall { add: da.ptr(), ..base }).unwrap();
        let (_, want) = norm_reference(&a, &[], &weight, 1e-6);
        assert!(worst(&download(gpu, dtype, out.ptr(), out.len()), &want, width) <= limit(dtype));

        let bad = norm.run(gpu, 4, &NormCall { add: da.ptr(), out_stride: width + 1, ..base });
        assert!(bad.unwrap_err().to_string().contains("out_stride 65 is not a multiple"));
    });
}

#[test]
fn swiglu_matches_f64() {
    each(|gpu, dtype| {
        for inner in [8, 24, 37, 2056] {
            let both = round(dtype, &Numbers(inner as u64).floats(4 * 2 * inner, 6.0));
            let mut broken = both.clone();
            broken[2 * 2 * inner..3 * 2 * inner].fill(f32::NAN);
            let input = upload(gpu, dtype, &broken);
            let seq = gpu.upload("seq", &[0i32, 0, -1, 1]).unwrap();
            let out = poisoned::<u8>(gpu, 4 * inner * dtype.bytes());
            Swiglu::new(gpu, dtype, inner).unwrap().run(gpu, 4, seq.ptr(), input.ptr(), out.ptr()).unwrap();
            let got = download(gpu, dtype, out.ptr(), out.len());
            for (r, (got, both)) in got.chunks(inner).zip(both.chunks(2 * inner)).enumerate() {
                let want: Vec<f32> = (0..inner)
                    .map(|i| (f64::from(both[i]), f64::from(both[inner + i])))
                    .map(|(gate, up)| (gate / (1.0 + (-gate).exp()) * up) as f32)
                    .collect();
                match r {
                    2 => assert!(got.iter().all(|x| x.to_bits() == 0), "padding"),
                    _ => assert!(worst(got, &want, inner) <= limit(dtype), "{dtype:?} {inner}"),
                }
            }
        }
    });
}

/// Public faults 26 and 27: the accepted rows 0, 2, 5 end in rows 0, 1, 2 behind the past, on every layer and for every
/// sequence, and nothing else moves.
#[test]
fn fault_26_the_path_is_dense_on_every_layer() {
    const PATHS: [&[u32]; 4] = [&[0, 2, 5], &[0], &[], &[0, 1, 3, 4, 6, 9, 11, 12, 15, 17, 18, 25]];
    const STARTS: [u32; 4] = [10, 0, 7, 3];
    let (layers, room, most) = (5usize, 40usize, 14usize);
    for gpu in gpus() {
        for bytes in [2usize, 12, 40, 48, 1152, 4096] {
            let mut numbers = Numbers(bytes as u64);
            let rows = room * PATHS.len() + 1;
            let before: Vec<Vec<u8>> =
                (0..layers).map(|_| (0..rows * bytes).map(|_| numbers.bits() as u8).collect()).collect();
            let caches: Vec<_> = before.iter().map(|b| gpu.upload("cache", b).unwrap()).collect();
            let bases: Vec<u64> = caches.iter().map(|c| c.ptr().0).collect();
            let mut path = vec![u32::MAX; PATHS.len() * most];
            PATHS.iter().enumerate().for_each(|(s, p)| path[s * most..][..p.len()].copy_from_slice(p));
            let words = |x: &[u32]| gpu.upload("words", x).unwrap();
            let (kv, start) = (words(&[0, 40, 80, 120]), words(&STARTS));
            let (path, len) = (words(&path), words(&PATHS.map(|p| p.len() as u32)));
            let bases = gpu.upload("bases", &bases).unwrap();
            let call = GatherKvCall {
                bases: bases.ptr(),
                layers: layers as u32,
                seq_kv: kv.ptr(),
                seq_start: start.ptr(),
                path: path.ptr(),
                path_len: len.ptr(),
                max_path: most as u32,
            };
            GatherKv::new(&gpu, bytes).unwrap().run(&gpu, 4, &call).unwrap();
            for (cache, before) in caches.iter().zip(&before) {
                let mut want = before.clone();
                for (s, path) in PATHS.iter().enumerate() {
                    let first = s * room + STARTS[s] as usize;
                    for (i, &from) in path.iter().enumerate() {
                        let row = (first + from as usize) * bytes;
                        want[(first + i) * bytes..][..bytes].copy_from_slice(&before[row..][..bytes]);
                    }
                }
                assert_eq!(gpu.read_all(cache).unwrap(), want, "{bytes} bytes a row");
            }
        }
        assert!(GatherKv::new(&gpu, 3).is_err());
    }
}

/// Public fault 29: row 2²² of 2304 bytes lies beyond 32 bits; the base lies before its memory by as much.
#[test]
fn fault_29_far_rows_are_gathered() {
    for gpu in gpus() {
        let (bytes, far) = (2304usize, 1u32 << 22);
        let before: Vec<u8> = (0..8 * bytes).map(|i| (i / bytes) as u8).collect();
        let cache = gpu.upload("cache", &before).unwrap();
        let bases = gpu.upload("bases", &[cache.ptr().0.wrapping_sub(u64::from(far) * bytes as u64)]).unwrap();
        let words = |x: &[u32]| gpu.upload("words", x).unwrap();
        let (kv, start, path, len) = (words(&[far]), words(&[1]), words(&[0, 3, 5]), words(&[3]));
        let call = GatherKvCall {
            bases: bases.ptr(),
            layers: 1,
            seq_kv: kv.ptr(),
            seq_start: start.ptr(),
            path: path.ptr(),
            path_len: len.ptr(),
            max_path: 3,
        };
        GatherKv::new(&gpu, bytes).unwrap().run(&gpu, 1, &call).unwrap();
        let after: Vec<u8> = gpu.read_all(&cache).unwrap().iter().step_by(bytes).copied().collect();
        assert_eq!(after, [0, 1, 4, 6, 4, 5, 6, 7]);
    }
}

#[test]
fn features_follow_the_path_with_their_places() {
    each(|gpu, dtype| {
        for width in [8, 37, 3 * 2048] {
            let src = round(dtype, &Numbers(5).floats(9 * width, 1.0));
            let on_device = upload(gpu, dtype, &src);
            let words = |x: &[u32]| gpu.upload("words", x).unwrap();
            let (begin, path) = (words(&[0, 6, 0]), words(&[0, 2, 5, 9, 0, 2, 9, 9, 9, 9, 9, 9]));
            let (len, start, kv) = (words(&[3, 2, 0]), words(&[10, 4, 0]), words(&[100, 200, 0]));
            let dst = poisoned::<u8>(gpu, 12 * width * dtype.bytes());
            let (position, kv_row) = (poisoned::<u32>(gpu, 12), poisoned::<u32>(gpu, 12));
            let call = GatherRowsCall {
                src: on_device.ptr(),
                seq_begin: begin.ptr(),
                path: path.ptr(),
                path_len: len.ptr(),
                max_path: 4,
                dst: dst.ptr(),
                seq_start: start.ptr(),
                seq_kv: kv.ptr(),
                position: position.ptr(),
                kv_row: kv_row.ptr(),
                sink: 999,
            };
            GatherRows::new(gpu, dtype, width).unwrap().run(gpu, 3, &call).unwrap();
            let got = download(gpu, dtype, dst.ptr(), dst.len());
            let from = [Some(0), Some(2), Some(5), None, Some(6), Some(8), None, None, None, None, None, None];
            for (got, from) in got.chunks(width).zip(from) {
                let want = from.map_or(vec![0.0; width], |r| src[r * width..][..width].to_vec());
                assert_eq!(got, want, "{dtype:?} {width}");
            }
            let sink = 999;
            assert_eq!(gpu.read_all(&position).unwrap(), [10, 11, 12, 0, 4, 5, 0, 0, 0, 0, 0, 0]);
            let rows = [110, 111, 112, sink, 204, 205, sink, sink, sink, sink, sink, sink];
            assert_eq!(gpu.read_all(&kv_row).unwrap(), rows);
        }
    });
}
