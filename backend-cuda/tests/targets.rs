//! What a target is made of: ranks' parts that add up to the whole, forced routes, synthetic weights, and what is refused.

mod rig;

use rig::{Rig, STRIDE, Span, fixture, model, reference, tokens, worst};
use std::sync::mpsc::channel;
use treeline_cuda::CudaError;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::model::{Head, LoadOptions, Part, Shard, Synthetic, Target};
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
        for name in ["deepseek_v3", "deepseek_v3_plain", "qwen3", "qwen3_window", "qwen3_moe", "llama"] {
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

/// Distinct experts of each layer are those of the CPU engine; padded rows are routed nowhere (public fault 36).
#[test]
fn fault_36_distinct_experts_are_those_of_real_rows() {
    for gpu in gpus() {
        for name in ["deepseek_v3", "deepseek_v3_plain", "kimi_k2", "qwen3_moe"] {
            let mut rig = Rig::new(&gpu, name, Dtype::F32);
            let mut scorer = treeline_cpu::Scorer::new(model(name));
            for n in [1, 2, 6] {
                let own = tokens(&mut Numbers(n), n as usize);
                let start = scorer.len() as u32;
                scorer.extend(&own);
                rig.padded(&[Span::chunk(0, start, &own)], Bucket { rows: 5, seqs: 0 });
                assert_eq!(rig.experts(), scorer.experts(), "{name}, {n} rows");
            }
        }
    }
}

/// Rows go to the experts that are asked for, layer by layer, and the count says so.
#[test]
fn forced_routes_are_followed() {
    for gpu in gpus() {
        let mut rig = Rig::new(&gpu, "kimi_k2", Dtype::F32);
        let span = [Span::chunk(0, 0, &[3, 9, 27])];
        let own = rig.run(&span);
        rig.work.force(&gpu).unwrap();
        let forced = rig.work.forced().unwrap();
        let (layers, k) = (rig.target.moe_layers(), rig.target.top_k());
        let mut ids = vec![-1i32; forced.len()];
        for (layer, ids) in ids.chunks_exact_mut(forced.len() / layers).enumerate() {
            for (row, ids) in ids.chunks_exact_mut(k).take(3).enumerate() {
                // The same experts for all rows of layer 0, some others in layer 1, all others in layer 2.
                (0..k).for_each(|i| ids[i] = (i + row * layer * (k / 2)) as i32);
            }
        }
        gpu.copy_in(forced.ptr(), &ids).unwrap();
        let other = rig.run(&span);
        assert_eq!(rig.experts(), [4, 8, 12]);
        assert!(worst(&other[2], &own[2]) > 1e-2);
        // Without a forced expert a row routes itself.
        gpu.copy_in(rig.work.forced().unwrap().ptr(), &vec![-1i32; ids.len()]).unwrap();
        assert!(worst(&rig.run(&span)[2], &own[2]) < 1e-6);
    }
}

/// One rank's work with weights that were made on the device: finite, never zero, the same for one seed, other for another.
#[test]
fn synthetic_weights_give_usable_logits() {
    for gpu in gpus() {
        let config = treeline_checkpoint::TargetConfig::from_dir(&fixture("kimi_k2")).unwrap();
        let logits = |seed: u64, ranks: usize, layers: usize| {
            let (config, shard) = (config.clone(), Shard { rank: ranks - 1, ranks });
            let what = Synthetic { config, layers, shard, positions: STRIDE as usize, seed };
            let mut rig = Rig::of(&gpu, Target::synthetic(&gpu, &what).unwrap(), &[]);
            assert_eq!(rig.target.logits_width(), 64 / ranks);
            rig.run(&[Span::chunk(0, 0, &[1, 2, 3, 4, 5])])
        };
        let first = logits(1, 1, 4);
        let size = first.concat().iter().map(|x| x * x).sum::<f32>() / 320.0;
        assert!(size > 0.05 && size < 20.0, "mean square {size}");
        assert_eq!(first, logits(1, 1, 4));
        assert_ne!(first, logits(2, 1, 4));
        assert_ne!(first, logits(1, 1, 3));
    }
}

/// The error of a load that must fail.
fn refused(gpu: &Gpu, folder: &std::path::Path, options: &LoadOptions) -> CudaError {
    match Target::load(gpu, folder, options) {
        Ok(_) => panic!("{} was loaded", folder.display()),
        Err(e) => e,
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    for gpu in gpus() {
        let options = LoadOptions { dtype: Dtype::F32, shard: Shard::ONE, positions: 64 };
        let message = |name: &str, options: LoadOptions| refused(&gpu, &fixture(name), &options).to_string();
        let far = message("llama", LoadOptions { positions: 257, ..options });
        assert_eq!(far, "`context` is 257; the model goes from 1 to 256 positions");
        let thirds = message("llama", LoadOptions { shard: Shard { rank: 0, ranks: 3 }, ..options });
        assert_eq!(thirds, "4 attention heads cannot be split evenly over 3 ranks");
        let rank = message("llama", LoadOptions { shard: Shard { rank: 2, ranks: 2 }, ..options });
        assert_eq!(rank, "`rank` is 2, but there are 2 ranks");
        let groups = message("kimi_k2", LoadOptions { shard: Shard { rank: 0, ranks: 2 }, ..options });
        assert!(groups.contains("multiples of 32"), "{groups}");
        // A tensor that the model has no place for, and one that is missing, with file and name.
        for (from, to, problem) in [
            ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "the model has no place for it"),
            ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "missing"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let config = std::fs::read_to_string(fixture("llama").join("config.json")).unwrap();
            std::fs::write(folder.path().join("config.json"), config.replace(from, to)).unwrap();
            let weights = fixture("llama").join("model.safetensors");
            std::fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
            let error = refused(&gpu, folder.path(), &options).to_string();
            assert!(error.contains(problem) && error.contains("model.layers."), "{error}");
        }
    }
}

/// The nested form of K2.5: the same text model under `text_config`, tensors behind `language_model.`, beside a vision tower
/// that is not read.
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
    safetensors::serialize_to_file(renamed, None, &folder.path().join("model.safetensors")).unwrap();
    let inner = std::fs::read_to_string(source.join("config.json")).unwrap();
    let outer = format!(
        r#"{{"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": {inner}}}"#
    );
    std::fs::write(folder.path().join("config.json"), outer).unwrap();
    for gpu in gpus() {
        let options = LoadOptions { dtype: Dtype::F32, shard: Shard::ONE, positions: STRIDE as usize };
        let nested = Target::load(&gpu, folder.path(), &options).unwrap();
        let span = [Span::chunk(0, 0, &[1, 2, 3, 4, 5])];
        assert_eq!(Rig::of(&gpu, nested, &[]).run(&span), Rig::new(&gpu, "kimi_k2", Dtype::F32).run(&span));
    }
}

#[test]
fn memory_that_is_not_there_names_what_to_lower() {
    for gpu in gpus() {
        let options = LoadOptions { dtype: Dtype::F32, shard: Shard::ONE, positions: 64 };
        let target = Target::load(&gpu, &fixture("llama"), &options).unwrap();
        let cache = target.cache(&gpu, 1 << 36).unwrap_err();
        assert!(matches!(cache, CudaError::Memory { .. }), "{cache}");
        let work = target.work(&gpu, Bucket { rows: 1 << 31, seqs: 1 }, &[]).unwrap_err();
        assert!(matches!(work, CudaError::Memory { .. }), "{work}");
        for (error, key) in [(cache, "context"), (work, "chunk")] {
            let text = error.to_string();
            assert!(text.contains("out of GPU memory") && text.contains(key), "{text}");
        }
        // The device is as usable as before.
        target.cache(&gpu, 100).unwrap();
    }
}
