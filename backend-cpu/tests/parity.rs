//! Logits of tiny random checkpoints of every family against `transformers` in float64 (training/parity).

mod common;

use common::expected::Expected;
use common::{TARGETS, fixture, model, relative_error};
use treeline_core::{Admit, Ask, Batch, DraftView, Drafter, Draw, Engine, Law, Request, Sampling, Seq};
use treeline_cpu::{CpuPair, DrafterSource, EngineSettings, Model, Scorer};

const TOLERANCE: f32 = 1e-4;

#[test]
fn plain_prefixes_match_the_reference() {
    for name in TARGETS {
        let expected = Expected::read(&fixture(name));
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
        let expected = Expected::read(&fixture(name));
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
        let expected = Expected::read(&fixture(name));
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

/// The nested form of K2.5: the same text model under `text_config`, tensors behind `language_model.`, beside a vision
/// tower that is not read.
#[test]
fn a_nested_text_config_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixture("kimi_k2");
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut renamed: Vec<_> =
        tensors.tensors().into_iter().map(|(name, view)| (format!("language_model.{name}"), view)).collect();
    let extra = vec![0u8; 8];
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &extra).unwrap();
    renamed.push(("vision_tower.patch_embed.weight".into(), view));
    let file = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(renamed, None, &file).unwrap();
    let inner = std::fs::read_to_string(source.join("config.json")).unwrap();
    let outer = format!(
        r#"{{"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": {inner}}}"#
    );
    std::fs::write(folder.path().join("config.json"), outer).unwrap();
    let nested = std::sync::Arc::new(Model::load(folder.path()).unwrap());
    let tokens = Expected::read(&fixture("kimi_k2")).ids("plain.tokens");
    assert_eq!(Scorer::new(nested).extend(&tokens), Scorer::new(model("kimi_k2")).extend(&tokens));
}

/// Largest relative error of a target's plain prefix, with one part of its config replaced.
fn error_with(name: &str, from: &str, to: &str) -> f32 {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
    assert!(config.contains(from), "{name}: {from}");
    std::fs::write(folder.path().join("config.json"), config.replace(from, to)).unwrap();
    std::fs::copy(fixture(name).join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let expected = Expected::read(&fixture(name));
    let model = std::sync::Arc::new(Model::load(folder.path()).unwrap());
    let got = Scorer::new(model).extend(&expected.ids("plain.tokens"));
    let rows = got.rows().into_iter().zip(expected.floats("plain.logits").chunks_exact(got.ncols()));
    rows.map(|(got, want)| relative_error(&got.to_vec(), want)).fold(0.0, f32::max)
}

/// The negative control of parity: each of these settings shows by far more than the tolerance.
#[test]
fn parity_sees_every_setting() {
    for (name, from, to) in [
        ("deepseek_v3", "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 0.9"),
        ("deepseek_v3", "\"topk_group\": 2", "\"topk_group\": 4"),
        ("deepseek_v3", "\"rope_theta\": 10000.0", "\"rope_theta\": 11000.0"),
        ("deepseek_v3_plain", "\"rope_theta\"", "\"rope_interleave\": false, \"rope_theta\""),
        ("kimi_k2", "\"routed_scaling_factor\": 2.827", "\"routed_scaling_factor\": 2.8"),
        ("kimi_k2", "\"factor\": 64.0", "\"factor\": 60.0"),
        ("kimi_k2", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"),
        ("qwen3_window", "\"sliding_window\": 4", "\"sliding_window\": 5"),
        ("qwen3_moe", "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 2"),
        ("llama", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 6.0"),
        ("llama", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.001"),
    ] {
        let (same, other) = (error_with(name, from, from), error_with(name, from, to));
        assert!(same <= TOLERANCE && other > 10.0 * same.max(1e-5), "{name}, {to}: {same:e} and {other:e}");
        assert!(other > TOLERANCE, "{name}, {to}: {other:e}");
    }
}
