//! Whole runs of real models: the tiny checkpoints of the CPU engine's fixtures, through files, as a user runs them.
#![allow(clippy::unwrap_used)]

mod site;

use serde_json::{Value, json};
use site::Site;
use std::path::{Path, PathBuf};
use treeline::config::{self, Experiment, Overrides};
use treeline::results::CellDetail;
use treeline::run::{self, Options, Outcome, RecordOptions};
use treeline::trace;
use treeline_policies::Registry;
use treeline_sim::Frontier;

impl Site {
    /// An experiment of every built-in policy over `drafter`.
    fn experiment(&self, drafter: &str, rest: &str) -> Experiment {
        let text = format!(
            r#"
name = "tiny"
seed = 5
record = "sample:3"
bootstrap = 100
[target]
checkpoint = "target"
{drafter}
[backend]
kind = "cpu"
context = 96
prefill_chunk = 7
[workload]
max_new = 24
ignore_eos = true
chat = "off"
concurrency = [1, 4]
[[workload.prompts]]
file = "prompts.jsonl"
take = 8
[sampling]
law = "sample-match"
temperature = [0.7, 0.0]
top_k = 0
top_p = 1.0
[cost.curve]
rows = [1, 9, 33]
ms = [1.0, 1.5, 3.0]
source = "by hand"
{rest}
"#
        );
        std::fs::write(self.path("tiny.toml"), text).unwrap();
        config::load(&self.path("tiny.toml"), &Registry::builtin()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn replay(&self, trace: &Path) -> Experiment {
        let overrides =
            Overrides { backend: Some("sim".into()), trace: Some(trace.to_owned()), ..Overrides::default() };
        config::load_with(&self.path("tiny.toml"), &Registry::builtin(), &overrides).unwrap_or_else(|e| panic!("{e}"))
    }

    fn run(&self, experiment: &Experiment, out: &str) -> Outcome {
        let options = Options { out: Some(self.path(out)), quiet: true, ..Options::default() };
        run::run(experiment, &Registry::builtin(), &options).unwrap()
    }

    fn record(&self, experiment: &Experiment, name: &str, temperature: f64, ranks_only: bool, beam: u32) -> PathBuf {
        let out = self.path(name);
        let options = RecordOptions {
            out: out.clone(),
            ranks_only,
            width: None,
            temperature: Some(temperature),
            frontier: Frontier { beam, expansions: 400 },
            quiet: true,
        };
        run::record_trace(experiment, &options).unwrap();
        out
    }
}

const DFLASH: &str = "[drafter]\nkind = \"dflash\"\ncheckpoint = \"dflash\"\nwidth = 16";
const NGRAM: &str = "[drafter]\nkind = \"ngram\"\norder = 3\ndepth = 4\nwidth = 6";
const LLAMA: &str = "[drafter]\nkind = \"autoregressive\"\ncheckpoint = \"llama\"\ndepth = 4\nwidth = 6";

/// Every built-in policy, with its typical parameters.
fn policies(budget: u32) -> String {
    let registry = Registry::builtin();
    let one = |kind: &str| {
        let example = registry.example(kind).unwrap();
        let keys = example.as_object().unwrap().iter().filter(|(_, v)| !v.is_null());
        let lines: String = keys.map(|(k, v)| format!("{k} = {v}\n")).collect();
        format!("[[policy]]\nkind = \"{kind}\"\nbudget = [{budget}]\n{lines}")
    };
    registry.kinds().map(one).collect()
}

/// Accepted lengths and what hangs on them; times and remarks left out.
fn acceptance(details: &[CellDetail], temperature: f64) -> Vec<Value> {
    let of = details.iter().filter(|d| d.cell.temperature == temperature);
    of.map(|d| {
        let requests: Vec<_> = d.per_request.iter().map(|r| (r.id, r.domain.clone(), r.steps, r.tokens)).collect();
        json!({
            "cell": [json!(d.cell.policy), json!(d.cell.budget), json!(d.cell.concurrency)],
            "tau": [d.cell.tau, d.cell.tau_lo, d.cell.tau_hi, d.cell.rows_mean],
            "requests": requests,
            "by_depth": d.by_depth,
            "emitted": d.emitted_histogram,
            "waterfall": d.waterfall,
            "phi": d.phi,
        })
    })
    .collect()
}

#[test]
fn a_run_of_models_measures_everything() {
    let site = Site::new();
    let outcome = site.run(&site.experiment(DFLASH, &policies(12)), "run");
    assert_eq!(outcome.failed, []);
    let kinds = Registry::builtin().kinds().count();
    assert_eq!(outcome.details.len(), (kinds + 1) * 4);
    for d in &outcome.details {
        let c = &d.cell;
        assert_eq!((c.requests, c.tier.as_str(), c.source.tau.as_str()), (8, "measured", "measured"));
        assert!(c.step_ms.unwrap() > 0.0 && c.tok_s.unwrap() > 0.0 && c.speedup.unwrap() > 0.0);
        assert!(c.step_ms_lo <= c.step_ms && c.step_ms <= c.step_ms_hi);
        assert!(c.tau.unwrap() >= 1.0 && c.rows_mean.unwrap() <= 13.0);
        // 16 experts, 4 a token.
        let experts = c.experts_mean.unwrap();
        assert!((4.0..=16.0).contains(&experts) && c.source.experts.as_deref() == Some("measured"));
        assert!(d.prefill_ms.unwrap() > 0.0);
        assert!(c.deployment.as_deref().unwrap().contains("dflash") && c.hardware.is_some());
        assert!(d.waterfall.is_some() == (c.policy != "plain"));
        assert_eq!(d.per_request.iter().map(|r| r.tokens).sum::<u64>(), 8 * 23);
        assert_eq!(c.loop_share, None, "responses of 24 tokens are too short to be judged");
    }
    let manifest: Value = serde_json::from_slice(&std::fs::read(outcome.dir.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["inputs"]["target"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(manifest["inputs"]["target"]["checkpoint"], "target");
    assert_eq!(manifest["inputs"]["prompts"][0]["used"], 8);
    // The resolved file repeats the run: the same cells.
    let resolved = config::load(&outcome.dir.join("experiment.resolved.toml"), &Registry::builtin());
    let options = Options { out: Some(outcome.dir.clone()), resume: true, quiet: true, ..Options::default() };
    let again = run::run(&resolved.unwrap_or_else(|e| panic!("{e}")), &Registry::builtin(), &options).unwrap();
    assert_eq!(again.details, outcome.details, "every cell is kept");
}

/// The equality that traces promise, through files: plain decoding recorded, every policy replayed.
#[test]
fn replay_of_models_equals_live() {
    let site = Site::new();
    let experiment = site.experiment(DFLASH, &policies(12));
    let live = site.run(&experiment, "live");
    for (temperature, name) in [(0.7, "a"), (0.0, "b")] {
        for ranks_only in [false, true] {
            let path = site.record(&experiment, &format!("{name}{ranks_only}.parquet"), temperature, ranks_only, 1);
            let info = trace::info(&path).unwrap();
            assert_eq!((info.requests, info.positions, info.meta.ids), (8, 8 * 23, !ranks_only));
            let replayed = site.run(&site.replay(&path), &format!("replay-{name}{ranks_only}"));
            assert_eq!(replayed.failed, []);
            assert_eq!(acceptance(&replayed.details, temperature), acceptance(&live.details, temperature));
            assert!(replayed.details.iter().all(|d| d.cell.step_ms.is_none() && d.cell.backend == "sim"));
        }
    }
}

/// Conditional drafters replay from traces with enough expansions, and are refused without.
#[test]
fn conditional_drafters_replay_from_expansions() {
    let site = Site::new();
    for (drafter, name) in [(NGRAM, "ngram"), (LLAMA, "llama")] {
        let experiment = site.experiment(drafter, &policies(8));
        let live = site.run(&experiment, &format!("live-{name}"));
        assert_eq!(live.failed, []);
        let path = site.record(&experiment, &format!("{name}.parquet"), 0.7, true, 6);
        let replayed = site.run(&site.replay(&path), &format!("replay-{name}"));
        assert_eq!(replayed.failed, []);
        assert_eq!(acceptance(&replayed.details, 0.7), acceptance(&live.details, 0.7));
        let bare = site.record(&experiment, &format!("{name}-bare.parquet"), 0.7, true, 1);
        let options = Options { out: Some(site.path("refused")), quiet: true, ..Options::default() };
        let refused = run::run(&site.replay(&bare), &Registry::builtin(), &options).unwrap_err();
        assert!(refused.to_string().contains("record it again"), "{refused}");
    }
}

#[test]
fn a_step_cost_is_measured() {
    let site = Site::new();
    let curve = run::calibrate(&site.experiment(DFLASH, &policies(12)), true).unwrap();
    // No tree of 128 nodes fits into 96 positions: that point is left out, not made up.
    assert_eq!(curve.rows(), &run::ROWS[..7]);
    assert!(curve.ms().iter().all(|ms| *ms > 0.0));
}

#[test]
fn choices_that_only_the_user_can_make_are_asked_for() {
    let site = Site::new();
    let experiment = site.experiment(DFLASH, &policies(12));
    let options = |temperature| RecordOptions {
        out: site.path("t.parquet"),
        ranks_only: false,
        width: None,
        temperature,
        frontier: Frontier::default(),
        quiet: true,
    };
    let refused = |t| run::record_trace(&experiment, &options(t)).unwrap_err().to_string();
    assert!(refused(None).contains("choose one of [0.7, 0.0]"), "{}", refused(None));
    assert!(refused(Some(0.9)).contains("not one of the experiment's"));
    let taken = site.path("t.parquet");
    assert!(!taken.exists());
}

#[test]
fn a_bad_prompt_is_named_by_file_and_line() {
    let site = Site::new();
    let experiment = site.experiment(DFLASH, &policies(12));
    let refused = |lines: &str| {
        std::fs::write(site.path("prompts.jsonl"), lines).unwrap();
        let options = Options { out: Some(site.path("run")), quiet: true, ..Options::default() };
        format!("{:#}", run::run(&experiment, &Registry::builtin(), &options).unwrap_err())
    };
    let good = "{\"id\": 1, \"domain\": \"d\", \"text\": \"t1 t2\"}\n";
    let why = refused(&format!("{good}{{\"id\": 2}}\n"));
    assert!(why.contains("prompts.jsonl, line 2") && why.contains("domain"), "{why}");
    let why = refused(good);
    assert!(why.contains("8 prompts are wanted, the file has 1"), "{why}");
    let why = refused(&"{\"id\": 1, \"domain\": \"d\", \"text\": \"\"}\n".repeat(8));
    assert!(why.contains("has no tokens"), "{why}");
}
