//! Tier `calibrated` against the run that it predicts: the same policies on the same trace, measured on one H200 and priced by
//! the calibration of that machine.
//!
//! The table of docs/numbers/kimi-rank.md: `cargo test -p treeline --test calibrated -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use treeline::config::{self, AcceptanceKind, Backend, Experiment, Overrides};
use treeline::results::Cell;
use treeline::run::{self, Options};
use treeline_policies::Registry;
use treeline_sim::cost::Calibration;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn raw(name: &str) -> String {
    std::fs::read_to_string(folder().join("../docs/numbers/raw").join(name)).unwrap()
}

fn load(text: &str, file: &str) -> Experiment {
    config::parse(text, file, &folder(), &Registry::builtin(), &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn shipped(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn cells(experiment: &Experiment) -> Vec<Cell> {
    let site = tempfile::tempdir().unwrap();
    let options = Options { out: Some(site.path().join("run")), quiet: true, ..Options::default() };
    run::run(experiment, &Registry::builtin(), &options).unwrap_or_else(|e| panic!("{e:#}")).summary.cells
}

/// A line of the table that a run prints.
struct Measured {
    policy: String,
    budget: u32,
    concurrency: u32,
    tau: String,
    rows: f64,
    step_ms: f64,
    tok_s: f64,
}

/// The tables of a run's output; every one stands under its concurrency.
fn measured(text: &str) -> Vec<Measured> {
    let (mut concurrency, mut out) = (0, Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = line.strip_prefix("T = 0.7, concurrency ") {
            concurrency = at.trim().parse().unwrap();
        } else if let ["plain" | "chain" | "best-first", budget, tau, _, _, rows, _, step, tok_s, _] = words.as_slice()
        {
            let number = |x: &str| x.parse().unwrap();
            out.push(Measured {
                policy: words[0].to_owned(),
                budget: budget.parse().unwrap(),
                concurrency,
                tau: (*tau).to_owned(),
                rows: number(rows),
                step_ms: number(step),
                tok_s: number(tok_s),
            });
        }
    }
    out
}

fn find<'c>(cells: &'c [Cell], m: &Measured) -> &'c Cell {
    let same = |c: &&Cell| c.policy == m.policy && c.budget == m.budget && c.concurrency == m.concurrency;
    cells.iter().find(same).unwrap_or_else(|| panic!("{} {} at {}", m.policy, m.budget, m.concurrency))
}

/// Where the full steps of a cell lie among those that the calibration knows.
fn place(c: &Calibration, m: &Measured) -> &'static str {
    let rows = m.concurrency * (m.budget + 1);
    let same = |p: &&treeline_sim::cost::StepPoint| {
        p.requests == m.concurrency && p.rows == rows && (p.draft_rows > 0) == (m.budget > 0)
    };
    match c.points.iter().find(same) {
        Some(p) if p.held_out => "held out",
        Some(_) => "fitted",
        None if rows <= c.domain.rows[1] => "between",
        None => "beyond",
    }
}

#[test]
fn predicted_and_measured_runs_are_of_the_same_trees_and_agree() {
    let (live, priced) = (shipped("kimi-rank.toml"), shipped("kimi-rank-priced.toml"));
    let (live, experiment) = (load(&live, "kimi-rank.toml"), load(&priced, "kimi-rank-priced.toml"));
    let (Backend::Synthetic(what), Backend::Priced(run)) = (&live.backend, &experiment.backend) else { panic!() };
    let trace = AcceptanceKind::Trace { file: what.trace.clone(), stand_in: true };
    assert_eq!(run.acceptance[0].source, trace, "another trace is another run");
    assert_eq!(run.context, [what.prompt.unwrap()]);
    assert_eq!((&live.policies, &live.concurrency), (&experiment.policies, &experiment.concurrency));

    let file = "calibration-kimi-rank-h200.json";
    let calibration = Calibration::from_json(&raw(file), file).unwrap();
    assert_eq!((calibration.manifest.ranks, calibration.manifest.of_ranks), (what.ranks / 8, Some(what.ranks)));
    let cells = cells(&experiment);
    let table = measured(&raw("kimi-rank-1.txt"));
    assert_eq!((table.len(), cells.len()), (14, 14));
    println!(
        "| policy | budget | τ, both | step, ms: measured | predicted | error | tok/s: measured | predicted | error | full steps |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut errors = Vec::new();
    for m in &table {
        let cell = find(&cells, m);
        // The same trees on the same trace: what is accepted is no estimate.
        assert_eq!(format!("{:.2}", cell.tau.unwrap()), m.tau, "{} {}", m.policy, m.budget);
        assert!((cell.rows_mean.unwrap() - m.rows).abs() < 0.051, "{} {}", m.policy, m.budget);
        assert_eq!((cell.tier.as_str(), cell.source.step_ms.as_deref()), ("calibrated", Some("calibrated")));
        let (step, rate) = (cell.step_ms.unwrap(), cell.tok_s.unwrap());
        let error = step / m.step_ms - 1.0;
        errors.push(error.abs());
        let load = if m.concurrency == 1 { "1 request" } else { "8 requests" };
        println!(
            "| {load}: {} | {} | {} | {:.2} | {step:.2} | {:+.1} % | {:.0} | {rate:.0} | {:+.1} % | {} |",
            m.policy,
            m.budget,
            m.tau,
            m.step_ms,
            100.0 * error,
            m.tok_s,
            100.0 * (rate / m.tok_s - 1.0),
            place(&calibration, m)
        );
        assert!(error.abs() < 0.1, "{} {} at {}: {error:+.3}", m.policy, m.budget, m.concurrency);
    }
    errors.sort_by(f64::total_cmp);
    println!("median {:.1} %, largest {:.1} %", 100.0 * errors[6].midpoint(errors[7]), 100.0 * errors[13]);
    assert!(errors[7] < 0.04, "{errors:?}");

    // Control: a price that knows nothing of the engine fails the same comparison.
    let bound = priced.replace("tier = \"calibrated\"", "tier = \"bound\"");
    let bound: String = bound.lines().filter(|l| !l.starts_with("calibration")).map(|l| format!("{l}\n")).collect();
    let bound = self::cells(&load(&bound, "bound.toml"));
    assert!(table.iter().all(|m| find(&bound, m).step_ms.unwrap() < 0.75 * m.step_ms));
}

/// What a run of this text is refused with.
fn refused(text: &str) -> String {
    let site = tempfile::tempdir().unwrap();
    let options = Options { out: Some(site.path().join("run")), quiet: true, ..Options::default() };
    format!("{:#}", run::run(&load(text, "x.toml"), &Registry::builtin(), &options).unwrap_err())
}

/// One rank's work alone prices no deployment whose ranks talk to each other, nor one of a single rank.
#[test]
fn one_rank_of_eight_is_no_deployment_of_eight() {
    let text = shipped("kimi-rank-priced.toml");
    for (engine, says) in [
        (
            "vllm-0.24-h200-tp8",
            "1 of 8 ranks without communication, graph; deployment vllm-0.24-h200-tp8 has 8 ranks, graph",
        ),
        ("treeline-0.1-h200-tp1", "deployment treeline-0.1-h200-tp1 has 1 rank, graph"),
    ] {
        let error = refused(&text.replace("treeline-0.1-h200-rank-of-8", engine));
        assert!(error.contains(says) && error.contains("help: "), "{error}");
    }
}

/// A trace of other models is refused unless the file says that it stands in.
#[test]
fn other_models_words_are_used_only_where_the_file_says_so() {
    let error = refused(&shipped("kimi-rank-priced.toml").replace("stand_in = true\n", ""));
    assert!(error.contains("vocabulary") && error.contains("stand_in"), "{error}");
}

/// The recipe of docs/calibration-file.md, from a calibration to a priced run: the shipped profiles of the CPU engine and a file
/// that such an engine could have written.
#[test]
fn a_calibration_of_the_cpu_engine_prices_the_bundled_pair() {
    let knots = |at: f64| serde_json::json!([[1, at], [65, 8.0 * at]]);
    let op =
        |name: &str, phase: &str, rows| serde_json::json!({ "name": name, "phase": phase, "calls": 1, "rows": rows });
    let point = |rows: u32, held_out: bool| {
        serde_json::json!({
            "requests": 1, "rows": rows, "context_sum": 200, "draft_requests": 1, "draft_rows": 8, "draft_passes": 1,
            "experts": 20.0, "round_us": 9000.0, "repeats": 9, "held_out": held_out,
        })
    };
    let file = serde_json::json!({
        "schema_version": 1,
        "manifest": {
            "machine": "a test", "gpu": "none", "ranks": 1, "driver": "none", "engine": "treeline, backend cpu",
            "engine_commit": "0", "model": "mini-target", "drafter": "mini-dflash", "execution": "eager",
            "command": "treeline calibrate experiments/quickstart.toml --out FILE", "notes": [],
        },
        "domain": { "requests": [1, 1], "rows": [1, 65], "context": [1, 512], "draft_rows": [8, 8] },
        "ops": [op("target pass", "verify", knots(2000.0)), op("draft pass", "draft", serde_json::json!([[8, 900.0]]))],
        "points": [point(9, false), point(17, true)],
        "held_out": { "points": 0, "median": 0.0, "p90": 0.0, "bias": 0.0 },
        "digest": "",
    });
    let calibration: Calibration = serde_json::from_value(file).unwrap();
    let site = tempfile::tempdir().unwrap();
    let mine = site.path().join("mine.json");
    std::fs::write(&mine, calibration.to_json("mine.json").unwrap()).unwrap();
    let cpu = folder().join("calibrated-cpu");
    let text = std::fs::read_to_string(cpu.join("quickstart.toml")).unwrap();
    let text = text.replace("\"mine.json\"", &format!("\"{}\"", mine.display()));
    let registry = Registry::builtin();
    let experiment = config::parse(&text, "quickstart.toml", &cpu, &registry, &Overrides::default()).unwrap();
    let cells = cells(&experiment);
    assert_eq!(cells.len(), 6);
    let plain = cells.iter().find(|c| c.policy == "plain").unwrap();
    assert!((plain.step_ms.unwrap() - 2.0).abs() < 1e-9, "{plain:?}");
    assert!(cells.iter().all(|c| c.tier == "calibrated" && c.in_domain == Some(true)), "{cells:?}");
}
