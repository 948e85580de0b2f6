//! Captured graphs against the same padded passes run eagerly: bit for bit, whatever the size, the order and the batch.

mod pairs;

use pairs::passes::{Pass, batch, rooted, trees, verify};
use pairs::{CONTEXT, KIMI, Noise, QWEN, decode, engine, policy, requests, settings};
use serde_json::json;
use std::collections::BTreeMap;
use treeline_core::{Ask, Batch, DraftView, Drafter, Draw, Law, Sampling};
use treeline_cuda::device::{Arch, Dtype, Gpu};
use treeline_cuda::engine::{CudaEngine, CudaPair, CudaSettings};
use treeline_cuda::testing::gpus;

fn both(pair: &CudaPair, slots: u32, nodes: u32) -> [CudaEngine; 2] {
    let settings = CudaSettings { chunk: 64, ..CudaSettings::new(slots, pair.options().context, nodes) };
    [true, false].map(|graphs| pair.engine(CudaSettings { graphs, ..settings }).unwrap())
}

fn pair(gpu: &Gpu, names: pairs::Names, dtype: Dtype) -> CudaPair {
    names.with_context(gpu, dtype, if names == QWEN { CONTEXT } else { CONTEXT + 256 })
}

/// The largest tree behind the prompts of these tests.
fn room(pair: &CudaPair) -> usize {
    pair.options().context as usize - 40
}

/// Sizes of a device: every one on a GPU, those where faults lived on the emulator.
fn sizes(gpu: &Gpu) -> (Vec<usize>, Vec<u32>) {
    match gpu.info().arch {
        Arch::Host => (vec![1, 2, 5, 8, 9, 13, 30, 31, 32, 33, 34, 37, 65, 257], vec![1, 3]),
        _ => ((1..=257).collect(), (1..=8).collect()),
    }
}

/// Public faults 30, 31, 32 and 34: every raw number of rows, in batches of trees of different sizes, large and small in
/// turn, gives from its graph the bits that it gives eagerly. Outputs are poisoned before each pass, and a pass before has
/// left its rows in the padding.
#[test]
fn fault_30_to_34_graph_and_eager_are_equal_for_every_size() {
    for gpu in gpus() {
        let (rows, batches) = sizes(&gpu);
        for (names, dtype) in [(QWEN, Dtype::Bf16), (KIMI, Dtype::F32), (KIMI, Dtype::Bf16)] {
            let pair = pair(&gpu, names, dtype);
            for &seqs in &batches {
                let mut engines = both(&pair, seqs, 256);
                let starts: Vec<Batch> = engines.iter_mut().map(|engine| batch(engine, &mut Noise(9), seqs)).collect();
                // A large pass behind each small one: what it leaves must not show.
                for &n in rows.iter().filter(|n| **n <= room(&pair)) {
                    let mut noise = Noise(n as u64);
                    let shares: Vec<usize> = (0..seqs as usize).map(|s| (n + s * 7 - 1) % n + 1).collect();
                    let shares = if seqs == 1 { vec![n] } else { shares };
                    let trees = trees(&mut noise, &shares);
                    let passes: Vec<Pass> = engines
                        .iter_mut()
                        .zip(&starts)
                        .map(|(engine, start)| verify(engine, &rooted(start, &trees), &trees, &Law::Greedy))
                        .collect();
                    let [graph, eager] = &passes[..] else { panic!("two engines") };
                    assert!(graph.0 == eager.0, "{names:?}: {n} rows, batch {seqs}: logits");
                    assert_eq!(graph.1.results(), eager.1.results(), "{names:?}: {n} rows, batch {seqs}");
                    assert_eq!(graph.1.experts(), eager.1.experts());
                    assert!(graph.1.graph().is_some() && eager.1.graph().is_none());
                }
            }
        }
    }
}

/// The seed of all faults: captured at one size, then used at another and back (30–34, 37, 256, 1), a graph gives what it
/// gave first, and the poison shows nowhere.
#[test]
fn fault_32_alternating_shapes_keep_their_bits() {
    for gpu in gpus() {
        let pair = pair(&gpu, KIMI, Dtype::F32);
        let [mut engine, _] = both(&pair, 4, 256);
        let start = batch(&mut engine, &mut Noise(3), 4);
        let mut first: BTreeMap<usize, Vec<Vec<u32>>> = BTreeMap::new();
        for round in 0..2 {
            for n in [4, 8, 12, 16, 30, 31, 32, 33, 34, 37, 64, 120] {
                let trees = trees(&mut Noise(n as u64), &[n / 4, n / 4, n / 4, n - 3 * (n / 4)]);
                let bits = verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy).0;
                assert!(bits.iter().flatten().all(|&b| !f32::from_bits(b).is_nan()), "{n} rows: poison");
                let same = first.entry(n).or_insert_with(|| bits.clone());
                assert!(*same == bits, "{n} rows, round {round}");
            }
        }
    }
}

/// Public fault 33: drafts between two passes, from graphs of their own, change nothing in what the passes wrote.
#[test]
fn fault_33_drafts_do_not_touch_the_targets_outputs() {
    for gpu in gpus() {
        let pair = pair(&gpu, QWEN, Dtype::F32);
        let [mut engine, _] = both(&pair, 2, 64);
        let start = batch(&mut engine, &mut Noise(3), 2);
        let trees = trees(&mut Noise(8), &[9, 24]);
        let start = rooted(&start, &trees);
        let want = verify(&mut engine, &start, &trees, &Law::Greedy).0;
        let ask = [Ask { depth: 7, width: 8, draw: Draw::Ranked }; 2];
        for _ in 0..3 {
            let (drafter, verifier, features) = treeline_core::Engine::parts(&mut engine);
            let drafts = drafter.draft(&start, features, &ask).unwrap();
            assert_eq!(drafts.depth(0), 7);
            let kept: Vec<Vec<u32>> =
                (0..33).map(|row| verifier.logits(row).unwrap().into_iter().map(f32::to_bits).collect()).collect();
            assert!(kept == want, "a draft wrote over logits");
            assert!(verify(&mut engine, &start, &trees, &Law::Greedy).0 == want);
        }
    }
}

/// Public fault 35: captured again and again, graphs give the same bits.
#[test]
fn fault_35_repeated_captures_are_the_same() {
    for gpu in gpus() {
        let pair = pair(&gpu, KIMI, Dtype::Bf16);
        let [mut engine, _] = both(&pair, 2, 64);
        let start = batch(&mut engine, &mut Noise(3), 2);
        let trees = trees(&mut Noise(8), &[9, 24]);
        let want = verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy).0;
        let captures = if gpu.info().arch == Arch::Host { 3 } else { 20 };
        for capture in 0..captures {
            engine.forget_graphs();
            assert_eq!(engine.graphs(), 0);
            let got = verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy).0;
            assert!(got == want, "capture {capture}");
        }
        // Control: a capture that reads one cached value differently than the others did is seen.
        engine.forget_graphs();
        let (_, verifier, _) = treeline_core::Engine::parts(&mut engine);
        let at = verifier.cache().part(0).offset(verifier.kv(0) as usize * verifier.cache().row_bytes());
        gpu.copy_in(at, &[0x3f80u16; 2]).unwrap();
        assert!(verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy).0 != want, "the control passes");
    }
}

/// Public faults 37 and 45: every round says which graph ran, and that graph has room for the rows that were verified, not
/// for as many as the budget would allow.
#[test]
fn fault_37_and_45_every_round_names_its_graph() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        for graphs in [true, false] {
            let mut engine = pair.engine(CudaSettings { graphs, ..settings(2) }).unwrap();
            let mut policy = policy("best-first", &json!({}), 24, &engine);
            let requests = requests(3, 10, Sampling::GREEDY);
            let mut seen = Vec::new();
            pairs::respond(&mut engine, &mut *policy, &requests, &Law::Greedy, 24, &mut |view| {
                seen.push((view.log.graph, view.log.rows(), view.log.entries.len() as u32));
            });
            let fits = |graph: u32, rows: u32, seqs: u32| {
                let (room, slots) = (graph & 0xffff, graph >> 16);
                let enough = room >= rows && slots >= seqs;
                enough && f64::from(room) <= f64::from(rows).max(8.0) * 1.125 + 1.0
            };
            for &(graph, rows, seqs) in &seen {
                assert_eq!(graph.is_some(), graphs);
                assert!(graph.is_none_or(|graph| fits(graph, rows, seqs)), "{rows} rows in graph {graph:?}");
            }
            // Control: an engine that ran its widest graph in every round would be seen.
            if let Some(widest) = seen.iter().filter_map(|s| s.0).max_by_key(|graph| graph & 0xffff) {
                assert!(seen.iter().any(|&(_, rows, seqs)| !fits(widest, rows, seqs)), "the control passes");
            }
        }
    }
}

/// Public fault 38: in steady state a round takes no memory and captures nothing.
#[test]
fn fault_38_steady_state_takes_nothing() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        let mut engine = engine(&pair, 2);
        let mut policy = policy("best-first", &json!({}), 16, &engine);
        let requests = requests(3, 12, Sampling::GREEDY);
        decode(&mut engine, &mut *policy, &requests, &Law::Greedy, 16);
        let (taken, graphs) = (gpu.allocations(), engine.graphs());
        assert!(graphs > 0);
        decode(&mut engine, &mut *policy, &requests, &Law::Greedy, 16);
        assert_eq!((gpu.allocations(), engine.graphs()), (taken, graphs));
        // Control: what is new is counted.
        decode(&mut engine, &mut treeline_core::testing::Shape::chain(2), &requests, &Law::Greedy, 2);
        assert!(gpu.allocations() > taken);
    }
}
