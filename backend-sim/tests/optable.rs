//! Figures of the shipped tables that are known from elsewhere.
use treeline_sim::optable::{ArKey, Collective, Launch, MoeKey, MoeShape, OpTables, Routing, Wanted};

fn from<'k>(system: &'k str, engine: &'k str, version: &'k str) -> Wanted<'k> {
    Wanted { system, engine, version: Some(version), kernel: None }
}

fn allreduce(engine: &str, version: &str, ranks: u32, elements: f64) -> f64 {
    let key = ArKey { from: from("b300", engine, version), op: Collective::AllReduce, launch: Launch::Graph, ranks };
    let looked = OpTables::shipped().allreduce(&key).unwrap().us(2.0 * elements);
    assert!(looked.inside);
    looked.us
}

#[test]
fn all_reduce_on_eight_b300_steps_at_256_kib() {
    assert!((allreduce("vllm", "0.24.0", 8, 65_536.0) - 9.4).abs() < 0.05);
    assert!((allreduce("vllm", "0.24.0", 8, 131_072.0) - 26.0).abs() < 0.05);
    assert!((allreduce("sglang", "0.5.14", 8, 131_072.0) - 8.6).abs() < 0.05);
}

#[test]
fn int4_moe_layer_of_kimi_on_b300() {
    let key = MoeKey { from: from("b300", "vllm", "0.24.0"), shape: MoeShape::KIMI_INT4, tp: 8 };
    let layer = OpTables::shipped().moe(&key).unwrap();
    assert!((layer.balanced(8.0).us - 95.0).abs() < 1.0);
    for (rows, us) in [(48.0, 216.0), (64.0, 275.0), (128.0, 336.0), (256.0, 450.0), (320.0, 515.0)] {
        let all = layer.routed(Routing::PowerLaw101, rows).unwrap().us;
        assert!((all - us).abs() < 0.6, "{rows} rows: {all} µs, known {us}");
    }
}
