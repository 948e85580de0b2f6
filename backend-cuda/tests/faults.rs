//! Faults that public engines had, each a test of the engine; `docs/faults.md` has the table.

mod pairs;

use pairs::passes::{Rows, admit, batch, forest, rooted, trees, verify};
use pairs::{KIMI, Names, Noise, QWEN, engine, plain_on_cpu, policy, requests, respond};
use serde_json::json;
use treeline_core::testing::Shape;
use treeline_core::{
    Ask, Batch, Conditional, DraftView, Drafter, Draw, End, Engine, Law, NodeRef, RoundLog, Sampling, Verifier,
};
use treeline_cuda::device::{Arch, Dtype, Gpu};
use treeline_cuda::engine::{CudaEngine, CudaScorer, CudaSettings};
use treeline_cuda::testing::{gpus, relative_error};

/// Public faults 12 and 13: batches of 4, 2 and 4 again, large trees and small ones: what a large pass leaves in the masks
/// shows in no later one.
#[test]
fn fault_12_and_13_nothing_stays_of_a_larger_pass() {
    for gpu in gpus() {
        let pair = KIMI.on(&gpu, Dtype::F32);
        let mut used = engine(&pair, 4);
        let start = batch(&mut used, &mut Noise(4), 4);
        let take = |sizes: &[usize], seed| -> Vec<Rows> { trees(&mut Noise(seed), sizes) };
        let passes = [take(&[40, 33, 65, 9], 1), take(&[5, 5], 2), take(&[5, 5, 5, 5], 3), take(&[2, 34], 4)];
        for (i, trees) in passes.iter().enumerate() {
            let part = Batch { seqs: start.seqs[..trees.len()].to_vec() };
            let got = verify(&mut used, &rooted(&part, trees), trees, &Law::Greedy);
            let mut fresh = engine(&pair, 4);
            let part = batch(&mut fresh, &mut Noise(4), 4);
            let part = Batch { seqs: part.seqs[..trees.len()].to_vec() };
            let want = verify(&mut fresh, &rooted(&part, trees), trees, &Law::Greedy);
            assert!(got.0 == want.0, "pass {i}");
        }
    }
}

/// Trees that hold every token below the root, so that something is accepted, and every token again below two of them.
fn wide(noise: &mut Noise, n: u32) -> Rows {
    let mut tokens = noise.tokens(1);
    tokens.extend(0..n);
    let mut parents = vec![0; tokens.len()];
    tokens.extend(0..n);
    parents.extend((0..n).map(|i| 1 + i % 2));
    (tokens, parents)
}

/// Public faults 16 and 21: three requests with trees of different sizes get, in one batch, what each gets alone.
#[test]
fn fault_16_and_21_trees_of_different_sizes_in_one_batch() {
    for gpu in gpus() {
        let pair = KIMI.on(&gpu, Dtype::F32);
        let mut engine = pair.engine(CudaSettings::new(3, pairs::CONTEXT, 130)).unwrap();
        let mut noise = Noise(16);
        let start = batch(&mut engine, &mut noise, 3);
        let trees: Vec<Rows> = [20, 64, 64].iter().map(|&n| wide(&mut noise, n)).collect();
        let start = rooted(&start, &trees);
        let all = verify(&mut engine, &start, &trees, &Law::Greedy).1.results().to_vec();
        for i in 0..3 {
            let one = Batch { seqs: vec![start.seqs[i].clone()] };
            let alone = verify(&mut engine, &one, &trees[i..=i], &Law::Greedy);
            assert_eq!(alone.1.results()[0], all[i], "request {i}");
        }
        // Control: each other's trees give other steps.
        let turned = [trees[1].clone(), trees[2].clone(), trees[0].clone()];
        assert_ne!(verify(&mut engine, &start, &turned, &Law::Greedy).1.results(), all);
        assert!(all.iter().any(|step| step.as_ref().unwrap().accepted() > 0), "nothing was accepted");
    }
}

/// Public fault 23: at T = 1 the tokens of many requests follow the target's softmax (χ²); decoded greedily they do not.
#[test]
fn fault_23_sampled_tokens_follow_the_targets_distribution() {
    for gpu in gpus() {
        let samples = if gpu.info().arch == Arch::Host { 2048 } else { 204_800 };
        let pair = Names { target: "llama", drafter: "llama", depth: 1 }.on(&gpu, Dtype::F32);
        let (slots, prompt, root) = (64, [3, 14, 15, 53, 9, 15, 26], 53);
        let mut engine = engine(&pair, slots);
        let seqs = (0..slots).map(|slot| admit(&mut engine, slot, &prompt, root, Sampling::at(1.0))).collect();
        let mut batch = Batch { seqs };
        let trees = vec![(vec![root], vec![0]); slots as usize];
        let forest = forest(&batch, &trees);
        let drafts = Conditional::new(slots as usize, 0);
        let mut deviation = |law: &Law<'_>| {
            let mut counts = vec![0u64; 64];
            let mut p = Vec::new();
            for pass in 0..samples / u64::from(slots) {
                for (slot, seq) in batch.seqs.iter_mut().enumerate() {
                    seq.request = pass * u64::from(slots) + slot as u64;
                }
                let (_, verifier, _) = engine.parts();
                let verdict = verifier.verify(&batch, &forest, &drafts, law).unwrap();
                for result in verdict.results() {
                    counts[result.as_ref().unwrap().emitted[0] as usize] += 1;
                }
                if pass == 0 {
                    let logits = verifier.logits(0).unwrap();
                    treeline_core::sampling::target_dist(&logits, &Sampling::at(1.0), 0, &mut p).unwrap();
                }
            }
            deviations(&counts, &p)
        };
        let right = deviation(&Law::SampleMatch { seed: 1 });
        assert!(right < 4.0, "{right} standard deviations");
        let wrong = deviation(&Law::Greedy);
        assert!(wrong > 6.0, "the control passes: {wrong} standard deviations");
    }
}

/// How far χ² of these counts lies above what `p` makes likely, in standard deviations (Wilson and Hilferty 1931); tokens that
/// expect fewer than 10 samples are pooled.
fn deviations(counts: &[u64], p: &[f64]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    let (mut bins, mut rest): (Vec<(f64, f64)>, (f64, f64)) = (Vec::new(), (0.0, 0.0));
    for (&n, &p) in counts.iter().zip(p) {
        if p * total >= 10.0 {
            bins.push((n as f64, p * total));
        } else {
            rest = (rest.0 + n as f64, rest.1 + p * total);
        }
    }
    match rest.1 >= 10.0 {
        true => bins.push(rest),
        false => bins[0] = (bins[0].0 + rest.0, bins[0].1 + rest.1),
    }
    assert!(bins.len() > 4, "the distribution is too narrow to test anything");
    let chi: f64 = bins.iter().map(|(n, e)| (n - e) * (n - e) / e).sum();
    let k = bins.len() as f64 - 1.0;
    ((chi / k).cbrt() - (1.0 - 2.0 / (9.0 * k))) / (2.0 / (9.0 * k)).sqrt()
}

/// Public fault 24: the root's logits behind one past, in passes of 1, 2, 5 and 9 rows and more: equal to f32 rounding, and the
/// argmax never moves where the margin is above it.
#[test]
fn fault_24_the_number_of_rows_moves_no_argmax() {
    for gpu in gpus() {
        for names in [QWEN, KIMI] {
            let mut engine = engine(&names.on(&gpu, Dtype::F32), 1);
            let start = batch(&mut engine, &mut Noise(24), 1);
            let mut first: Option<Vec<f32>> = None;
            for rows in [1, 2, 5, 9, 17, 33, 65] {
                let mut trees = trees(&mut Noise(rows as u64), &[rows]);
                trees[0].0[0] = 5;
                let bits = verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy).0;
                let got: Vec<f32> = bits[0].iter().map(|b| f32::from_bits(*b)).collect();
                let want = first.get_or_insert_with(|| got.clone());
                let error = relative_error(&got, want);
                assert!(error < 1e-5, "{names:?}: {rows} rows: {error}");
            }
        }
    }
}

/// Keys and values of the first `tokens` rows of a slot, one list a cache array.
fn cached(engine: &mut CudaEngine, gpu: &Gpu, slot: u32, tokens: u32) -> Vec<Vec<f32>> {
    let (_, verifier, _) = engine.parts();
    let (cache, first) = (verifier.cache(), verifier.kv(slot) as usize);
    let part = |i| {
        let at = cache.part(i).offset(first * cache.row_bytes());
        gpu.read(at, tokens as usize * cache.row_bytes() / size_of::<f32>()).unwrap()
    };
    (0..cache.parts()).map(part).collect()
}

/// Public fault 25: after rounds with rejections the caches of target and drafter are those of a fresh prefill.
#[test]
fn fault_25_a_rejection_leaves_nothing_behind() {
    for gpu in gpus() {
        for names in [QWEN, KIMI] {
            let pair = names.on(&gpu, Dtype::F32);
            let prompt = Noise(25).tokens(9);
            let mut used = engine(&pair, 1);
            let mut batch = Batch { seqs: vec![admit(&mut used, 0, &prompt, 4, Sampling::GREEDY)] };
            let ask = [Ask { depth: 7, width: 4, draw: Draw::Ranked }];
            let mut text = prompt.clone();
            for round in 0..4 {
                let seq = &batch.seqs[0];
                let mut tree = trees(&mut Noise(round), &[12]);
                tree[0].0[0] = seq.root;
                let forest = forest(&batch, &tree);
                let (drafter, verifier, features) = used.parts();
                // Every second round without a draft: its features wait.
                if round % 2 == 0 {
                    drafter.draft(&batch, features, &ask).unwrap();
                }
                let drafts = Conditional::new(1, 0);
                let verdict = verifier.verify(&batch, &forest, &drafts, &Law::Greedy).unwrap();
                let mut log = RoundLog::default();
                verifier.commit(&batch, &forest, verdict, features, &mut log).unwrap();
                let step = log.results[0].as_ref().unwrap();
                text.push(seq.root);
                text.extend(&step.emitted[..step.emitted.len() - 1]);
                let seq = &mut batch.seqs[0];
                seq.start += step.emitted.len() as u32;
                seq.root = step.last().unwrap();
            }
            let mut fresh = engine(&pair, 1);
            let again = Batch { seqs: vec![admit(&mut fresh, 0, &text, batch.seqs[0].root, Sampling::GREEDY)] };
            assert_eq!(again.seqs[0].start, batch.seqs[0].start);
            let tokens = again.seqs[0].start;
            let (got, want) = (cached(&mut used, &gpu, 0, tokens), cached(&mut fresh, &gpu, 0, tokens));
            for (part, (got, want)) in got.iter().zip(&want).enumerate() {
                let error = relative_error(got, want);
                assert!(error < 1e-4, "{names:?}: cache array {part}: {error}");
            }
            // The drafter's cache shows in its drafts.
            let drafts = |engine: &mut CudaEngine, batch: &Batch| {
                let (drafter, _, features) = engine.parts();
                let drafts = drafter.draft(batch, features, &ask).unwrap();
                let rows = (0..7).map(|depth| drafts.children(NodeRef { seq: 0, node: 0, depth }).to_vec());
                rows.collect::<Vec<_>>().concat()
            };
            let (got, want) = (drafts(&mut used, &batch), drafts(&mut fresh, &again));
            for (got, want) in got.iter().zip(&want) {
                assert!((got.logp - want.logp).abs() < 1e-3, "{names:?}: {got:?} against {want:?}");
            }
        }
    }
}

/// Public faults 26 and 27: rows 0, 2 and 5 of a tree are moved to the first three places, on every cache array, bit for bit.
#[test]
fn fault_26_and_27_the_accepted_path_is_gathered_on_every_layer() {
    for gpu in gpus() {
        for (names, dtype) in [(QWEN, Dtype::F32), (KIMI, Dtype::Bf16)] {
            let pair = names.on(&gpu, dtype);
            let mut scorer = CudaScorer::new(&gpu, pair.target().clone(), 64).unwrap();
            scorer.extend(&[1, 2, 3]).unwrap();
            scorer.tree(&[7, 8, 9, 10, 11, 12], &[0, 0, 0, 1, 1, 2]).unwrap();
            let rows = |scorer: &mut CudaScorer, at: &[usize]| -> Vec<Vec<Vec<u8>>> {
                let row = |part: &Vec<u8>, i: usize, all: usize| {
                    let bytes = part.len() / all;
                    part[i * bytes..(i + 1) * bytes].to_vec()
                };
                let all = scorer.cached_rows(9).unwrap();
                at.iter().map(|&i| all.iter().map(|part| row(part, 3 + i, 9)).collect()).collect()
            };
            let want = rows(&mut scorer, &[0, 2, 5]);
            // Control: a gather that does nothing would be seen on every array.
            let idle = rows(&mut scorer, &[0, 1, 2]);
            for i in 1..3 {
                assert!(want[i].iter().zip(&idle[i]).all(|(a, b)| a != b), "{names:?}: rows that are equal anyway");
            }
            scorer.commit(&[0, 2, 5]).unwrap();
            assert!(rows(&mut scorer, &[0, 1, 2]) == want, "{names:?}");
            assert_eq!(scorer.len(), 6);
        }
    }
}

/// Public fault 28: many requests through few slots; every slot is free at the end, and nothing was taken on the way.
#[test]
fn fault_28_no_slot_leaks() {
    for gpu in gpus() {
        let count = if gpu.info().arch == Arch::Host { 12 } else { 400 };
        let pair = QWEN.on(&gpu, Dtype::F32);
        let mut engine = engine(&pair, 2);
        let mut all = requests(count, 4, Sampling::GREEDY);
        // Refused requests give their slot back too.
        all[1].prompt.clear();
        all[3].prompt = vec![1; 300];
        let mut policy = policy("chain", &json!({}), 3, &engine);
        let first = respond(&mut engine, &mut *policy, &all, &Law::Greedy, 3, &mut |_| {});
        let taken = gpu.allocations();
        let second = respond(&mut engine, &mut *policy, &all, &Law::Greedy, 3, &mut |_| {});
        assert_eq!(first, second, "what is left of the first run shows");
        assert_eq!((engine.free(), gpu.allocations()), (2, taken));
        let refused: Vec<usize> = (0..count).filter(|&i| second[i].end.is_err()).collect();
        assert_eq!(refused, [1, 3]);
    }
}

/// Public fault 36: padding is routed nowhere. Rows of one token at one position route alike, so beside the root they touch as
/// many experts as one of them, whatever the padding.
#[test]
fn fault_36_only_real_rows_count_as_routed() {
    for gpu in gpus() {
        let pair = KIMI.on(&gpu, Dtype::F32);
        let mut scorer = CudaScorer::new(&gpu, pair.target().clone(), 64).unwrap();
        scorer.extend(&[1, 2, 3]).unwrap();
        let top_k = pair.target().top_k() as u32;
        for padding in [0, 1, 7, 40] {
            scorer.pad(padding);
            for rows in [1, 2, 5, 9, 19] {
                let mut tokens = vec![8; rows];
                tokens[0] = 4;
                scorer.tree(&tokens, &vec![0; rows]).unwrap();
                let most = if rows == 1 { top_k } else { 2 * top_k };
                let experts = scorer.experts().unwrap();
                assert!(!experts.is_empty());
                assert!(
                    experts.iter().all(|u| (top_k..=most).contains(u)),
                    "{rows} rows, {padding} of padding: {experts:?}"
                );
            }
        }
        // Control: padding that were rows of other tokens would count.
        let tokens: Vec<u32> = (0..19).collect();
        scorer.tree(&tokens, &[0; 19]).unwrap();
        assert!(scorer.experts().unwrap().iter().any(|u| *u > 2 * top_k));
    }
}

/// A request beyond the context, and one that fills it, end as they should, and their neighbour does not notice.
#[test]
fn a_full_context_ends_one_request() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        let mut engine = engine(&pair, 2);
        let mut all = requests(2, 10, Sampling::GREEDY);
        let want = plain_on_cpu(&QWEN.on_cpu(), &all[1..], &Law::Greedy);
        all[0].prompt = Noise(1).tokens(196);
        let mut policy = policy("best-first", &json!({}), 16, &engine);
        let got = respond(&mut engine, &mut *policy, &all, &Law::Greedy, 16, &mut |_| {});
        assert_eq!((&got[0].end, got[0].tokens.len()), (&Ok(End::Context), 5));
        assert_eq!(got[1].tokens, want[0]);
        let plain = respond(&mut engine, &mut Shape::chain(0), &all, &Law::Greedy, 0, &mut |_| {});
        assert_eq!(
            got.iter().map(|r| &r.tokens).collect::<Vec<_>>(),
            plain.iter().map(|r| &r.tokens).collect::<Vec<_>>()
        );
    }
}
