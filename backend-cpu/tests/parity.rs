//! Logits of tiny random checkpoints of every family against `transformers` in float64 (training/parity).

mod common;

use common::{Expected, TARGETS, fixture, model, relative_error};
use treeline_core::{Admit, Ask, Batch, DraftView, Drafter, Draw, Engine, Law, Request, Sampling, Seq};
use treeline_cpu::{CpuPair, DrafterSource, EngineSettings, Scorer};

const TOLERANCE: f32 = 1e-4;

#[test]
fn plain_prefixes_match_the_reference() {
    for name in TARGETS {
        let expected = Expected::read(name);
        let mut scorer = Scorer::new(model(name));
        let got = scorer.extend(&expected.ids("plain.tokens"));
        let want = expected.floats("plain.logits");
        for (i, (got, want)) in got.rows().into_iter().zip(want.chunks_exact(got.ncols())).enumerate() {
            let error = relative_error(&got.to_vec(), want);
            assert!(error <= TOLERANCE, "{name}, row {i}: relative error {error:e}");
        }
    }
}

#[test]
fn trees_match_the_reference() {
    for name in TARGETS {
        let expected = Expected::read(name);
        let model = model(name);
        let mut trees = 0;
        while expected.has(&format!("tree{trees}.prefix")) {
            let of = |part: &str| format!("tree{trees}.{part}");
            let mut scorer = Scorer::new(model.clone());
            scorer.extend(&expected.ids(&of("prefix")));
            let got = scorer.tree(&expected.ids(&of("tokens")), &expected.ids(&of("parents")));
            let want = expected.floats(&of("logits"));
            for (i, (got, want)) in got.rows().into_iter().zip(want.chunks_exact(got.ncols())).enumerate() {
                let error = relative_error(&got.to_vec(), want);
                assert!(error <= TOLERANCE, "{name}, tree {trees}, row {i}: relative error {error:e}");
            }
            trees += 1;
        }
        assert_eq!(trees, 4, "{name}");
    }
}

/// The block drafter against its own reference, which has no cache: here the context comes in prompt chunks.
#[test]
fn dflash_blocks_match_the_reference() {
    for (name, target) in [("dflash_qwen3", "qwen3"), ("dflash_kimi", "kimi_k2")] {
        let expected = Expected::read(name);
        let pair = CpuPair::load(&fixture(target), &DrafterSource::Dflash { dir: fixture(name) }).unwrap();
        let tokens = expected.ids("tokens");
        let vocab = pair.target().config().vocab;
        let mut blocks = 0;
        while expected.has(&format!("block{blocks}.start")) {
            let start = expected.ids(&format!("block{blocks}.start"))[0] as usize;
            for chunk in [5, 64] {
                let mut engine = pair.engine(EngineSettings { slots: 2, context: 100, chunk }).unwrap();
                let request = Request {
                    id: 3,
                    prompt: tokens[..start].to_vec(),
                    max_new: 20,
                    eos: Vec::new(),
                    sampling: Sampling::GREEDY,
                };
                while engine.admit(1, &request, &Law::Greedy) == Ok(Admit::More) {}
                let seq = Seq {
                    slot: 1,
                    request: 3,
                    index: 0,
                    start: start as u32,
                    root: tokens[start],
                    left: 20,
                    eos: [].into(),
                    sampling: Sampling::GREEDY,
                    round: 0,
                };
                let batch = Batch { seqs: vec![seq] };
                let ask = [Ask { depth: 7, width: vocab as u32, draw: Draw::Ranked }];
                let (drafter, _, features) = engine.parts();
                let drafts = drafter.draft(&batch, features, &ask).unwrap();
                let want = expected.floats(&format!("block{blocks}.logits"));
                assert_eq!(drafts.depth(0), 7);
                for (level, want) in want.chunks_exact(vocab).enumerate() {
                    let row = drafts.level(0, level as u32 + 1).unwrap();
                    let mut got = vec![0.0; vocab];
                    row.iter().for_each(|c| got[c.token as usize] = c.logp);
                    let norm = want.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln() as f32;
                    let want: Vec<f32> = want.iter().map(|x| x - norm).collect();
                    let error = relative_error(&got, &want);
                    assert!(error <= TOLERANCE, "{name}, start {start}, level {level}: relative error {error:e}");
                }
            }
            blocks += 1;
        }
        assert_eq!(blocks, 7, "{name}");
    }
}
