//! One rank's part of a model: the parts add up to the whole, and forced routes are followed.

mod rig;

use rig::{Rig, Span, model, reference, tokens, worst};
use std::sync::mpsc::channel;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::model::{Head, Part, Shard};
use treeline_cuda::ops::rows::Bucket;
use treeline_cuda::testing::{Numbers, gpus};

/// A second device of the same kind.
fn another(gpu: &Gpu) -> Gpu {
    if gpu.info().name == "emulator" { Gpu::emulated().unwrap() } else { Gpu::open(0).unwrap() }
}

/// Two ranks, each with its part of the weights; the sums that a collective would make are made here by hand, at the place
/// where it would run.
#[test]
fn the_parts_of_two_ranks_make_the_whole() {
    for gpu in gpus() {
        for name in ["deepseek_v3", "deepseek_v3_plain", "qwen3", "qwen3_moe", "llama"] {
            let mut noise = Numbers(2);
            let (past, own) = (tokens(&mut noise, 13), tokens(&mut noise, 6));
            let parents = [0, 0, 1, 1, 0, 4];
            let (to_second, from_first) = channel::<Vec<f32>>();
            let (to_first, from_second) = channel::<Vec<f32>>();
            let mut links = vec![(to_second, from_second), (to_first, from_first)];
            let mut halves: Vec<Vec<Vec<f32>>> = Vec::new();
            std::thread::scope(|scope| {
                let ranks: Vec<_> = (0..2)
                    .map(|rank| {
                        let (send, receive) = links.remove(0);
                        let (gpu, past, own) = (gpu.clone(), past.clone(), own.clone());
                        scope.spawn(move || {
                            let gpu = another(&gpu);
                            let mut rig = Rig::with(&gpu, name, Dtype::F32, Shard { rank, ranks: 2 }, &[]);
                            let mut rows = Vec::new();
                            for span in [Span::chunk(0, 0, &past), Span::tree(0, 13, &own, &parents)] {
                                let bucket = rig.plan(&[span], Bucket { rows: 1, seqs: 0 });
                                let len = bucket.rows as usize * rig.target.config().hidden;
                                let at = rig.work.y();
                                let mut probe = |part: Part, _: usize| {
                                    if part == Part::Reduce {
                                        let mine: Vec<f32> = gpu.read(at, len)?;
                                        send.send(mine.clone()).unwrap();
                                        let other = receive.recv().unwrap();
                                        let sum: Vec<f32> = mine.iter().zip(&other).map(|(a, b)| a + b).collect();
                                        gpu.copy_in(at, &sum)?;
                                    }
                                    Ok(true)
                                };
                                let (plan, cache) = (rig.plan.ptrs(), &rig.cache);
                                let all = Head::All;
                                rig.target
                                    .forward_probed(&gpu, bucket, plan, cache, &rig.work, all, &mut probe)
                                    .unwrap();
                                rows = rig.logits(rig.plan.len() as u32);
                            }
                            rows
                        })
                    })
                    .collect();
                halves = ranks.into_iter().map(|r| r.join().unwrap()).collect();
            });
            let want = reference(&model(name), &past, &own, Some(&parents));
            for (row, want) in want.iter().enumerate() {
                let got = [halves[0][row].clone(), halves[1][row].clone()].concat();
                let error = worst(&got, want);
                assert!(error < 1e-4, "{name}, row {row}: {error:e}");
                assert!(worst(&[halves[0][row].clone(), halves[0][row].clone()].concat(), want) > 0.1);
            }
        }
    }
}
