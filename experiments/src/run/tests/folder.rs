//! What a run folder holds, and that its figures are those of the rounds.

use super::*;
use treeline_core::{Limits, RunSetup, run};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The names that scripts rely on, in the order of the specification.
#[test]
fn summary_has_the_documented_fields() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), &Mock::block(), &experiment());
    let summary = json_file(&dir.path().join("summary.json"));
    assert_eq!(keys(&summary), ["schema_version", "experiment", "cells", "comparison", "warnings"]);
    let cell = [
        "backend",
        "policy",
        "policy_params",
        "budget",
        "hardware",
        "deployment",
        "acceptance",
        "concurrency",
        "context",
        "temperature",
        "workload",
        "ranks",
        "graphs",
        "requests",
        "rounds",
        "tau",
        "tau_lo",
        "tau_hi",
        "tau_unweighted",
        "rows_mean",
        "experts_mean",
        "step_ms",
        "step_ms_lo",
        "step_ms_hi",
        "tok_s",
        "tok_s_lo",
        "tok_s_hi",
        "tok_s_user",
        "tok_s_gpu",
        "busy",
        "joules_per_token",
        "power_w",
        "speedup",
        "speedup_lo",
        "speedup_hi",
        "mc_error",
        "loop_share",
        "tier",
        "source",
        "in_domain",
        "notes",
    ];
    for c in summary["cells"].as_array().unwrap() {
        assert_eq!(keys(c), cell);
        assert_eq!(keys(&c["source"]), ["tau", "step_ms", "experts"]);
    }
    let comparison = ["pairs", "mape", "bias", "kendall", "regret", "regret_hi", "config_match"];
    assert_eq!(keys(&summary["comparison"]), comparison);
    assert_eq!(summary["schema_version"], 1);
}

#[test]
fn the_folder_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let source = Mock::block();
    let outcome = run_in(&dir.path().join("new/run"), &source, &experiment());
    assert_eq!(outcome.failed, []);
    // (plain + chain + 2 × best-first + adaptive) × 2 temperatures × 2 concurrencies.
    assert_eq!(outcome.details.len(), 20);
    let there = |name: &str| outcome.dir.join(name).is_file();
    assert!(["experiment.resolved.toml", "manifest.json", "rounds.parquet", "summary.json"].into_iter().all(there));
    for detail in &outcome.details {
        let stored = json_file(&outcome.dir.join("cells").join(format!("{}.json", detail.key)));
        assert_eq!(stored, serde_json::to_value(detail).unwrap());
    }
    let manifest = json_file(&outcome.dir.join("manifest.json"));
    assert_eq!(manifest["finished"], true);
    assert_eq!(manifest["cost_tier"], "measured");
    assert_eq!(manifest["seeds"]["run"], SEED);
    assert_eq!(manifest["inputs"]["prompts"][0]["sha256"], "11");
    assert!(manifest["wall_s"].as_f64().unwrap() >= 0.0);
    assert_eq!(manifest["cells"].as_array().unwrap().len(), 20);
    let left: Vec<_> = std::fs::read_dir(outcome.dir.join("cells")).unwrap().flatten().collect();
    assert!(left.iter().all(|f| !f.file_name().to_string_lossy().ends_with(".part")), "no temporary file stays");
    assert_eq!(source.engines.load(Relaxed), 21, "one engine a cell, and one to plan with");
}

/// Every figure of a cell against a run of the loop by itself.
#[test]
fn figures_are_those_of_the_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let source = Mock::block();
    let outcome = run_in(dir.path(), &source, &experiment());
    let detail = outcome.details.iter().find(|d| {
        (d.cell.policy.as_str(), d.cell.budget, d.cell.temperature, d.cell.concurrency) == ("best-first", 16, 0.7, 3)
    });
    let detail = detail.unwrap();
    let registry = Registry::builtin();
    let limits = Limits { budget: 16, depth: 5, width: 12, concurrency: 3 };
    let mut policy = registry.build("best-first", &registry.example("best-first").unwrap(), &limits).unwrap();
    let (mut steps, mut tokens, mut rows, mut rounds) = (0u64, 0u64, 0u64, 0u64);
    let law = source.law(0.7);
    let setup = RunSetup { budget: 16, concurrency: 3, law: &law, cost: None };
    let responses = run(&mut source.engine(3, 16).unwrap(), &mut *policy, &source.requests(0.7), &setup, &mut |v| {
        rounds += 1;
        rows += u64::from(v.log.rows());
        tokens += u64::from(v.log.tokens());
        steps += v.log.entries.len() as u64;
    })
    .unwrap();
    let c = &detail.cell;
    assert_eq!((c.rounds, c.requests), (steps, 10));
    assert_eq!(c.tau, Some(tokens as f64 / steps as f64));
    assert_eq!(c.rows_mean, Some(rows as f64 / steps as f64));
    let decoded: Vec<(u64, u64)> = responses.iter().map(|r| (u64::from(r.steps), u64::from(r.decoded()))).collect();
    assert_eq!(detail.per_request.iter().map(|r| (r.steps, r.tokens)).collect::<Vec<_>>(), decoded);
    let unweighted = decoded.iter().map(|d| d.1 as f64 / d.0 as f64).sum::<f64>() / 10.0;
    assert!((c.tau_unweighted.unwrap() - unweighted).abs() < 1e-12);
    assert!(c.tau_lo.unwrap() < c.tau.unwrap() && c.tau.unwrap() < c.tau_hi.unwrap());
    // The clock: 1 ms drafting, 2, 3 or 4 verifying; prefill apart.
    let step = c.step_ms.unwrap();
    assert!((3.9..4.1).contains(&step), "{step}");
    assert!((c.tok_s.unwrap() - tokens as f64 / (step * rounds as f64) * 1e3).abs() < 1e-6);
    assert!(c.tok_s_user.unwrap() < c.tok_s.unwrap());
    assert_eq!(detail.prefill_ms, Some(0.25 * rounds as f64));
    assert_eq!(
        detail.phases.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(),
        ["draft", "tree", "verify", "walk", "commit", "host"]
    );
    assert_eq!(detail.emitted_histogram.iter().sum::<u64>(), steps);
    assert_eq!(detail.by_depth.iter().map(|d| d.accepted).sum::<u64>(), tokens - steps);
    assert!(detail.by_depth.iter().all(|d| d.by_rank.iter().sum::<u64>() == d.accepted && d.reached >= d.accepted));
    let w = detail.waterfall.unwrap();
    assert!((w.reach - w.not_in_top_w - w.unreachable - w.surrogate - w.accepted).abs() < 1e-9, "{w:?}");
    // Both are means over the steps that drafted.
    assert!((w.accepted - detail.phi.unwrap().1).abs() < 1e-9);
    assert!(w.oracle_tau >= c.tau.unwrap());
    // Request 3 ends by its end token, early; the others are long enough to be judged.
    assert_eq!(detail.per_request.iter().filter(|r| r.looped.is_none()).map(|r| r.id).collect::<Vec<_>>(), [3]);
    assert!(c.loop_share.is_some());
}

/// What the drafter knew does not depend on what a policy asked for: at one root the chain's waterfall knows all ranks.
#[test]
fn the_chain_does_not_make_the_drafter_look_ignorant() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run_in(dir.path(), &Mock::block(), &experiment());
    let of = |kind: &str| {
        let found = outcome.details.iter().find(|d| d.cell.policy == kind && d.cell.temperature == 0.7);
        found.unwrap().waterfall
    };
    let chain = of("chain").unwrap();
    // Of rows of one rank every listed path is the chain: nothing would be out of its reach.
    assert!(chain.unreachable > 0.5, "{chain:?}");
    assert_eq!(of("plain"), None, "plain decoding drafts nothing");
}

#[test]
fn plain_decoding_is_the_baseline_at_its_own_cap() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = run_in(dir.path(), &Mock::block(), &experiment());
    for c in &outcome.summary.cells {
        let of = |c: &&crate::results::Cell| c.tok_s_user.unwrap();
        let plain = outcome
            .summary
            .cells
            .iter()
            .find(|p| p.policy == "plain" && p.temperature == c.temperature && p.concurrency == c.concurrency);
        let expected = of(&c) / of(&plain.unwrap());
        assert!((c.speedup.unwrap() - expected).abs() < 1e-9);
        if c.policy == "plain" {
            assert_eq!((c.budget, c.tau, c.speedup), (0, Some(1.0), Some(1.0)));
        }
    }
    let without = Experiment { baseline: false, ..experiment() };
    let outcome = run_in(&dir.path().join("b"), &Mock::block(), &without);
    assert!(outcome.summary.cells.iter().all(|c| c.speedup.is_none() && c.policy != "plain"));
    assert!(outcome.summary.warnings.iter().any(|w| w.contains("baseline")), "{:?}", outcome.summary.warnings);
}

/// One request: a value without an interval; no clock: no time. Nothing is 0 or NaN in their place.
#[test]
fn what_is_unknown_is_null() {
    let dir = tempfile::tempdir().unwrap();
    let one = Mock { requests: 1, ..Mock::block() };
    let outcome = run_in(dir.path(), &one, &experiment());
    let cells = json_file(&dir.path().join("summary.json"))["cells"].clone();
    for c in cells.as_array().unwrap() {
        assert!(c["tau"].is_f64() && c["step_ms"].is_f64());
        for key in ["tau_lo", "tau_hi", "step_ms_lo", "tok_s_hi", "tok_s_gpu", "joules_per_token", "experts_mean"] {
            assert!(c[key].is_null(), "{key}");
        }
        assert!(c["source"]["experts"].is_null());
    }
    let few = outcome.summary.warnings.iter().find(|w| w.contains("1 requests")).unwrap();
    assert!(few.contains("(all cells)") && few.contains("run more prompts"), "{few}");
    // A doubt is the run's: cells do not repeat it.
    assert_eq!(outcome.summary.warnings.iter().filter(|w| w.contains("run more prompts")).count(), 1);
    let said_twice = |d: &crate::results::CellDetail| d.cell.notes.iter().any(|n| n.contains("run more prompts"));
    assert!(outcome.details.iter().all(|d| d.warnings.len() == 1 && !said_twice(d)));
}

/// Cells run on any number of threads; what they find does not depend on it.
#[test]
fn figures_do_not_depend_on_threads() {
    let on = |threads: usize| {
        let dir = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut details = pool.install(|| run_in(dir.path(), &Mock::block(), &experiment())).details;
        // The remark on cells side by side is about the machine.
        details.iter_mut().for_each(|d| d.cell.notes.clear());
        details
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn other_folders_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| {
        let run = execute(&Mock::block(), &experiment(), &Registry::builtin(), &options(path));
        run.unwrap_err().to_string()
    };
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    assert!(refused(dir.path()).contains("neither empty nor a run's folder"));
    let run = dir.path().join("run");
    run_in(&run, &Mock::block(), &experiment());
    assert!(refused(&run).contains("--resume"));
}

/// A policy that the law cannot use is refused before a folder is made.
#[test]
fn what_cannot_run_is_refused_first() {
    struct Residual(Mock);
    impl Source for Residual {
        type Engine = Ticking;
        fn engine(&self, slots: u32, budget: u32) -> anyhow::Result<Ticking> {
            self.0.engine(slots, budget)
        }
        fn requests(&self, temperature: f64) -> Vec<Request> {
            self.0.requests(temperature)
        }
        fn law(&self, _: f64) -> Law<'_> {
            Law::Residual { replace: true, seed: SEED }
        }
        fn domain(&self, index: usize) -> &str {
            self.0.domain(index)
        }
        fn facts(&self) -> &Facts {
            &self.0.facts
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let refused = execute(&Residual(Mock::block()), &experiment(), &Registry::builtin(), &options(&out)).unwrap_err();
    assert!(refused.to_string().contains("best-first"), "{refused}");
    assert!(!out.exists());
    // Negative control: the chain accepts draws, and runs.
    let chain = Experiment { policies: vec![policy("chain", &[5], json!({}))], ..experiment() };
    execute(&Residual(Mock::block()), &chain, &Registry::builtin(), &options(&out)).unwrap();
}

#[test]
fn a_cell_listed_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let twice = Experiment { policies: vec![policy("chain", &[5, 5], json!({}))], ..experiment() };
    let refused = execute(&Mock::block(), &twice, &Registry::builtin(), &options(dir.path())).unwrap_err();
    assert!(refused.to_string().contains("listed twice"), "{refused}");
}

/// Public fault 53: the first cell of a benchmark is under-reported, because cold rounds are part of it.
#[test]
fn fault_53_cold_rounds_are_left_out() {
    let step_ms = |warm_up: bool| {
        let dir = tempfile::tempdir().unwrap();
        let mut source = Mock { cold: 2, ..Mock::block() };
        source.facts.clock = warm_up;
        let outcome = run_in(dir.path(), &source, &Experiment { baseline: false, ..experiment() });
        let slowest = outcome.details.iter().map(|d| d.cell.step_ms.unwrap()).fold(0.0, f64::max);
        let noted = outcome.details.iter().all(|d| d.cell.notes.iter().any(|n| n.contains("warm-up")));
        (slowest, noted)
    };
    let (warm, noted) = step_ms(true);
    assert!(warm < 4.2 && noted, "{warm}");
    // Negative control: without the warm-up the cold rounds are in the mean.
    assert!(step_ms(false).0 > 5.0);
}
