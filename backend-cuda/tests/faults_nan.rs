//! Unusable numbers of one request, which end that request alone.

mod pairs;

use pairs::alone::Alone;
use pairs::passes::{batch, rooted, trees, verify};
use pairs::{KIMI, Names, Noise, Script, decode, engine, fixture, plain_on_cpu, policy, requests, respond};
use serde_json::json;
use std::path::Path;
use treeline_core::{End, Engine, Fault, Law, Request, Sampling};
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::engine::{CudaPair, DrafterSource, PairOptions};
use treeline_cuda::testing::gpus;

/// A token that no prompt of these tests has by chance and that the target does not emit behind them.
fn rare(names: Names, requests: &[Request]) -> u32 {
    let text = plain_on_cpu(&names.on_cpu(), requests, &Law::Greedy).concat();
    // Prompts end below 60, 62 is the drafter's mask.
    [60, 61, 63].into_iter().find(|t| !text.contains(t)).expect("all three are emitted")
}

/// A copy of a target's folder in which one row of the embedding is NaN.
fn poisoned(name: &str, token: u32, into: &Path) {
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), into.join(file)).unwrap();
    }
    let path = into.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let (_, tensor) = json.as_object().unwrap().iter().find(|(name, _)| name.ends_with("embed_tokens.weight")).unwrap();
    let begin = 8 + header + tensor["data_offsets"][0].as_u64().unwrap() as usize;
    let bytes_of = if tensor["dtype"] == "BF16" { 2 } else { 4 };
    let row = tensor["shape"][1].as_u64().unwrap() as usize * bytes_of;
    bytes[begin + token as usize * row..][..row].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

/// The pair with a poisoned target.
fn poisoned_pair(gpu: &Gpu, names: Names, token: u32, into: &Path) -> CudaPair {
    poisoned(names.target, token, into);
    let drafter = DrafterSource::Dflash { dir: fixture(names.drafter) };
    let options = PairOptions { dtype: Dtype::F32, context: pairs::CONTEXT };
    CudaPair::load(gpu, into, &drafter, &options).unwrap()
}

/// Public faults 2 and 7: a NaN prompt ends its request alone, with its reason; the neighbours, and the next request in the
/// same slot, get what they get without it.
#[test]
fn fault_02_and_07_nan_ends_one_request_alone() {
    for gpu in gpus() {
        let folder = tempfile::tempdir().unwrap();
        let clean = requests(4, 8, Sampling::GREEDY);
        let poison = rare(KIMI, &clean);
        let pair = poisoned_pair(&gpu, KIMI, poison, folder.path());
        let mut engine = engine(&pair, 2);
        let mut policy = policy("best-first", &json!({}), 12, &engine);
        let want = decode(&mut engine, &mut *policy, &clean, &Law::Greedy, 12);
        let mut dirty = clean.clone();
        let bad = Request { id: 77, prompt: vec![3, poison, 4, 5], ..clean[0].clone() };
        dirty.insert(1, bad.clone());
        dirty.insert(3, Request { id: 78, ..bad });
        let got = respond(&mut engine, &mut *policy, &dirty, &Law::Greedy, 12, &mut |_| {});
        let failed: Vec<u64> = got.iter().filter(|r| r.end.is_err()).map(|r| r.request).collect();
        assert_eq!(failed, [77, 78]);
        assert_eq!(got[1].end, Err(Fault::TargetLogits { row: 0 }));
        let rest: Vec<Vec<u32>> = got.into_iter().filter(|r| r.end.is_ok()).map(|r| r.tokens).collect();
        assert_eq!(rest, want, "neighbours");
        assert_eq!(engine.free(), 2);
    }
}

/// The same in the middle of decoding: a root of NaN spoils draft and target of its own sequence, staged and on the device.
#[test]
fn fault_02_and_07_nan_in_the_middle_of_decoding() {
    for gpu in gpus() {
        let folder = tempfile::tempdir().unwrap();
        let poison = 61;
        let pair = poisoned_pair(&gpu, KIMI, poison, folder.path());
        let mut engine = engine(&pair, 3);
        // The verify pass: the second of three trees has the root.
        let mut noise = Noise(2);
        let start = batch(&mut engine, &mut noise, 3);
        let mut trees = trees(&mut noise, &[5, 9, 7]);
        let start = rooted(&start, &trees);
        let clean = verify(&mut engine, &start, &trees, &Law::Greedy);
        trees[1].0[0] = poison;
        let spoilt = verify(&mut engine, &rooted(&start, &trees), &trees, &Law::Greedy);
        assert_eq!(spoilt.1.results()[1], Err(Fault::TargetLogits { row: 0 }));
        for s in [0, 2] {
            assert_eq!(spoilt.1.results()[s], clean.1.results()[s], "sequence {s}");
        }
        assert!(spoilt.0[..5] == clean.0[..5] && spoilt.0[14..] == clean.0[14..], "rows of the neighbours");
        (0..3).for_each(|slot| engine.release(slot));
        // The draft, by a trace that emits the token in its third step.
        let requests = requests(3, 9, Sampling::GREEDY);
        let mut tokens: Vec<Vec<u32>> = (0..3).map(|i| (0..9).map(|j| 5 + i * 9 + j).collect()).collect();
        tokens[1][3] = poison;
        let truth = Script::of(&tokens, &requests);
        let law = Law::Forced(&truth);
        let mut policy = policy("chain", &json!({}), 4, &engine);
        let fused = respond(&mut engine, &mut *policy, &requests, &law, 4, &mut |_| {});
        let staged = respond(&mut engine, &mut Alone(&mut *policy), &requests, &law, 4, &mut |_| {});
        assert_eq!(fused, staged);
        for (i, response) in fused.iter().enumerate() {
            match i {
                1 => assert!(matches!(response.end, Err(Fault::Draft { depth: 1, .. })), "{:?}", response.end),
                _ => assert_eq!((&response.end, &response.tokens), (&Ok(End::Length), &tokens[i])),
            }
        }
    }
}
