//! The registry: refusals name the key, lists and defaults agree, no parameter can do harm.

use serde_json::{Value, json};
use treeline_core::Limits;
use treeline_policies::conformance::scene::limits;
use treeline_policies::{BuildError, Registry};

#[test]
fn bad_parameters_are_refused_by_name() {
    let limits = limits(16, 7, 8);
    let cases = [
        ("top-k", json!({}), "width"),
        ("top-k", json!({ "width": 2, "widths": [1] }), "widths"),
        ("top-k", json!({ "widths": [2, 0] }), "widths"),
        ("top-k", json!({ "width": 0 }), "width"),
        ("best-first", json!({ "mean": 3 }), "mean"),
        ("best-first", json!({ "scope": "batch" }), "mean"),
        ("best-first", json!({ "beam": 0 }), "beam"),
        ("sequoia", json!({ "acceptance": [0.9, 0.3] }), "acceptance"),
        ("sequoia", json!({ "acceptance": [] }), "acceptance"),
        ("sequoia", json!({ "acceptance": [-0.1] }), "acceptance"),
        ("talon", json!({ "mu": 0.0 }), "mu"),
        ("spec-exec", json!({ "decay": 1.5 }), "decay"),
        ("opt-tree", json!({ "delta": -1.0 }), "delta"),
        ("adaptive", json!({ "probe": 0.001 }), "probe"),
        ("adaptive", json!({ "latency_ms": 0.0 }), "latency_ms"),
        ("sequoia", json!({ "acceptance": [0.5], "latency_ms": 20.0 }), "latency_ms"),
        ("cost-aware", json!({ "reliability": [[0.0, 1.0]] }), "reliability"),
        ("cost-aware", json!({ "calibration": "given" }), "reliability"),
        ("batch-wide", json!({ "calibration": "given", "reliability": [[0.0, 0.5], [-1.0, 0.6]] }), "reliability"),
        ("batch-wide", json!({ "calibration": "given", "reliability": [[-1.0, 0.6], [0.0, 0.5]] }), "reliability"),
        ("batch-wide", json!({ "probe": 0.0 }), "probe"),
        ("batch-wide", json!({ "memory": 1.0 }), "memory"),
        ("adaptive", json!({ "budgets": [4, 2] }), "budgets"),
        ("adaptive", json!({ "budgets": [64] }), "budgets"),
    ];
    for (kind, params, key) in cases {
        match Registry::builtin().build(kind, &params, &limits).map(|p| p.kind().to_owned()) {
            Err(BuildError::Value { key: k, .. }) if k == key => {}
            other => panic!("{kind} {params}: {other:?}"),
        }
    }
    let unknown = Registry::builtin().build("best-first", &json!({ "budjet": 8 }), &limits).map(|_| ()).unwrap_err();
    assert!(unknown.to_string().contains("budjet"), "{unknown}");
    let nested = Registry::builtin().build("top-k", &json!({ "widths": [1, "x"] }), &limits).map(|_| ()).unwrap_err();
    assert!(nested.to_string().contains("widths[1]"), "{nested}");
    let kind = Registry::builtin().build("bestfirst", &json!({}), &limits).map(|_| ()).unwrap_err();
    assert!(kind.to_string().contains("chain, best-first, spine-first"), "{kind}");
}

#[test]
fn types_are_listed_as_one_writes_them() {
    let list = Registry::builtin().list(&limits(16, 7, 8)).unwrap();
    let ty = |kind: &str, name: &str| {
        let policy = list.iter().find(|l| l.kind == kind).unwrap();
        policy.parameters.iter().find(|p| p.name == name).unwrap().ty.clone()
    };
    assert_eq!(ty("best-first", "scope"), r#""request" or "batch""#);
    assert_eq!(ty("best-first", "mean"), "integer");
    assert_eq!(ty("top-k", "widths"), "list of integer");
    assert_eq!(ty("sequoia", "acceptance"), "list of number");
}

#[test]
fn the_registry_lists_what_it_knows() {
    let registry = Registry::builtin();
    let list = registry.list(&limits(16, 7, 8)).unwrap();
    let kinds: Vec<_> = list.iter().map(|l| l.kind).collect();
    let expected = "chain best-first spine-first top-k adaptive cost-aware batch-wide sequoia opt-tree spec-exec talon";
    assert_eq!(kinds.join(" "), expected);
    for policy in &list {
        assert!(policy.parameters.iter().all(|p| !p.about.is_empty()), "{}: a parameter without a word", policy.kind);
        let example = registry.example(policy.kind).unwrap();
        assert_eq!(registry.resolve(policy.kind, &example).unwrap(), example, "{}", policy.kind);
        // What stands in the list as a default is what a resolved file gets.
        for p in policy.parameters.iter().filter(|p| !p.required && policy.kind != "top-k") {
            let resolved = registry.resolve(policy.kind, &example).unwrap();
            assert_eq!(p.default.as_ref().unwrap_or(&Value::Null), &resolved[&p.name], "{}.{}", policy.kind, p.name);
        }
    }
    let resolved = registry.resolve("best-first", &json!({ "kind": "best-first" })).unwrap();
    assert_eq!(resolved, json!({ "scope": "request", "mean": null, "beam": 8 }));
}

/// Whatever stands in a file: an answer, at once and without a large allocation.
#[test]
fn hostile_parameters_are_answered() {
    let registry = Registry::builtin();
    let hostile = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(1e-300),
        json!("x"),
        json!([]),
        json!([0]),
        json!([u32::MAX, u32::MAX, u32::MAX]),
        json!(vec![64; 40]),
        json!(vec![0.01; 100]),
        json!([[1]]),
        json!({ "a": {} }),
    ];
    let (mut built, mut refused) = (0, 0);
    let mut answer = |kind: &str, params: &Value, limits: &Limits| match registry.build(kind, params, limits) {
        Ok(policy) => {
            assert_eq!(policy.kind(), kind);
            let _ = policy.needs(limits);
            built += 1;
        }
        Err(e) => {
            assert!(!e.to_string().is_empty());
            refused += 1;
        }
    };
    for kind in registry.kinds() {
        let example = registry.example(kind).unwrap();
        for (budget, depth, width) in [(64, 7, 64), (0, 0, 0), (u32::MAX, 15, 64), (u32::MAX, u32::MAX, u32::MAX)] {
            let limits = limits(budget, depth, width);
            for value in &hostile {
                answer(kind, value, &limits);
                for key in example.as_object().unwrap().keys() {
                    let mut params = example.clone();
                    params[key] = value.clone();
                    answer(kind, &params, &limits);
                }
            }
        }
    }
    assert!(built > 100 && refused > 100, "{built} built, {refused} refused");
}
