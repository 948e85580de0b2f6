//! Whole runs on the device against the CPU engine.

mod pairs;

use pairs::{KIMI, Names, QWEN, WINDOW, decode, engine, plain_on_cpu, policy, requests};
use serde_json::json;
use treeline_core::testing::Shape;
use treeline_core::{Law, Sampling};
use treeline_cuda::device::Dtype;
use treeline_cuda::testing::gpus;

/// Greedy text under every policy equals the CPU engine's plain decoding, in batches, with ragged ends.
#[test]
fn greedy_text_equals_the_cpu_engines() {
    for gpu in gpus() {
        for names in [QWEN, KIMI, WINDOW] {
            let pair = names.on(&gpu, Dtype::F32);
            let requests = requests(5, 20, Sampling::GREEDY);
            let want = plain_on_cpu(&names.on_cpu(), &requests, &Law::Greedy);
            let mut engine = engine(&pair, 3);
            let got = decode(&mut engine, &mut Shape::chain(0), &requests, &Law::Greedy, 0);
            assert_eq!(got, want, "{names:?}: plain");
            for (kind, budget) in [("chain", 7), ("best-first", 16), ("top-k", 9)] {
                let params = if kind == "top-k" { json!({ "width": 3 }) } else { json!({}) };
                let mut policy = policy(kind, &params, budget, &engine);
                let got = decode(&mut engine, &mut *policy, &requests, &Law::Greedy, budget);
                assert_eq!(got, want, "{names:?}: {kind}");
            }
            assert_eq!(engine.free(), 3);
        }
    }
}

#[allow(dead_code)]
fn all() -> [Names; 3] {
    [QWEN, KIMI, WINDOW]
}
