//! The verbs that run real models, through the built binary, on the tiny checkpoints of the CPU engine's fixtures.

use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use treeline::results::Summary;
use treeline_sim::cost::Calibration;

/// A folder with a target of Kimi's architecture, a DFlash drafter, prompts and an experiment `tiny.toml`.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-cpu/tests/fixtures");
    for (from, to) in [("kimi_k2", "target"), ("dflash_kimi", "dflash")] {
        std::fs::create_dir(dir.path().join(to)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(fixtures.join(from).join(file), dir.path().join(to).join(file)).unwrap();
        }
    }
    let vocab: Map<String, Value> = (0..62).map(|i| (format!("t{i}"), json!(i))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "t0" },
    });
    let prompt = |i: usize| {
        let text: Vec<String> = (0..5 + 2 * i).map(|t| format!("t{}", (t * 7 + i * 3) % 62)).collect();
        format!("{}\n", json!({ "id": format!("p/{i}"), "domain": "words", "text": text.join(" ") }))
    };
    std::fs::write(dir.path().join("target/tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(dir.path().join("prompts.jsonl"), (0..5).map(prompt).collect::<String>()).unwrap();
    std::fs::write(dir.path().join("tiny.toml"), EXPERIMENT).unwrap();
    dir
}

const EXPERIMENT: &str = r#"name = "tiny"
seed = 5
record = "summary"
bootstrap = 100
baseline = false

[target]
checkpoint = "target"

[drafter]
kind = "dflash"
checkpoint = "dflash"
width = 16

[backend]
kind = "cpu"
context = 160

[workload]
max_new = 24
ignore_eos = true
chat = "off"
concurrency = [2]
[[workload.prompts]]
file = "prompts.jsonl"

[sampling]
law = "sample-match"
temperature = [0.7, 0]

[[policy]]
kind = "best-first"
budget = [6]

[[policy]]
kind = "chain"
budget = [3]
"#;

/// Runs the binary in `folder` and expects success.
#[track_caller]
fn run(folder: &Path, args: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
    let output = command.args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    (out, err)
}

fn summary(folder: &Path, args: &[&str]) -> Summary {
    serde_json::from_str(&run(folder, &[args, &["--json", "-q"]].concat()).0).unwrap()
}

/// What was recorded replays, through files and the command line, to the figures of the live run.
#[test]
fn a_recorded_trace_replays_to_the_live_figures() {
    let site = site();
    let live = summary(site.path(), &["run", "tiny.toml", "--out", "live"]);
    for temperature in ["0.7", "0"] {
        for (out, more) in [("full.parquet", &[][..]), ("ranks.parquet", &["--ranks-only"])] {
            let base = ["trace", "record", "tiny.toml", "--temperature", temperature, "-o", out, "-q"];
            let (path, info) = run(site.path(), &[&base[..], more].concat());
            assert_eq!(path.trim(), out);
            assert!(info.contains("5 responses, 120 tokens"), "{info}");
            let runs = format!("replay-{temperature}-{out}");
            let replay =
                summary(site.path(), &["run", "tiny.toml", "--backend", "sim", "--trace", out, "--out", &runs]);
            assert_eq!(replay.cells.len(), 2);
            let at = |c: &&treeline::results::Cell| c.temperature.to_string() == temperature;
            for (was, is) in live.cells.iter().filter(at).zip(&replay.cells) {
                assert_eq!((&was.policy, was.tau, was.rounds), (&is.policy, is.tau, is.rounds), "{out}");
                assert_eq!(is.step_ms, None, "a replay has no clock");
            }
        }
    }
    let (sizes, _) = run(site.path(), &["trace", "info", "ranks.parquet"]);
    assert!(sizes.contains("rank trace"), "{sizes}");
}

/// A trace has one temperature: the choice is the user's.
#[test]
fn trace_record_asks_which_temperature() {
    let site = site();
    for (args, why) in [
        (&[][..], "choose with --temperature, of [0.7, 0.0]"),
        (&["--temperature", "1"], "temperature 1 is not among [0.7, 0.0]"),
        (&["--temperature", "0", "--width", "17"], "the experiment keeps 16 ranks per row"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
        command.args(["trace", "record", "tiny.toml", "-o", "t.parquet"]).args(args).current_dir(site.path());
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(why), "{err}");
        assert!(!site.path().join("t.parquet").exists());
    }
}

/// The measured curve goes into the file as it is printed, and a policy that needs a cost runs on it.
#[test]
fn a_calibrated_curve_serves_the_adaptive_policy() {
    let site = site();
    let adaptive = "\n[[policy]]\nkind = \"adaptive\"\nbudget = [8]\n";
    let file = site.path().join("tiny.toml");
    std::fs::write(&file, format!("{EXPERIMENT}{adaptive}")).unwrap();
    let (curve, _) = run(site.path(), &["calibrate", "tiny.toml", "-q"]);
    assert!(
        curve.starts_with("[cost.curve]\nrows = [1, 2, ")
            && curve.contains("source = \"treeline calibrate tiny.toml\""),
        "{curve}"
    );
    std::fs::write(&file, format!("{EXPERIMENT}{adaptive}\n{curve}")).unwrap();
    let run = summary(site.path(), &["run", "tiny.toml", "--out", "r"]);
    assert!(run.cells.iter().any(|c| c.policy == "adaptive" && c.tau.is_some()), "{run:?}");
}

/// A calibration file that is written is whole: what reads it checks domain, points, held-out error and digest.
#[test]
fn a_calibration_file_is_written_and_read() {
    let site = site();
    let file = site.path().join("tiny.toml");
    let many = EXPERIMENT.replace("concurrency = [2]", "concurrency = [1, 2]").replace("budget = [6]", "budget = [23]");
    std::fs::write(&file, many).unwrap();
    let (says, _) = run(site.path(), &["calibrate", "tiny.toml", "--out", "machine.json", "-q"]);
    assert!(says.starts_with("machine.json: ") && says.contains("held out: median error"), "{says}");
    let text = std::fs::read_to_string(site.path().join("machine.json")).unwrap();
    let read = Calibration::from_json(&text, "machine.json").unwrap();
    assert_eq!(read.domain.requests, [1, 2]);
    assert!(read.points.iter().any(|p| p.draft_requests == 0), "plain rounds are among them");
    assert!(read.points.iter().all(|p| p.experts.is_some_and(|e| e >= 1.0)), "this target has routed experts");
    assert_eq!(read.manifest.command, "treeline calibrate tiny.toml --out FILE");
    let broken = text.replacen("\"round_us\": ", "\"round_us\": 1", 1);
    assert!(Calibration::from_json(&broken, "machine.json").is_err(), "a changed figure is found out");
}

#[test]
fn a_calibration_file_needs_a_folder_and_enough_steps() {
    let site = site();
    let refused = |args: &[&str], why: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
        let output =
            command.args(["calibrate", "tiny.toml", "-q"]).args(args).current_dir(site.path()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && err.contains(why), "{err}");
    };
    refused(&["--out", "nowhere/machine.json"], "there is no folder nowhere");
    refused(&["--out", "machine.json"], "give more budgets or concurrencies");
    assert!(!site.path().join("machine.json").exists());
}
