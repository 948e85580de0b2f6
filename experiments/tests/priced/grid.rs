//! Grids of a shipped process on a shipped deployment.

use crate::site::{GRID, Site, groups, json};
use serde_json::Value;
use std::path::Path;
use treeline::config::{self, Overrides};
use treeline::results::{Priced, Summary};
use treeline::run::{self, Options};
use treeline_policies::Registry;

#[test]
fn a_grid_leaves_cells_answers_and_what_the_report_draws() {
    let site = Site::new();
    let outcome = site.go(GRID, "run", false);
    assert_eq!(outcome.failed, []);
    let cells = &outcome.summary.cells;
    assert_eq!(cells.len(), 2 * 2 * 2 * 5);
    for c in cells {
        assert_eq!((c.tier.as_str(), c.ranks, c.backend.as_str()), ("table", 8, "sim"));
        let (lo, tau, hi) = (c.tau_lo.unwrap(), c.tau.unwrap(), c.tau_hi.unwrap());
        assert!(lo <= tau + 1e-9 && tau <= hi + 1e-9 && (1.0..=8.0).contains(&tau), "{c:?}");
        let rate = tau * f64::from(c.concurrency) / c.step_ms.unwrap() * 1e3;
        assert!((rate / c.tok_s.unwrap() - 1.0).abs() < 1e-9, "tok/s is τ over the step");
        assert!((c.tok_s_gpu.unwrap() * 8.0 / rate - 1.0).abs() < 1e-9);
        assert!(c.power_w.unwrap() > 100.0 && c.joules_per_token.unwrap() > 0.0 && c.mc_error.unwrap() < 0.1);
        assert_eq!(c.speedup.is_some_and(|s| (s - 1.0).abs() < 1e-12), c.policy == "plain");
    }
    // The anchor of the tree holds on the run's own requests, as far as twelve of them tell.
    let tree = |b| cells.iter().find(|c| c.acceptance.as_deref() == Some("maths, by its tree") && c.budget == b);
    assert!(tree(8).unwrap().tau < tree(32).unwrap().tau);
    let priced = outcome.priced.unwrap();
    assert_eq!(priced.answers.len(), 8);
    for a in &priced.answers {
        let best = a.candidates.iter().map(|c| c.speedup).fold(0.0, f64::max);
        assert_eq!(best, a.speedup, "the best is the best of its candidates");
        assert!(a.lo.unwrap() <= a.speedup && a.speedup <= a.hi.unwrap());
        assert!(a.p_best.is_some_and(|p| p > 0.0 && p <= 1.0));
        assert_eq!((a.parts.model, a.requests), (None, 12), "nothing was varied");
        let left_out = |what: &str| a.left_out.iter().any(|line| line.contains(what));
        assert!(left_out("sampling: 12 requests are few") && left_out("model: `variants = false`"), "{:?}", a.left_out);
        assert!(a.parts.transfer.unwrap() > 0.0 && a.over_reference.is_some());
    }
    assert_eq!(priced.curves.len(), 4);
    let p = &priced.curves[0].points;
    assert!(p.iter().all(|p| p.bound_ms.unwrap() < p.table_ms.unwrap()), "the bound is below the table");
    assert!(priced.breakdowns.iter().any(|b| !b.draft && b.ops.iter().all(|o| o.phase != "draft")));
    assert!(priced.experts.iter().any(|e| e.model == "uniform"));
    // What is on disk is what was returned.
    let dir = site.path("run");
    let summary: Summary = serde_json::from_value(json(&dir.join("summary.json"))).unwrap();
    assert_eq!(summary, outcome.summary);
    let read: Priced = serde_json::from_value(json(&dir.join("priced.json"))).unwrap();
    assert_eq!(read, priced);
    let manifest = json(&dir.join("manifest.json"));
    assert_eq!((&manifest["cost_tier"], &manifest["finished"]), (&"table".into(), &true.into()));
    let digest = |v: &Value| v.as_str().map_or(0, str::len);
    assert!(digest(&manifest["inputs"]["cost"]["digest"]) > 0);
    assert_eq!(digest(&manifest["inputs"]["cost"]["hardware"]["sha256"]), 64);
}

/// Killed after some groups: the rest is run, what is there is kept, the result is the same.
#[test]
fn a_killed_grid_goes_on_and_comes_to_the_same() {
    let site = Site::new();
    let whole = site.go(GRID, "run", false);
    let dir = site.path("run");
    let files = groups(&dir);
    assert_eq!(files.len(), 8);
    // As a kill leaves them: some missing, one cut short.
    for file in &files[..3] {
        std::fs::remove_file(file).unwrap();
    }
    let text = std::fs::read(&files[3]).unwrap();
    std::fs::write(&files[3], &text[..text.len() / 2]).unwrap();
    let kept = std::fs::metadata(&files[4]).unwrap().modified().unwrap();
    let resumed = site.go(GRID, "run", true);
    assert_eq!(resumed.summary.cells, whole.summary.cells);
    assert_eq!(resumed.priced.unwrap().answers, whole.priced.unwrap().answers);
    assert_eq!(std::fs::metadata(&files[4]).unwrap().modified().unwrap(), kept, "a finished group is not run again");
    let cells = json(&dir.join("manifest.json"))["cells"].as_array().unwrap().clone();
    assert_eq!(cells.iter().filter(|c| c["kept"] == true).count(), 4);
}

/// A process that is killed while it writes leaves a folder that goes on.
#[test]
fn a_killed_process_leaves_whole_files() {
    let site = Site::new();
    let text = GRID.replace("rounds = 512", "rounds = 30000");
    let whole = site.go(&text, "whole", false);
    let (file, dir) = (site.path("grid.toml"), site.path("killed"));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_treeline"))
        .args([Path::new("run"), &file, Path::new("--quiet"), Path::new("--out"), &dir])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let some = || dir.join("cells").is_dir() && !groups(&dir).is_empty();
    // Its first group, or, on a machine where it never comes, a minute.
    while !some() && begun.elapsed().as_secs() < 60 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for file in groups(&dir) {
        assert_eq!(json(&file)["cells"].as_array().unwrap().len(), 5, "{}", file.display());
    }
    let resumed = site.go(&text, "killed", true);
    assert_eq!(resumed.summary.cells, whole.summary.cells);
}

#[test]
fn any_number_of_threads_comes_to_the_same() {
    let site = Site::new();
    let on = |threads: usize, out: &str| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| site.go(GRID, out, false))
    };
    let (one, four) = (on(1, "one"), on(4, "four"));
    assert_eq!(one.summary.cells, four.summary.cells);
    assert_eq!(one.priced, four.priced);
}

/// Caps whose cache does not fit are hatched, not run; where nothing fits, nothing begins.
#[test]
fn what_does_not_fit_is_refused_with_the_largest_cap() {
    let site = Site::new();
    let text = GRID.replace("[1, 16]", "[16, 512]").replace("[1024, 8192]", "[65536]");
    let outcome = site.go(&text, "run", false);
    assert_eq!((outcome.summary.cells.len(), outcome.failed.len()), (10, 0));
    let priced = outcome.priced.unwrap();
    assert_eq!(priced.refused.len(), 10);
    let first = &priced.refused[0];
    assert_eq!((first.concurrency, first.context), (512, 65536));
    let cap = first.largest_cap.unwrap();
    assert!((16..512).contains(&cap) && first.missing_bytes.unwrap() > 0.0, "{first:?}");
    assert!(first.reason.contains(&cap.to_string()), "{}", first.reason);
    let said = outcome.summary.warnings.iter().any(|w| w.starts_with("10 cells do not fit into the memory"));
    assert!(said, "{:?}", outcome.summary.warnings);

    let experiment = site.load(&text.replace("[16, 512]", "[1024]")).unwrap();
    let options = Options { out: Some(site.path("none")), quiet: true, ..Options::default() };
    let refused = run::run(&experiment, &Registry::builtin(), &options).unwrap_err();
    assert!(refused.is::<run::Refused>() && refused.to_string().contains("no cell fits"), "{refused}");
    assert!(!site.path("none").exists(), "nothing was begun");
}

#[test]
fn unknown_names_are_refused_where_they_stand() {
    let site = Site::new();
    let refused = |from: &str, to: &str, what: &str, marked: &str| {
        assert!(GRID.contains(from), "{from}");
        let shown = site.load(&GRID.replacen(from, to, 1)).unwrap_err();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].contains(what), "{shown}");
        let line = lines[3].split_once(" | ").unwrap().1;
        let caret = lines[4].split_once(" | ").unwrap().1;
        let under: String = line.chars().skip(caret.find('^').unwrap()).take(caret.matches('^').count()).collect();
        assert_eq!(under, marked, "{shown}");
        assert!(lines.get(5).is_some_and(|l| l.contains("help")), "{shown}");
    };
    refused("sglang-0.5.14-b300-tp8", "sglang-0.5.14-b300-tp9", "sglang-0.5.14-b300-tp9", "\"sglang-0.5.14-b300-tp9\"");
    refused("\"kimi-k2.6\"", "\"kimi-k9\"", "kimi-k9", "\"kimi-k9\"");
    refused("\"uniform\"", "\"unifrm\"", "unifrm", "\"unifrm\"");
    refused("engine =", "hardware = \"h200-sxm\"\nengine =", "h200-sxm", "\"sglang-0.5.14-b300-tp8\"");
}

/// A recording that the command line brings in place of the file's sources accepts what it recorded.
#[test]
fn a_recording_accepts_what_the_process_that_made_it_does() {
    let site = Site::new();
    let process = treeline_sim::accept::process("kimi-k2.5-dflash-mtbench", Path::new(".")).unwrap();
    treeline::trace::write(&site.path("own.parquet"), &process.generate(12, 96, 5).unwrap()).unwrap();
    let made = site.go(GRID, "made", false);
    let overrides = Overrides { trace: Some(site.path("own.parquet")), ..Overrides::default() };
    let experiment = config::load_with(&site.path("grid.toml"), &Registry::builtin(), &overrides).unwrap();
    let options = Options { out: Some(site.path("own")), quiet: true, ..Options::default() };
    let own = run::run(&experiment, &Registry::builtin(), &options).unwrap();
    assert_eq!((own.failed.len(), own.summary.cells.len()), (0, 20));
    for c in own.summary.cells.iter().filter(|c| c.policy != "batch-wide") {
        let same = |d: &&treeline::results::Cell| {
            d.acceptance.as_deref() == Some("chat")
                && (&d.policy, d.budget, d.context, d.concurrency) == (&c.policy, c.budget, c.context, c.concurrency)
        };
        assert_eq!(made.summary.cells.iter().find(same).unwrap().tau, c.tau);
        assert_eq!((c.source.tau.as_str(), c.acceptance.as_deref()), ("replayed", Some("own")));
    }
}

/// Acceptance of one pair priced as another would be an invented number.
#[test]
fn a_trace_of_other_models_is_refused() {
    let site = Site::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/mini-pair.parquet");
    let from = GRID.find("[[acceptance]]").unwrap();
    let to = GRID.find("[[policy]]").unwrap();
    let source = format!("[[acceptance]]\nname = \"mini\"\ntrace = {trace:?}\n");
    let text = format!("{}{source}{}", &GRID[..from], &GRID[to..]).replace("response = 96\nrequests = 12\n", "");
    let options = Options { out: Some(site.path("none")), quiet: true, ..Options::default() };
    let refused = run::run(&site.load(&text).unwrap(), &Registry::builtin(), &options).unwrap_err();
    assert!(refused.is::<run::Refused>(), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("acceptance.0.trace") && said.contains("vocabulary of 8192"), "{said}");
}

/// A model has so many positions; a rate at which requests never meet is no load.
#[test]
fn contexts_and_rates_beyond_use_are_refused() {
    let site = Site::new();
    let refused = |from: &str, to: &str| {
        let text = GRID.replace(from, to);
        assert_ne!(text, GRID);
        site.load(&text).unwrap_err()
    };
    let long = refused("context = [1024, 8192]", "context = [1024, 1000000]");
    assert!(long.contains("behind 1000000 does not fit kimi-k2.6, which has 262144 positions"), "{long}");
    for rate in ["5e-324", "0", "1e12", "nan"] {
        let rare = refused("response = 96", &format!("response = 96\narrivals = {{ rate = {rate} }}"));
        assert!(rare.contains("0.001 to 1000000"), "{rate}: {rare}");
    }
}

/// What nested tables cannot hold is refused where it stands, before anything runs; a replay has no such limit.
#[test]
fn budgets_beyond_the_tables_are_refused_with_the_limit() {
    let site = Site::new();
    let big = GRID.replace("budget = [8, 32]", "budget = [8, 2048]");
    let shown = site.load(&big).unwrap_err();
    let message = "a budget of 2048 is beyond the 2047 nodes of the nested tables that `best-first` is simulated on";
    assert!(shown.starts_with(message), "{shown}");
    assert!(shown.contains("grid.toml:") && shown.contains("^^^^") && shown.contains("2047 at the most"), "{shown}");
    assert!(site.load(&GRID.replace("budget = [8, 32]", "budget = [8, 2047]")).is_ok());
    assert!(site.load(&big.replace("record = \"summary\"", "record = \"sample:1000\"")).is_ok());
    let talon = format!("{big}[[policy]]\nkind = \"talon\"\nbudget = [16]\n");
    assert!(site.load(&talon).is_ok(), "every cell is replayed then");
    let wide = GRID.replace("requests = 12", "requests = 100000").replace("response = 96", "response = 4096");
    let shown = site.load(&wide).unwrap_err();
    assert!(shown.contains("more nodes than nested tables hold") && shown.contains("requests = 100000"), "{shown}");
}

/// A part of two requests is no interval, and is not printed as a narrow one.
#[test]
fn two_requests_have_no_interval() {
    let site = Site::new();
    let outcome = site.go(&GRID.replace("requests = 12", "requests = 2"), "run", false);
    let said = |w: &String| w.starts_with("40 of 40 cells stand on fewer than 20 requests (the fewest: 2)");
    assert!(outcome.summary.warnings.iter().any(said), "{:?}", outcome.summary.warnings);
    for c in &outcome.summary.cells {
        assert_eq!((c.tau_lo, c.tok_s_hi, c.speedup_lo), (None, None, None));
    }
    for a in &outcome.priced.unwrap().answers {
        assert_eq!((a.parts.sampling, a.p_best, a.requests), (None, None, 2));
        assert!(a.left_out[0].starts_with("sampling: 2 requests are too few"), "{:?}", a.left_out);
    }
}

/// A finished folder without its answers is made whole by what the report says.
#[test]
fn a_folder_without_its_answers_is_made_whole() {
    let site = Site::new();
    let whole = site.go(GRID, "run", false);
    let dir = site.path("run");
    std::fs::remove_file(dir.join("priced.json")).unwrap();
    let treeline =
        |args: &[&str]| std::process::Command::new(env!("CARGO_BIN_EXE_treeline")).args(args).output().unwrap();
    let at = dir.to_str().unwrap();
    let out = treeline(&["report", at]);
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && err.contains("priced.json: missing"), "{err}");
    let resolved = format!("{at}/experiment.resolved.toml");
    assert!(err.contains(&format!("treeline run {resolved} --resume {at}")), "{err}");
    let out = treeline(&["run", &resolved, "--resume", at, "--quiet"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read: Priced = serde_json::from_value(json(&dir.join("priced.json"))).unwrap();
    assert_eq!(read.answers, whole.priced.unwrap().answers);
    assert!(treeline(&["report", at]).status.success());
}

/// A chain's length is its own, whatever trees stand beside it: alone, behind smaller ones, before larger ones.
#[test]
fn chains_do_not_depend_on_the_trees_beside_them() {
    let site = Site::new();
    let from = GRID.find("[[policy]]").unwrap();
    let head = GRID[..from].replace("reference = { policy = \"best-first\", budget = 8 }\n", "");
    let policy = |kind: &str, budgets: &str| format!("[[policy]]\nkind = \"{kind}\"\nbudget = {budgets}\n");
    let chains = policy("chain", "[1, 3, 7]");
    let taus = |name: &str, others: &str| -> Vec<(f64, f64)> {
        let outcome = site.go(&format!("{head}{others}{chains}"), name, false);
        let cells = outcome.summary.cells.into_iter().filter(|c| c.policy == "chain");
        cells.map(|c| (c.tau.unwrap(), c.rows_mean.unwrap())).collect()
    };
    let alone = taus("alone", "");
    assert_eq!(alone.len(), 2 * 2 * 2 * 3);
    for cell in alone.chunks(3) {
        assert!(cell[0].0 < cell[1].0 && cell[1].0 < cell[2].0 && cell[2].1 > 6.0, "{cell:?}");
    }
    assert_eq!(taus("small", &policy("best-first", "[2]")), alone);
    let mixed = format!("{}{}", policy("best-first", "[4]"), policy("spine-first", "[16]"));
    assert_eq!(taus("mixed", &mixed), alone);
    assert_eq!(taus("large", &policy("best-first", "[32]")), alone);
}

/// A folder is resumed by the experiment that began it.
#[test]
fn another_experiments_folder_is_not_taken_over() {
    let site = Site::new();
    site.go(GRID, "run", false);
    let before = std::fs::read(site.path("run/summary.json")).unwrap();
    std::fs::write(site.path("other.toml"), GRID.replace("name = \"grid\"", "name = \"other\"")).unwrap();
    let args = ["run", site.path("other.toml").to_str().unwrap(), "--resume", site.path("run").to_str().unwrap()]
        .map(str::to_owned);
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_treeline")).args(&args).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && err.contains("holds a run of `grid`") && err.contains("--out"), "{err}");
    assert_eq!(std::fs::read(site.path("run/summary.json")).unwrap(), before);
}
