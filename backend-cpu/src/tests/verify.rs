//! The verify pass over batches.

use super::{Noise, admit, dflash_pair, engine, equal, forest, holds, model};
use crate::Scorer;
use crate::kv::SeqKv;
use crate::model::Work;
use crate::plan::Plan;
use crate::seeded::Seeded;
use treeline_core::{Batch, Conditional, Engine, Law, RoundLog, Sampling, Step, Verifier};

/// Results of one pass over given trees, each behind its own prompt.
fn verify(prompts: &[Vec<u32>], trees: &[(Vec<u32>, Vec<u32>)]) -> Vec<Step> {
    let mut engine = engine(&dflash_pair(), prompts.len() as u32);
    let seqs = prompts.iter().zip(trees).enumerate();
    let seqs = seqs.map(|(i, (p, t))| admit(&mut engine, i as u32, p, Some(t.0[0]), Sampling::GREEDY)).collect();
    let batch = Batch { seqs };
    let forest = forest(&batch, trees);
    let drafts = Conditional::new(batch.len(), 0);
    let (_, verifier, features) = engine.parts();
    let verdict = verifier.verify(&batch, &forest, &drafts, &Law::Greedy).unwrap();
    let mut log = RoundLog::default();
    verifier.commit(&batch, &forest, verdict, features, &mut log).unwrap();
    log.results.into_iter().map(Result::unwrap).collect()
}

/// Three requests with trees of different sizes get what each gets alone. The trees hold every token under the root, so
/// that something is accepted.
#[test]
fn fault_16_and_21_trees_of_different_sizes_in_one_batch() {
    let mut noise = Noise(16);
    let prompts: Vec<Vec<u32>> = [7, 13, 4].iter().map(|&n| noise.tokens(n)).collect();
    let trees: Vec<(Vec<u32>, Vec<u32>)> = [20, 64, 64]
        .iter()
        .map(|&n| {
            let mut tokens = noise.tokens(1);
            tokens.extend(0..n);
            let mut parents = vec![0; tokens.len()];
            // And every token again under the first child that is not a leaf.
            tokens.extend(0..n);
            parents.extend((0..n).map(|i| 1 + i % 2));
            (tokens, parents)
        })
        .collect();
    let check = || {
        let all = verify(&prompts, &trees);
        for i in 0..3 {
            let alone = verify(&prompts[i..=i], &trees[i..=i]);
            equal(&all[i], &alone[0], || format!("request {i}"))?;
        }
        // And both agree with the path decoded token by token.
        for (i, step) in all.iter().enumerate() {
            let mut scorer = Scorer::new(dflash_pair().target().clone());
            scorer.extend(&prompts[i]);
            let mut token = trees[i].0[0];
            for &emitted in &step.emitted {
                let row = scorer.extend(&[token]);
                token = treeline_core::sampling::argmax(row.row(0).as_slice().unwrap(), 0).unwrap();
                equal(emitted, token, || format!("request {i}: {:?}", step.emitted))?;
            }
        }
        Ok(())
    };
    holds(Seeded::UniformStride, check);
    holds(Seeded::OwnRow, check);
}

/// The same root behind the same past, verified with 1, 2, 5, 9 rows and in batches up to 130: the same bits.
#[test]
fn fault_24_the_number_of_rows_changes_no_bit() {
    for name in super::FAMILIES {
        let model = model(name);
        holds(Seeded::RowsChangeSums, || {
            let mut noise = Noise(24);
            let past = noise.tokens(11);
            let mut scorer = Scorer::new(model.clone());
            scorer.extend(&past);
            let alone = scorer.tree(&[5], &[0]);
            for rows in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 31, 64, 65, 100, 129, 130] {
                let mut tokens = noise.tokens(rows);
                tokens[0] = 5;
                let got = scorer.tree(&tokens, &noise.parents(rows, 8));
                equal(super::bits(got.row(0)), super::bits(alone.row(0)), || format!("{rows} rows"))?;
            }
            Ok(())
        });
    }
}

/// One row in a batch of 1 … 130 sequences with other pasts and tokens.
#[test]
fn fault_24_the_batch_changes_no_bit() {
    for name in ["kimi_k2", "qwen3_window"] {
        let model = model(name);
        let mut noise = Noise(130);
        let pasts: Vec<Vec<u32>> = (0..130).map(|i| noise.tokens(1 + i % 19)).collect();
        let mut kvs: Vec<SeqKv> = (0..130).map(|_| SeqKv::new(model.kv_shape())).collect();
        let (mut plan, mut work) = (Plan::default(), Work::default());
        plan.clear(true);
        pasts.iter().enumerate().for_each(|(i, past)| plan.chunk(i, 0, past));
        model.forward(&plan, &mut kvs, &[], &mut work);
        let hidden = model.config().hidden;
        let mut last = |seqs: std::ops::Range<usize>, kvs: &mut [SeqKv]| -> Vec<Vec<u32>> {
            plan.clear(true);
            seqs.clone().for_each(|i| plan.chunk(i, pasts[i].len(), &[i as u32 % 60]));
            model.forward(&plan, kvs, &[], &mut work);
            let rows = work.x.chunks_exact(hidden).take(seqs.len());
            rows.map(|x| x.iter().map(|x| x.to_bits()).collect()).collect()
        };
        let all = last(0..130, &mut kvs);
        for size in [1, 2, 3, 5, 7, 8, 12, 33, 64, 129] {
            for from in [0, 1, 130 - size] {
                assert_eq!(last(from..from + size, &mut kvs), all[from..from + size], "{name}: {size} from {from}");
            }
        }
    }
}

/// Rows of the same token at the same position route alike: together they touch as many experts as one of them.
#[test]
fn fault_36_only_real_rows_count_as_routed() {
    for (name, top_k) in [("kimi_k2", 4), ("qwen3_moe", 3)] {
        let model = model(name);
        holds(Seeded::PaddingRouted, || {
            let mut scorer = Scorer::new(model.clone());
            scorer.extend(&[1, 2, 3]);
            for rows in [1, 2, 5, 9] {
                let mut tokens = vec![8; rows];
                tokens[0] = 4;
                scorer.tree(&tokens[..1], &[0]);
                let root = scorer.experts().to_vec();
                scorer.tree(&tokens, &vec![0; rows]);
                let layers = model.moe_layers();
                equal(root, vec![top_k; layers], || format!("one row: {:?}", scorer.experts()))?;
                let most = if rows == 1 { top_k } else { 2 * top_k };
                let within = scorer.experts().iter().all(|&u| (top_k..=most).contains(&u));
                equal(within, true, || format!("{rows} rows: {:?}", scorer.experts()))?;
            }
            Ok(())
        });
    }
}
