//! A recorded run replays to the same figures, cell by cell.

use super::super::record::record_with;
use super::super::sim::SimSource;
use super::*;
use crate::results::CellDetail;
use crate::trace::{narrow, ranks_only};
use treeline_sim::Frontier;

/// What acceptance there was, times and remarks left out.
fn acceptance(details: &[CellDetail], temperature: f64) -> Vec<Value> {
    let of = details.iter().filter(|d| (d.cell.temperature - temperature).abs() < 1e-9);
    of.map(|d| {
        let c = &d.cell;
        let requests: Vec<_> = d.per_request.iter().map(|r| (r.id, r.domain.clone(), r.steps, r.tokens)).collect();
        json!({
            "cell": [c.policy, c.budget.to_string(), c.concurrency.to_string()],
            "tau": [c.tau, c.tau_lo, c.tau_hi, c.tau_unweighted, c.rows_mean],
            "requests": requests,
            "by_depth": d.by_depth,
            "emitted": d.emitted_histogram,
            "waterfall": d.waterfall,
            "phi": d.phi,
        })
    })
    .collect()
}

fn replayed(trace: treeline_core::trace::Trace, experiment: &Experiment) -> Vec<CellDetail> {
    let dir = tempfile::tempdir().unwrap();
    let source = SimSource::new(trace, "t.parquet", "digest");
    let outcome = execute(&source, experiment, &Registry::builtin(), &options(dir.path())).unwrap();
    assert_eq!(outcome.failed, []);
    outcome.details
}

#[test]
fn replay_equals_live() {
    let dir = tempfile::tempdir().unwrap();
    let source = Mock::block();
    let live = run_in(dir.path(), &source, &experiment());
    for temperature in [0.7, 0.0] {
        let trace = record_with(&source, temperature, &Frontier::default(), true).unwrap().trace;
        let expected = acceptance(&live.details, temperature);
        assert_eq!(expected.len(), 10);
        let full = replayed(trace.clone(), &experiment());
        assert_eq!(acceptance(&full, temperature), expected);
        let ranks = replayed(ranks_only(trace.clone()), &experiment());
        assert_eq!(acceptance(&ranks, temperature), expected);
        for d in &ranks {
            assert_eq!((d.cell.step_ms, d.cell.tok_s, d.cell.speedup, d.prefill_ms), (None, None, None, None));
            assert_eq!((d.cell.tier.as_str(), d.cell.source.tau.as_str()), ("none", "replayed"));
            assert_eq!(d.cell.loop_share, None, "a rank trace has no text to loop");
            assert!(d.phases.is_empty());
        }
        let loops = |details: &[CellDetail]| details.iter().map(|d| d.cell.loop_share).collect::<Vec<_>>();
        let of = live.details.iter().filter(|d| d.cell.temperature == temperature).cloned().collect::<Vec<_>>();
        assert_eq!(loops(&full), loops(&of));
    }
}

/// Negative control: fewer ranks are another drafter, and the figures say so.
#[test]
fn a_narrower_trace_is_not_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let source = Mock::block();
    let live = run_in(dir.path(), &source, &experiment());
    let trace = record_with(&source, 0.7, &Frontier::default(), true).unwrap().trace;
    let narrowed = replayed(narrow(trace, 2), &experiment());
    assert_ne!(acceptance(&narrowed, 0.7), acceptance(&live.details, 0.7));
    // It is what the narrow drafter gives live.
    let mut two = Mock::block();
    two.script.width = 2;
    two.facts.width = 2;
    let live = run_in(&dir.path().join("two"), &two, &experiment());
    assert_eq!(acceptance(&narrowed, 0.7), acceptance(&live.details, 0.7));
}

#[test]
fn a_conditional_trace_without_branches_is_refused_before_the_run() {
    let mut source = Mock::block();
    source.script.conditional = true;
    let trace = record_with(&source, 0.7, &Frontier { beam: 1, expansions: 5 }, true).unwrap().trace;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let sim = SimSource::new(trace, "t.parquet", "digest");
    let refused = execute(&sim, &experiment(), &Registry::builtin(), &options(&out)).unwrap_err().to_string();
    assert!(refused.contains("best-first") && refused.contains("record it again"), "{refused}");
    assert!(!out.exists());
}

/// A wave that leaves the record fails its cell, with what to do; the others finish.
#[test]
fn an_unrecorded_node_fails_its_cell() {
    let mut source = Mock::block();
    source.script.conditional = true;
    let trace = record_with(&source, 0.7, &Frontier { beam: 3, expansions: 14 }, true).unwrap().trace;
    let dir = tempfile::tempdir().unwrap();
    let sim = SimSource::new(trace, "t.parquet", "digest");
    let wide = Experiment { concurrency: vec![1], ..experiment() };
    let outcome = execute(&sim, &wide, &Registry::builtin(), &options(dir.path())).unwrap();
    assert!(outcome.failed.iter().any(|f| f.0.contains("best-first budget 16") && f.1.contains("was not expanded")));
    assert!(outcome.details.iter().any(|d| d.cell.policy == "chain" && d.waterfall.is_none()));
}
