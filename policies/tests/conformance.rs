//! Every built-in policy passes the conformance suite; deliberately broken ones fail the check that they break.

use serde_json::json;
use treeline_policies::{Registry, conformance};

fn check(kind: &str, params: serde_json::Value) {
    let registry = Registry::builtin();
    let result = conformance::check(&|limits| registry.build(kind, &params, limits));
    assert_eq!(result, Ok(()), "{kind} {params}");
}

#[test]
fn every_builtin_conforms_with_its_example() {
    for kind in Registry::builtin().kinds() {
        check(kind, Registry::builtin().example(kind).unwrap());
    }
}

#[test]
fn other_forms_conform() {
    check("best-first", json!({ "scope": "batch", "mean": 9 }));
    check("best-first", json!({ "beam": 1 }));
    check("spine-first", json!({ "spine": 2, "beam": 3 }));
    check("top-k", json!({ "widths": [3, 2, 1, 1] }));
    check("top-k", json!({ "width": 6, "depth": 3 }));
    check("adaptive", json!({ "objective": "renewal" }));
    check("adaptive", json!({ "budgets": [0, 1, 4, 16, 64], "probe": 0.5, "memory": 8.0 }));
    for kind in ["cost-aware", "batch-wide"] {
        check(kind, json!({ "objective": "ratio", "calibration": "claimed", "off": false }));
        check(kind, json!({ "calibration": "given", "reliability": [[-4.0, 0.01], [0.0, 0.9]], "latency_ms": 14.0 }));
        check(kind, json!({ "memory": 4.0, "probe": 0.5, "beam": 2 }));
    }
    check("sequoia", json!({ "acceptance": [0.35, 0.3, 0.25], "size": "cost" }));
    check("adaptive", json!({ "latency_ms": 16.0 }));
    check("opt-tree", json!({ "delta": 0.0 }));
    check("spec-exec", json!({ "decay": 1.0, "beam": 2, "waves": 3 }));
    check("talon", json!({ "width": 2, "mu": 0.9 }));
    check("sequoia", json!({ "acceptance": [0.8] }));
}
