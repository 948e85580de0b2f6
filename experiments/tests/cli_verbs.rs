//! The command line, through the built binary: results on stdout, everything else on stderr, documented exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use treeline_core::End;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};

/// The binary, without the caller's terminal settings.
fn treeline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
    command.args(args).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

/// Runs it, expects this exit code, and holds it to its manners: no colour into pipes, no panic.
#[track_caller]
fn run_in(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = treeline(args).current_dir(folder).output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}\n{out}\n{err}");
    assert!(!out.contains('\x1b') && !err.contains('\x1b'), "colour in a pipe: {out}{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

#[track_caller]
fn run(args: &[&str], code: i32) -> (String, String) {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), args, code)
}

/// Fails with this code, prints no result, and one message that starts with `message`.
#[track_caller]
fn fails(args: &[&str], code: i32, message: &str) -> String {
    let (out, err) = run(args, code);
    assert_eq!(out, "");
    assert!(err.starts_with(&format!("error: {message}")), "{err}");
    assert_eq!(err.matches("error: ").count(), 1, "{err}");
    err
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_names_every_verb_and_the_exit_codes() {
    let (out, err) = run(&["--help"], 0);
    for verb in ["run", "policies", "profiles", "policy", "doctor", "schema", "trace", "calibrate", "advise"] {
        assert!(out.lines().any(|l| l.trim_start().starts_with(&format!("{verb} "))), "{verb}\n{out}");
    }
    assert!(out.contains("Exit codes") && err.is_empty());
    assert!(run(&["--version"], 0).0.starts_with("treeline "));
}

#[test]
fn a_wrong_command_line_is_code_2() {
    for args in [&["walk"][..], &[], &["run"], &["run", "x.toml", "--backend", "tpu"], &["trace", "info"]] {
        let (out, err) = run(args, 2);
        assert!(out.is_empty() && !err.is_empty(), "{args:?}");
    }
}

#[test]
fn a_wrong_experiment_is_code_2_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    fails(&["run", "no-such.toml"], 2, "cannot read experiment file no-such.toml");
    let bad = file(folder.path(), "bad.toml", "name = \"x\"\nsead = 3\n");
    let err = fails(&["run", &bad], 2, "unknown key `sead`");
    for line in ["bad.toml:2:1", "2 | sead = 3", "  | ^^^^", "did you mean `seed`?"] {
        assert!(err.contains(line), "{line}\n{err}");
    }
}

/// Without a GPU, one clear line: what is missing, where it was looked for, and how to get it.
#[test]
fn without_a_gpu_backend_cuda_ends_with_one_line() {
    if treeline_cuda::device::Gpu::open(0).is_ok() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let (_, err) = run(&["run", "quickstart.toml", "--backend", "cuda", "--out", &out], 2);
    assert!(err.starts_with("error: ") && err.lines().count() == 1, "{err}");
    assert!(!folder.path().join("run").exists(), "a run that cannot begin leaves no folder");
}

#[test]
fn policies_lists_kinds_needs_and_parameters() {
    let (out, err) = run(&["policies"], 0);
    let kinds: Vec<&str> =
        "chain best-first spine-first top-k adaptive cost-aware batch-wide sequoia opt-tree spec-exec talon"
            .split(' ')
            .collect();
    for kind in &kinds {
        assert!(out.lines().any(|l| l.starts_with(&format!("{kind}  "))), "{kind}\n{out}");
    }
    assert!(err.is_empty());
    let json: serde_json::Value = serde_json::from_str(&run(&["policies", "--json"], 0).0).unwrap();
    let listed: Vec<&str> = json.as_array().unwrap().iter().map(|p| p["kind"].as_str().unwrap()).collect();
    assert_eq!(listed, kinds);
}

/// Every shipped profile can be shown, each figure with its source.
#[test]
fn profiles_show_a_source_for_every_field() {
    let (list, _) = run(&["profiles"], 0);
    for name in ["b300-sxm6", "kimi-k2.6", "kimi-k2.6-dflash", "sglang-0.5.14-b300-tp8", "uniform"] {
        assert!(list.lines().any(|l| l.trim() == name), "{name}\n{list}");
    }
    let all: serde_json::Value = serde_json::from_str(&run(&["profiles", "--json"], 0).0).unwrap();
    let names = all.as_object().unwrap().values().flat_map(|v| v.as_array().unwrap());
    for name in names.map(|n| n.as_str().unwrap()) {
        let shown: serde_json::Value = serde_json::from_str(&run(&["profiles", name, "--json"], 0).0).unwrap();
        let fields = shown["fields"].as_array().cloned().unwrap_or_default();
        assert!(fields.iter().all(|f| !f["source"].as_str().unwrap().is_empty()), "{name}");
        assert!(
            !fields.is_empty() || shown["toml"].as_str().is_some_and(|t| t.contains("source")) || name == "uniform"
        );
    }
    let said = fails(&["profiles", "b300-sxm7"], 2, "nothing called `b300-sxm7` ships");
    assert!(said.contains("did you mean `b300-sxm6`?"), "{said}");
}

#[test]
fn schema_prints_the_committed_file() {
    let committed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/experiment.schema.json"));
    assert!(run(&["schema"], 0).0 == committed.unwrap());
}

#[test]
fn doctor_says_what_can_run_and_why_not() {
    let (out, _) = run(&["doctor"], 0);
    let cuda = match treeline_cuda::device::Gpu::open(0) {
        Ok(_) => "yes  backend cuda",
        Err(_) => "no   backend cuda: ",
    };
    assert!(out.contains("yes  backend cpu") && out.contains(cuda), "{out}");
    let json: serde_json::Value = serde_json::from_str(&run(&["doctor", "--json"], 0).0).unwrap();
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(json["verdicts"].as_array().unwrap().len(), 3);
    // Away from any checkout the bundled models are missing, and that is said, not failed on.
    let (out, _) = run_in(tempfile::tempdir().unwrap().path(), &["doctor"], 0);
    assert!(out.contains("mini-target: not found"), "{out}");
}

/// `treeline … | head` must end quietly, whatever is printed.
#[test]
fn a_reader_that_hangs_up_is_no_failure() {
    for args in [&["schema"][..], &["policies"], &["doctor", "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = treeline(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A block drafter of two levels and three ranks; two requests, the first with three positions.
fn trace() -> Trace {
    let position = |truth: &[Option<u32>]| Position {
        ends: vec![3, 6],
        logp: [0.5f32, 0.25, 0.125, 0.6, 0.2, 0.05].map(f32::ln).to_vec(),
        truth: truth.to_vec(),
        ..Position::default()
    };
    let request = |id: u64, positions: Vec<Position>| TraceRequest {
        id,
        domain: "code".into(),
        prompt_tokens: 10,
        max_new: positions.len() as u32 + 1,
        tokens: Vec::new(),
        emitted: positions.len() as u32 + 1,
        positions,
        end: End::Length,
    };
    let meta = TraceMeta {
        depth: 2,
        width: 3,
        conditional: false,
        ids: false,
        vocab: 100,
        context: 64,
        temperature: 0.7,
        seed: 1,
        source: "by hand".into(),
    };
    let first = vec![position(&[Some(1), Some(0)]), position(&[Some(0), None]), position(&[None])];
    Trace { meta, requests: vec![request(3, first), request(5, vec![position(&[Some(2)])])] }
}

fn trace_file(folder: &Path) -> String {
    let path = folder.join("t.parquet");
    treeline::trace::write(&path, &trace()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn trace_info_sums_up_and_refuses_what_is_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file_name = trace_file(folder.path());
    let (out, _) = run(&["trace", "info", &file_name], 0);
    assert!(out.contains("rank trace") && out.contains("2 responses"), "{out}");
    let json: serde_json::Value = serde_json::from_str(&run(&["trace", "info", &file_name, "--json"], 0).0).unwrap();
    assert_eq!((json["requests"].as_u64(), json["positions"].as_u64()), (Some(2), Some(4)));
    for text in ["", "PAR1", "PAR1 and so on PAR1"] {
        let bad = file(folder.path(), "bad.parquet", text);
        let err = fails(&["trace", "info", &bad], 2, "");
        assert!(err.contains("bad.parquet") && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn policy_try_draws_the_tree_and_marks_what_came_true() {
    let folder = tempfile::tempdir().unwrap();
    let t = trace_file(folder.path());
    let (out, err) = run(&["policy", "try", "best-first", "--trace", &t, "--budget", "4"], 0);
    let expect = "\
best-first, budget 4: request 3 (code), position 0 at 10

root
├─ rank 0  q 0.500  path 0.500
│  └─ rank 0  q 0.600  path 0.300
└─ rank 1  q 0.250  path 0.250  ✓
   └─ rank 0  q 0.600  path 0.150  ✓

4 nodes, 2 deep. Expected tokens 1 + Φ = 2.20, emitted 3 (✓ accepted, then one that the target chose).
True path, ranks by depth: 1 0  (– is not among the 3 ranks on record)
";
    assert_eq!(out, expect);
    assert_eq!(err, "");
    let at = |more: &[&str]| {
        let base = ["policy", "try", "top-k", "--trace", &t, "--set", "width=1"];
        run(&[&base[..], more].concat(), 0).0
    };
    assert!(at(&["--position", "1"]).contains("└─ rank 0  q 0.500  path 0.500  ✓"));
    assert!(at(&["--request", "5"]).contains("request 5 (code), position 0 at 10"));
    assert!(at(&["--position", "2"]).contains("ranks by depth: –"));
}

#[test]
fn policy_try_refuses_what_it_cannot_draw() {
    let folder = tempfile::tempdir().unwrap();
    let t = trace_file(folder.path());
    let bad = |args: &[&str], message: &str| {
        fails(&[&["policy", "try"][..], args, &["--trace", &t]].concat(), 2, message);
    };
    bad(&["best"], "unknown policy kind `best`");
    bad(&["chain", "--position", "3"], "request 3 has 3 positions, 0 to 2; there is no 3");
    bad(&["chain", "--request", "4"], "the trace has no request 4; it has 2 (3, 5)");
    bad(&["top-k", "--set", "widht=1"], "policy `top-k`");
    bad(&["top-k", "--set", "width"], "--set width: write KEY=VALUE");
    bad(&["adaptive"], "");
    fails(&["policy", "try", "chain", "--trace", "no-such.parquet"], 2, "no-such.parquet");
}

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn policy_new_writes_a_crate_that_cargo_can_read() {
    let folder = tempfile::tempdir().unwrap();
    // The checkout is named here, since the build may lie outside of it; the next test lets it be found.
    let (out, err) = run_in(folder.path(), &["policy", "new", "my-policy", "--treeline", CHECKOUT], 0);
    let made = folder.path().join(out.trim());
    assert_eq!(made, folder.path().join("./my-policy"));
    assert!(err.starts_with("next: "), "{err}");
    let read = |name: &str| std::fs::read_to_string(made.join(name)).unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("my-policy"));
    let core = PathBuf::from(manifest["dependencies"]["treeline-core"]["path"].as_str().unwrap());
    assert!(core.join("src/lib.rs").is_file(), "{core:?}");
    assert!(read("src/main.rs").contains("treeline::cli::main_with(registry)"));
    let code = |l: &&str| !l.is_empty() && !l.starts_with("//");
    assert_eq!(read("src/main.rs").lines().filter(code).count(), 5, "a main of five lines");
    assert!(!read("src/lib.rs").contains("{{") && !read("quickstart.toml").contains("{{"));
    // A second time it would overwrite somebody's work.
    let (_, err) = run_in(folder.path(), &["policy", "new", "my-policy", "--treeline", CHECKOUT], 2);
    assert!(err.contains("is there already"), "{err}");
}

/// The experiment beside the new policy names only keys that are read.
#[test]
fn the_new_policys_experiment_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    run(&["policy", "new", "mine", "--dir", folder.path().to_str().unwrap()], 0);
    let path = folder.path().join("mine/quickstart.toml");
    let text = std::fs::read_to_string(path).unwrap().replace("kind = \"mine\"", "kind = \"spine-first\"");
    let registry = treeline_policies::Registry::builtin();
    let overrides = treeline::config::Overrides::default();
    let e = treeline::config::parse(&text, "quickstart.toml", folder.path(), &registry, &overrides);
    let e = e.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(e.policies.len(), 3);
    assert!(e.folder.join("prompts/humaneval.jsonl").is_file(), "{}", e.folder.display());
}

#[test]
fn policy_new_refuses_bad_names_and_places() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    for name in ["My", "a_b", "chain", "../x", "fn", ""] {
        fails(&["policy", "new", name, "--dir", at], 2, "");
    }
    fails(&["policy", "new", "fine", "--dir", at, "--treeline", at], 2, at);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a refusal leaves nothing behind");
}

/// An experiment that replays the hand-made trace.
fn replay(folder: &Path, policies: &str) -> String {
    trace_file(folder);
    let text = format!(
        "name = \"replay\"\nseed = 1\nrecord = \"all\"\nbootstrap = 100\n\n[backend]\nkind = \"sim\"\ntrace = \"t.parquet\"\n\n\
         [workload]\nconcurrency = [1, 2]\n\n{policies}"
    );
    file(folder, "replay.toml", &text)
}

const TWO: &str = "[[policy]]\nkind = \"chain\"\nbudget = [2]\n\n[[policy]]\nkind = \"best-first\"\nbudget = [2, 4]\n";

#[test]
fn a_replay_runs_to_a_folder_an_answer_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = replay(folder.path(), TWO);
    let (out, err) = run_in(folder.path(), &["run", &experiment, "--out", "done", "--quiet"], 0);
    assert!(out.contains("best-first") && out.contains("chain"), "{out}");
    assert!(err.contains("report: done/report.html"), "{err}");
    assert!(err.contains("warning: the interval rests on"), "{err}");
    for name in ["experiment.resolved.toml", "manifest.json", "rounds.parquet", "summary.json", "report.html"] {
        assert!(folder.path().join("done").join(name).is_file(), "{name}");
    }
    // The resolved file is the same experiment: run again, it gives the same figures.
    let (json, _) =
        run_in(folder.path(), &["run", "done/experiment.resolved.toml", "--out", "again", "--json", "-q"], 0);
    let again: treeline::results::Summary = serde_json::from_str(&json).unwrap();
    let first = std::fs::read_to_string(folder.path().join("done/summary.json")).unwrap();
    let first: treeline::results::Summary = serde_json::from_str(&first).unwrap();
    assert_eq!(first, again);
    // (plain + chain + best-first × 2) × 2 concurrencies.
    assert_eq!(first.cells.len(), 8);
    let tau = |policy: &str, budget: u32| {
        first.cells.iter().find(|c| (c.policy.as_str(), c.budget, c.concurrency) == (policy, budget, 1)).unwrap().tau
    };
    // Best-first 4: request 3 emits all three tokens behind its first in one step, request 5 its one.
    assert_eq!(tau("best-first", 4), Some(2.0));
    assert_eq!(tau("plain", 0), Some(1.0));
}

#[test]
fn a_run_folder_is_resumed_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = replay(folder.path(), TWO);
    let go = |args: &[&str], code: i32| run_in(folder.path(), &[&["run", &experiment, "-q"], args].concat(), code);
    go(&["--out", "r"], 0);
    let cells = || {
        let times = |e: std::fs::DirEntry| (e.file_name(), e.metadata().unwrap().len());
        let mut all: Vec<_> =
            std::fs::read_dir(folder.path().join("r/cells")).unwrap().map(|e| times(e.unwrap())).collect();
        all.sort();
        all
    };
    let before = cells();
    let (_, err) = go(&["--out", "r"], 2);
    assert!(err.contains("resume"), "{err}");
    go(&["--resume", "r"], 0);
    go(&["--out", "r", "--resume"], 0);
    assert_eq!(cells(), before);
    assert!(go(&["--resume", "nowhere"], 2).1.contains("nothing to resume"));
    assert!(go(&["--resume"], 2).1.contains("nothing to resume: no run of `replay`"));
    // Without --out a run folder is made in `runs`, and `--resume` alone finds it.
    go(&[], 0);
    let (_, err) = go(&["--resume"], 0);
    assert!(err.contains("run folder: runs/replay-"), "{err}");
}
