//! Top-k of logits and the target's tokens, against the host's candidates, sampling and random stream.

use treeline_core::Sampling;
use treeline_core::draft::{Candidate, top_ranks};
use treeline_core::sampling::target_token;
use treeline_core::stream::Key;
use treeline_cuda::device::{Arch, Gpu, Ptr};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::ops::sample::{Draw, Sample, SampleArgs, SeqSampling};
use treeline_cuda::ops::topk::{Lattice, TopK, TopKArgs};
use treeline_cuda::testing::{Numbers, gpus};

/// How logits are drawn.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Smooth,
    /// Ties everywhere.
    Coarse,
    /// All but equal: log-probabilities become equal by rounding.
    Close,
    Equal,
    Falling,
    Rising,
    /// Mostly −∞.
    Sparse,
    /// One token has nearly everything.
    Sharp,
}

const KINDS: [Kind; 8] =
    [Kind::Smooth, Kind::Coarse, Kind::Close, Kind::Equal, Kind::Falling, Kind::Rising, Kind::Sparse, Kind::Sharp];

fn row(n: &mut Numbers, kind: Kind, vocab: usize) -> Vec<f32> {
    let at = n.below(vocab as u64) as usize;
    let mut of = |i: usize| match kind {
        Kind::Smooth => n.unit() * 12.0,
        Kind::Coarse => n.below(9) as f32 * 0.5 - 2.0,
        Kind::Close => n.unit() * 3e-6,
        Kind::Equal => -0.0,
        Kind::Falling => -(i as f32) * 0.01,
        Kind::Rising => i as f32 * 0.01,
        Kind::Sparse if n.below(40) > 0 && i != at => f32::NEG_INFINITY,
        Kind::Sparse => n.unit() * 3.0,
        Kind::Sharp => {
            if i == at {
                40.0
            } else {
                n.unit()
            }
        }
    };
    (0..vocab).map(&mut of).collect()
}

/// The candidates of one row, given the first one's log-probability: it fixes the f32 normaliser, which sums in another order
/// may round to a neighbour; everything else is exact.
fn candidates(logits: &[f32], width: usize, first: f32) -> Vec<Candidate> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    let norm = f64::from(max) + sum.ln();
    let near = norm as f32;
    let step = |by: i32| f32::from_bits((near.to_bits() as i32 + by) as u32);
    let norm =
        (-3..=3).map(step).find(|norm| max - norm == first).unwrap_or_else(|| panic!("{first} for {max} − {norm}"));
    let logp: Vec<f32> = logits.iter().map(|x| x - norm).collect();
    let mut out = Vec::new();
    top_ranks(&logp, width, 1, &mut out).unwrap();
    out
}

fn top_k(gpu: &Gpu, vocab: usize, width: usize, rows: &[Vec<f32>]) {
    let op = TopK::new(gpu, vocab, rows.len() + 1, width).unwrap();
    let logits = gpu.upload("logits", &rows.concat()).unwrap();
    // Rows in reverse, and one that has no source.
    let mut source: Vec<u32> = (0..rows.len() as u32).rev().collect();
    source.push(u32::MAX);
    let lattice = Lattice::new(gpu, source.len(), 1, width).unwrap();
    let p = lattice.ptrs();
    let from = gpu.upload("source", &source).unwrap();
    let args = TopKArgs { logits: logits.ptr(), stride: vocab, source: from.ptr(), out: p };
    op.run(gpu, source.len() as u32, &args).unwrap();
    let (token, logp): (Vec<u32>, Vec<f32>) =
        (gpu.read(p.token, source.len() * width).unwrap(), gpu.read(p.logp, source.len() * width).unwrap());
    let (count, fault): (Vec<u32>, Vec<u32>) =
        (gpu.read(p.count, source.len()).unwrap(), gpu.read(p.fault, source.len()).unwrap());
    assert_eq!((count[rows.len()], fault[rows.len()]), (0, 0), "no source");
    for (r, &source) in source[..rows.len()].iter().enumerate() {
        let logits = &rows[source as usize];
        let at = format!("row {source} of {vocab} logits, width {width}, on {}", gpu.info().name);
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if logits.iter().any(|x| x.is_nan()) || max.is_infinite() {
            assert_eq!((count[r], fault[r]), (0, 1), "{at}");
            continue;
        }
        let want = candidates(logits, width, logp[r * width]);
        let got: Vec<Candidate> = (0..count[r] as usize)
            .map(|i| Candidate { token: token[r * width + i], logp: logp[r * width + i] })
            .collect();
        assert_eq!((got, fault[r]), (want, 0), "{at}");
        let rest = r * width + count[r] as usize..(r + 1) * width;
        assert!(
            logp[rest.clone()].iter().all(|x| *x == f32::NEG_INFINITY) && token[rest].iter().all(|t| *t == u32::MAX),
            "{at}"
        );
    }
}

#[test]
fn candidates_are_the_hosts() {
    for gpu in gpus() {
        let mut n = Numbers(1);
        for (vocab, widths) in
            [(5, &[1, 3, 8][..]), (64, &[16, 64]), (1003, &[1, 7, 300]), (9000, &[16, 64, 256]), (20_004, &[32])]
        {
            for &width in widths {
                let rows: Vec<Vec<f32>> = KINDS.iter().map(|&kind| row(&mut n, kind, vocab)).collect();
                top_k(&gpu, vocab, width, &rows);
            }
        }
        top_k(&gpu, 20_000, 1024, &[row(&mut n, Kind::Smooth, 20_000), row(&mut n, Kind::Falling, 20_000)]);
        if gpu.info().arch != Arch::Host {
            for width in [16, 64, 256] {
                let rows: Vec<Vec<f32>> = KINDS.iter().map(|&kind| row(&mut n, kind, 163_840)).collect();
                top_k(&gpu, 163_840, width, &rows);
            }
        }
    }
}

/// Public faults 2, 5 and 7: an unusable row is flagged and leaves its neighbours alone; two finite entries are two candidates.
#[test]
fn fault_02_05_and_07_unusable_rows_are_flagged_alone() {
    for gpu in gpus() {
        let mut n = Numbers(2);
        let mut rows: Vec<Vec<f32>> = (0..6).map(|_| row(&mut n, Kind::Smooth, 9000)).collect();
        rows[1][8500] = f32::NAN;
        rows[2].fill(f32::NEG_INFINITY);
        rows[3][17] = f32::INFINITY;
        rows[4].fill(f32::NEG_INFINITY);
        rows[4][100] = 1.0;
        rows[4][8999] = 2.0;
        top_k(&gpu, 9000, 4, &rows);
        rows[2][5] = f32::NAN;
        top_k(&gpu, 9000, 4, &rows);
    }
}

/// Tokens of rows: row `i` belongs to `sampling[i % len]` at position `position(i)`.
fn tokens(
    gpu: &Gpu,
    op: &Sample,
    draw: Draw,
    rows: &[Vec<f32>],
    sampling: &[SeqSampling],
    position: impl Fn(usize) -> u32,
) -> Vec<u32> {
    let (vocab, count) = (rows[0].len(), rows.len());
    let seqs = sampling.len();
    let mut plan = RowPlan::new(gpu, count + 2, count + 1, 0).unwrap();
    for i in 0..count {
        plan.add(0, position(i), &[1], Sight::Causal).unwrap();
    }
    plan.push(gpu, Bucket { rows: count as u32 + 2, seqs: count as u32 }).unwrap();
    // Each row is its own sequence of the plan here; their samplings repeat.
    let of: Vec<SeqSampling> = (0..count).map(|i| sampling[i % seqs]).collect();
    let of = gpu.upload("sampling", &of).unwrap();
    let mut flat = rows.concat();
    flat.extend(vec![f32::NAN; vocab * 2]);
    let logits = gpu.upload("logits", &flat).unwrap();
    let out = gpu.upload("out", &vec![7u32; count + 2]).unwrap();
    let args = SampleArgs {
        logits: logits.ptr(),
        stride: vocab,
        source: Ptr::NULL,
        plan: plan.ptrs(),
        sampling: of.ptr(),
        out: out.ptr(),
    };
    op.run(gpu, draw, count as u32 + 2, &args).unwrap();
    let mut got = gpu.read_all(&out).unwrap();
    assert_eq!(got.split_off(count), [u32::MAX; 2], "padding");
    got
}

fn seq(request: u64, temperature: f32, top_k: u32, top_p: f32) -> SeqSampling {
    SeqSampling { seed: 0xDEAD_BEEF_0123, request, temperature, top_k, top_p, unused: 0 }
}

fn host(logits: &[f32], s: &SeqSampling, position: u32) -> u32 {
    let sampling = Sampling { temperature: s.temperature, top_k: s.top_k, top_p: s.top_p };
    let key = Key::target(s.seed, s.request, position + 1);
    target_token(logits, &sampling, key, 0, &mut Vec::new()).unwrap_or(u32::MAX)
}

#[test]
fn tokens_are_the_hosts() {
    let filters = [
        (0, 1.0),
        (1, 1.0),
        (3, 1.0),
        (40, 1.0),
        (0, 0.9),
        (0, 0.3),
        (0, 0.0),
        (20, 0.8),
        (5, 0.999),
        (9000, 0.5),
        (0, 0.99999),
    ];
    for gpu in gpus() {
        let mut n = Numbers(6);
        let (big, times) = if gpu.info().arch == Arch::Host { (9001, 1) } else { (163_840, 4) };
        for (vocab, rounds) in [(3, 3 * times), (50, 5 * times), (1000, 4 * times), (big, 1)] {
            let op = Sample::new(&gpu, vocab, 100).unwrap();
            for round in 0..rounds {
                let mut rows: Vec<Vec<f32>> = (0..88).map(|i| row(&mut n, KINDS[i % 8], vocab)).collect();
                rows[round][vocab / 2] = f32::NAN;
                rows[round + 20][vocab - 1] = f32::INFINITY;
                rows[round + 40].fill(f32::NEG_INFINITY);
                let temperatures = [1.0, 0.0, 0.3, 2.5, 1e-3, 1e-39];
                let sampling: Vec<SeqSampling> = (0..66)
                    .map(|i| {
                        let (top_k, top_p) = filters[i % filters.len()];
                        seq(n.bits(), temperatures[i / filters.len()], top_k, top_p)
                    })
                    .collect();
                let position = |i: usize| (i * 31) as u32;
                for draw in [Draw::Filter, Draw::Sample, Draw::Greedy] {
                    // What a launch leaves out counts as not asked for.
                    let as_launched = |s: &SeqSampling| match draw {
                        Draw::Filter => *s,
                        Draw::Sample => SeqSampling { top_k: 0, top_p: 1.0, ..*s },
                        Draw::Greedy => SeqSampling { temperature: 0.0, ..*s },
                    };
                    let got = tokens(&gpu, &op, draw, &rows, &sampling, position);
                    for (i, &token) in got.iter().enumerate() {
                        let s = as_launched(&sampling[i % sampling.len()]);
                        let want = host(&rows[i], &s, position(i));
                        assert_eq!(
                            token,
                            want,
                            "{draw:?} row {i} of {vocab} {:?} {s:?}, round {round}, {}",
                            KINDS[i % 8],
                            gpu.info().name
                        );
                    }
                }
            }
        }
    }
}

/// χ² of `counts` against probabilities `p`.
fn chi_square(counts: &[u32], p: &[f64]) -> f64 {
    let total: f64 = counts.iter().map(|c| f64::from(*c)).sum();
    counts.iter().zip(p).map(|(&c, p)| (f64::from(c) - total * p).powi(2) / (total * p)).sum()
}

/// Public fault 23: sampling follows the target's distribution. The controls: a key without the position, and a launch that
/// is greedy.
#[test]
fn fault_23_samples_follow_the_distribution() {
    for gpu in gpus() {
        let batches = if gpu.info().arch == Arch::Host { 4 } else { 50 };
        let logits = [0.0f32, -0.7, 0.4, -1.9, 0.1, -0.2];
        let weights: Vec<f64> = logits.iter().map(|x| f64::from(*x).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let p: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        let rows = vec![logits.to_vec(); 4096];
        let op = Sample::new(&gpu, logits.len(), rows.len() + 2).unwrap();
        let count = |draw, batches, position: &dyn Fn(usize) -> u32| {
            let mut counts = [0u32; 6];
            for batch in 0..batches {
                let sampling = [seq(batch, 1.0, 0, 1.0)];
                tokens(&gpu, &op, draw, &rows, &sampling, position).iter().for_each(|&t| counts[t as usize] += 1);
            }
            counts
        };
        // 5 degrees of freedom: above 37.9 with a probability below 4e-7, above 150 never.
        let good = chi_square(&count(Draw::Sample, batches, &|i| i as u32), &p);
        assert!(good < 37.9, "χ² = {good}");
        for (draw, position) in
            [(Draw::Sample, &|_| 11), (Draw::Greedy, &|i| i as u32)] as [(Draw, &dyn Fn(usize) -> u32); 2]
        {
            let bad = chi_square(&count(draw, 2, position), &p);
            assert!(bad > 150.0, "{draw:?}: χ² = {bad}");
        }
    }
}
