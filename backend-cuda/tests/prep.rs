//! What stands between the products of attention and its cache, against f64: bias, norms, rotation, scale, and where it goes.

mod typed;

use treeline_checkpoint::{AttentionFactor, FactorSource, Rope, RopeScaling};
use treeline_cuda::device::{Dtype, Gpu, Ptr};
use treeline_cuda::ops::gqa_prep::{GqaPrep, GqaPrepCall};
use treeline_cuda::ops::mla_prep::{LATENT_EPS, MlaLatentCall, MlaPrep, MlaQueryCall, MlaShape};
use treeline_cuda::ops::rope::RopeTable;
use treeline_cuda::testing::{Numbers, gpus};
use typed::{download, poisoned, round, upload, worst};

/// Row 3 is padding: it writes the sink.
const POSITIONS: [u32; 5] = [0, 5, 6, 0, 63];
const KV_ROWS: [u32; 5] = [2, 9, 4, 11, 0];
const SEQS: [i32; 5] = [0, 0, 0, -1, 1];
const CACHE_ROWS: usize = 12;

fn limit(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-5 } else { 5e-3 }
}

fn rope(dim: usize, interleaved: bool) -> Rope {
    let attention_factor = AttentionFactor { value: 1.25, source: FactorSource::Caller };
    Rope { theta: 10_000.0, dim, interleaved, scaling: RopeScaling::None, attention_factor }
}

/// Norm, where there is a weight, in f64.
fn normed(x: &[f64], weight: Option<&[f32]>, eps: f32) -> Vec<f64> {
    let Some(weight) = weight else { return x.to_vec() };
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x / (mean + f64::from(eps)).sqrt() * f64::from(*w)).collect()
}

/// Turned by a position, in f64 but for the angle, a product of f32 numbers as the models have it.
fn turned(x: &[f64], rope: &Rope, position: u32) -> Vec<f64> {
    let mut out = x.to_vec();
    let half = x.len() / 2;
    for (i, f) in rope.inv_freq().into_iter().enumerate() {
        let (sin, cos) = f64::from(position as f32 * f as f32).sin_cos();
        let (a, b) = if rope.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
        let amplitude = rope.attention_factor.value;
        out[a] = (x[a] * cos - x[b] * sin) * amplitude;
        out[b] = (x[b] * cos + x[a] * sin) * amplitude;
    }
    out
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn narrow(x: Vec<f64>) -> Vec<f32> {
    x.into_iter().map(|x| x as f32).collect()
}

/// Compares the written rows of a cache; the sink is zero and all others are untouched (poisoned).
fn check_cache(got: &[f32], want: &[(u32, Vec<f32>)], dtype: Dtype, part: usize) {
    let width = got.len() / CACHE_ROWS;
    for (r, got) in got.chunks(width).enumerate() {
        match want.iter().find(|(row, _)| *row as usize == r) {
            Some((_, want)) => assert!(worst(got, want, part) <= limit(dtype), "cache row {r}"),
            None if r == 11 => assert!(got.iter().all(|x| x.to_bits() == 0), "sink"),
            None => assert!(got.iter().all(|x| x.is_nan()), "cache row {r} was not to be written"),
        }
    }
}

struct GqaCase {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    interleaved: bool,
    bias: bool,
    norms: bool,
}

fn gqa(gpu: &Gpu, dtype: Dtype, case: &GqaCase) {
    let GqaCase { heads, kv_heads, dim, interleaved, .. } = *case;
    let mut numbers = Numbers(dim as u64);
    let (all, stride) = (heads + 2 * kv_heads, (heads + 2 * kv_heads) * dim + 4);
    let qkv = round(dtype, &numbers.floats(5 * stride, 2.0));
    let mut broken = qkv.clone();
    broken[3 * stride..4 * stride].fill(f32::NAN);
    let (bias, scale) = (numbers.floats(all * dim, 0.5), 0.37);
    let (q_norm, k_norm) = (numbers.floats(dim, 1.5), numbers.floats(dim, 1.5));
    let input = upload(gpu, dtype, &broken);
    let floats = |x: &[f32]| gpu.upload("floats", x).unwrap();
    let (dbias, dq_norm, dk_norm) = (floats(&bias), floats(&q_norm), floats(&k_norm));
    let (position, kv_row) = (gpu.upload("p", &POSITIONS).unwrap(), gpu.upload("r", &KV_ROWS).unwrap());
    let seq = gpu.upload("s", &SEQS).unwrap();
    let bytes = dtype.bytes();
    let q = poisoned::<u8>(gpu, 5 * heads * dim * bytes);
    let [k, v] = [0, 1].map(|_| poisoned::<u8>(gpu, CACHE_ROWS * kv_heads * dim * bytes));
    let rope = rope(dim, interleaved);
    let table = RopeTable::new(gpu, &rope, 64).unwrap();
    let prep = GqaPrep::new(gpu, dtype, heads, kv_heads, dim, interleaved).unwrap();
    let some = |on: bool, at: Ptr| if on { at } else { Ptr::NULL };
    let call = GqaPrepCall {
        qkv: input.ptr(),
        stride,
        bias: some(case.bias, dbias.ptr()),
        q_norm: some(case.norms, dq_norm.ptr()),
        k_norm: some(case.norms, dk_norm.ptr()),
        eps: 1e-5,
        scale,
        position: position.ptr(),
        kv_row: kv_row.ptr(),
        seq: seq.ptr(),
        q: q.ptr(),
        k_cache: k.ptr(),
        v_cache: v.ptr(),
    };
    prep.run(gpu, 5, &table, &call).unwrap();

    let part = |r: usize, head: usize| -> Vec<f64> {
        let bias = if case.bias { wide(&bias[head * dim..][..dim]) } else { vec![0.0; dim] };
        wide(&qkv[r * stride + head * dim..][..dim]).iter().zip(bias).map(|(x, b)| x + b).collect()
    };
    let rotated = |r: usize, head: usize, weight: &[f32]| {
        turned(&normed(&part(r, head), case.norms.then_some(weight), 1e-5), &rope, POSITIONS[r])
    };
    let got = download(gpu, dtype, q.ptr(), q.len());
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for r in 0..5 {
        let queries = &got[r * heads * dim..][..heads * dim];
        if SEQS[r] < 0 {
            assert!(queries.iter().all(|x| x.to_bits() == 0), "padding");
            continue;
        }
        for (h, got) in queries.chunks(dim).enumerate() {
            let want = rotated(r, h, &q_norm).iter().map(|x| x * f64::from(scale)).collect();
            assert!(worst(got, &narrow(want), dim) <= limit(dtype), "{dtype:?}: query of row {r}, head {h}");
        }
        let cached = |f: &dyn Fn(usize) -> Vec<f64>| narrow((0..kv_heads).flat_map(f).collect());
        keys.push((KV_ROWS[r], cached(&|h| rotated(r, heads + h, &k_norm))));
        values.push((KV_ROWS[r], cached(&|h| part(r, heads + kv_heads + h))));
    }
    check_cache(&download(gpu, dtype, k.ptr(), k.len()), &keys, dtype, dim);
    check_cache(&download(gpu, dtype, v.ptr(), v.len()), &values, dtype, dim);
}

#[test]
fn queries_keys_and_values_match_f64() {
    let case =
        |heads, kv_heads, dim, interleaved, bias, norms| GqaCase { heads, kv_heads, dim, interleaved, bias, norms };
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            gqa(&gpu, dtype, &case(4, 2, 128, false, false, true));
            gqa(&gpu, dtype, &case(6, 3, 64, false, true, false));
            gqa(&gpu, dtype, &case(0, 2, 128, false, false, true));
            gqa(&gpu, dtype, &case(2, 1, 256, true, true, true));
            gqa(&gpu, dtype, &case(3, 1, 10, true, false, true));
            gqa(&gpu, dtype, &case(1, 1, 6, false, true, true));
        }
    }
}

fn mla(gpu: &Gpu, dtype: Dtype, shape: MlaShape) {
    let MlaShape { heads, q_rank, kv_lora, nope, rope: turning, interleaved } = shape;
    let mut numbers = Numbers((q_rank + kv_lora) as u64);
    let (stride, key, head) = (q_rank + kv_lora + turning, kv_lora + turning, nope + turning);
    let down = round(dtype, &numbers.floats(5 * stride, 2.0));
    let q = round(dtype, &numbers.floats(5 * heads * head, 1.0));
    let (mut broken_down, mut broken_q) = (down.clone(), q.clone());
    broken_down[3 * stride..4 * stride].fill(f32::NAN);
    broken_q[3 * heads * head..4 * heads * head].fill(f32::NAN);
    let (q_norm, kv_norm, scale) = (numbers.floats(q_rank, 1.5), numbers.floats(kv_lora, 1.5), 0.21);
    let (ddown, dq) = (upload(gpu, dtype, &broken_down), upload(gpu, dtype, &broken_q));
    let floats = |x: &[f32]| gpu.upload("floats", x).unwrap();
    let (dq_norm, dkv_norm) = (floats(&q_norm), floats(&kv_norm));
    let (position, kv_row) = (gpu.upload("p", &POSITIONS).unwrap(), gpu.upload("r", &KV_ROWS).unwrap());
    let seq = gpu.upload("s", &SEQS).unwrap();
    let bytes = dtype.bytes();
    let q_low = poisoned::<u8>(gpu, 5 * q_rank * bytes);
    let cache = poisoned::<u8>(gpu, CACHE_ROWS * key * bytes);
    let absorbed = poisoned::<u8>(gpu, 5 * heads * key * bytes);
    let rope = rope(turning, interleaved);
    let table = RopeTable::new(gpu, &rope, 64).unwrap();
    let prep = MlaPrep::new(gpu, dtype, shape).unwrap();
    let latent = MlaLatentCall {
        down: ddown.ptr(),
        stride,
        q_norm: dq_norm.ptr(),
        kv_norm: dkv_norm.ptr(),
        position: position.ptr(),
        kv_row: kv_row.ptr(),
        seq: seq.ptr(),
        q_low: q_low.ptr(),
        cache: cache.ptr(),
    };
    prep.latent(gpu, 5, &table, &latent).unwrap();
    let (at, seq) = (position.ptr(), seq.ptr());
    let query = MlaQueryCall { q: dq.ptr(), absorbed: absorbed.ptr(), scale, position: at, seq };
    prep.query(gpu, 5, &table, &query).unwrap();

    let low = download(gpu, dtype, q_low.ptr(), q_low.len());
    let (scaled, tails) =
        (download(gpu, dtype, dq.ptr(), dq.len()), download(gpu, dtype, absorbed.ptr(), absorbed.len()));
    let mut keys = Vec::new();
    for r in 0..5 {
        let low = &low[r * q_rank..][..q_rank];
        let zero = |x: &[f32]| SEQS[r] < 0 && x.iter().all(|x| x.to_bits() == 0);
        let from = &down[r * stride..][..stride];
        let want = narrow(normed(&wide(&from[..q_rank]), Some(&q_norm), LATENT_EPS));
        assert!(zero(low) || q_rank == 0 || worst(low, &want, q_rank) <= limit(dtype), "{dtype:?} {shape:?}: row {r}");
        for h in 0..heads {
            let from = wide(&q[(r * heads + h) * head..][..head]);
            let got = &scaled[(r * heads + h) * head..][..nope];
            let want: Vec<f64> = from[..nope].iter().map(|x| x * f64::from(scale)).collect();
            assert!(zero(got) || worst(got, &narrow(want), nope) <= limit(dtype));
            let (untouched, got) = tails[(r * heads + h) * key..][..key].split_at(kv_lora);
            let want = turned(&from[nope..], &rope, POSITIONS[r]).iter().map(|x| x * f64::from(scale)).collect();
            assert!(zero(got) || worst(got, &narrow(want), turning) <= limit(dtype));
            assert!(untouched.iter().all(|x| x.is_nan()), "the absorbed part belongs to the product");
        }
        if SEQS[r] >= 0 {
            let mut key = normed(&wide(&from[q_rank..][..kv_lora]), Some(&kv_norm), LATENT_EPS);
            key.extend(turned(&wide(&from[q_rank + kv_lora..]), &rope, POSITIONS[r]));
            keys.push((KV_ROWS[r], narrow(key)));
        }
    }
    check_cache(&download(gpu, dtype, cache.ptr(), cache.len()), &keys, dtype, key);
}

#[test]
fn latents_and_latent_queries_match_f64() {
    let shape =
        |heads, q_rank, kv_lora, nope, rope, interleaved| MlaShape { heads, q_rank, kv_lora, nope, rope, interleaved };
    for gpu in gpus() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            mla(&gpu, dtype, shape(8, 1536, 512, 128, 64, true));
            mla(&gpu, dtype, shape(3, 0, 128, 16, 16, true));
            mla(&gpu, dtype, shape(2, 24, 16, 8, 8, false));
            mla(&gpu, dtype, shape(2, 22, 18, 6, 6, true));
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    for gpu in gpus() {
        assert!(GqaPrep::new(&gpu, Dtype::F32, 1, 1, 7, false).is_err());
        let odd = MlaShape { heads: 1, q_rank: 0, kv_lora: 16, nope: 8, rope: 5, interleaved: true };
        assert!(MlaPrep::new(&gpu, Dtype::F32, odd).is_err());
    }
}
