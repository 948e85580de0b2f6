//! Classes of public faults between logits and tokens that need a case of their own.

use treeline_cuda::device::{Buffer, Gpu, Ptr};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::ops::sample::{Draw, Sample, SampleArgs, SeqSampling};
use treeline_cuda::ops::topk::{Lattice, TopK, TopKArgs};
use treeline_cuda::testing::gpus;

fn seq(temperature: f32) -> SeqSampling {
    SeqSampling { seed: 5, request: 9, temperature, top_k: 0, top_p: 1.0, unused: 0 }
}

/// Tokens of rows of logits that begin `stride` elements apart; row `i` is row `source[i]` of the pass.
fn tokens(gpu: &Gpu, vocab: usize, logits: Ptr, stride: usize, source: &[u32], sampling: SeqSampling) -> Vec<u32> {
    let mut plan = RowPlan::new(gpu, source.len(), 1, 0).unwrap();
    plan.add(0, 3, &vec![1; source.len()], Sight::Causal).unwrap();
    plan.push(gpu, Bucket { rows: source.len() as u32, seqs: 1 }).unwrap();
    let sampling = gpu.upload("sampling", &[sampling]).unwrap();
    let from = gpu.upload("source", source).unwrap();
    let out: Buffer<u32> = gpu.alloc("out", source.len()).unwrap();
    let args =
        SampleArgs { logits, stride, source: from.ptr(), plan: plan.ptrs(), sampling: sampling.ptr(), out: out.ptr() };
    let op = Sample::new(gpu, vocab, source.len()).unwrap();
    op.run(gpu, Draw::Sample, source.len() as u32, &args).unwrap();
    gpu.read_all(&out).unwrap()
}

/// Public fault 6: the first of equal maxima, wherever in the row they lie, −0 and +0 being equal.
#[test]
fn fault_06_ties_go_to_the_first_maximum() {
    for gpu in gpus() {
        for (first, second) in [(0, 1), (5, 8195), (8191, 8192), (3, 9999), (9998, 9999)] {
            for (a, b) in [(1.0f32, 1.0f32), (-0.0, 0.0), (0.0, -0.0)] {
                let mut row = vec![-3.0f32; 10_000];
                row[first] = a;
                row[second] = b;
                let logits = gpu.upload("logits", &row).unwrap();
                let got = tokens(&gpu, row.len(), logits.ptr(), row.len(), &[0], seq(0.0));
                assert_eq!(got, [first as u32], "{first} and {second}: {a} and {b}");
                // The last maximum is another token: the control.
                assert_eq!(row.iter().rposition(|x| *x >= 0.0), Some(second));
            }
        }
    }
}

/// Public fault 20: what the target excludes is never drawn, whatever the noise. The control allows it.
#[test]
fn fault_20_the_impossible_is_never_drawn() {
    for gpu in gpus() {
        let drawn = |excluded: f32| {
            let rows = 3000;
            let row: Vec<f32> = (0..8).map(|i| if i % 2 == 0 { 0.0 } else { excluded }).collect();
            let logits = gpu.upload("logits", &row.repeat(rows)).unwrap();
            let source: Vec<u32> = (0..rows as u32).map(|i| i % 288).collect();
            let mut plan = RowPlan::new(&gpu, 288, 1, 0).unwrap();
            plan.add(0, 3, &[1; 288], Sight::Causal).unwrap();
            plan.push(&gpu, Bucket { rows: 288, seqs: 1 }).unwrap();
            let sampling = gpu.upload("sampling", &[seq(1.0)]).unwrap();
            let from = gpu.upload("source", &source).unwrap();
            let out: Buffer<u32> = gpu.alloc("out", rows).unwrap();
            let op = Sample::new(&gpu, 8, rows).unwrap();
            let (stride, plan, sampling) = (8, plan.ptrs(), sampling.ptr());
            let args = SampleArgs { logits: logits.ptr(), stride, source: from.ptr(), plan, sampling, out: out.ptr() };
            op.run(&gpu, Draw::Sample, rows as u32, &args).unwrap();
            gpu.read_all(&out).unwrap().iter().filter(|t| **t % 2 == 1).count()
        };
        assert_eq!(drawn(f32::NEG_INFINITY), 0);
        assert!(drawn(-1.0) > 0);
    }
}

/// Public fault 22: row · stride beyond 32 bits. Only the last row is there; the base address lies before it.
#[test]
fn fault_22_far_rows_of_logits_are_reached() {
    for gpu in gpus() {
        let vocab = 100;
        let (stride, last) = ((1usize << 30) + 4, 4u32);
        let far = last as usize * stride;
        assert_ne!(far as u32 as usize, far, "the case is one that 32 bits cannot hold");
        let mut row: Vec<f32> = (0..vocab).map(|i| -(i as f32)).collect();
        row[63] = 5.0;
        let logits = gpu.upload("logits", &row).unwrap();
        let base = Ptr(logits.ptr().0.wrapping_sub(far as u64 * 4));
        let none = u32::MAX;
        for temperature in [0.0, 0.01] {
            let got = tokens(&gpu, vocab, base, stride, &[none, none, none, none, 0], seq(temperature));
            assert_eq!(got, [none, none, none, none, 63]);
        }
        let op = TopK::new(&gpu, vocab, 1, 3).unwrap();
        let lattice = Lattice::new(&gpu, 1, 1, 3).unwrap();
        let source = gpu.upload("source", &[last]).unwrap();
        op.run(&gpu, 1, &TopKArgs { logits: base, stride, source: source.ptr(), out: lattice.ptrs() }).unwrap();
        let token: Vec<u32> = gpu.read(lattice.ptrs().token, 3).unwrap();
        assert_eq!(token, [63, 0, 1]);
    }
}
