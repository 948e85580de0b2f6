//! `treeline advise` through the built binary, and policies calibrated on half of the requests.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[track_caller]
fn treeline(args: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    command.args(args).stdin(Stdio::null()).current_dir(folder).env_remove("COLUMNS");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}\n{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

const DEPLOYMENT: [&str; 12] = [
    "advise",
    "--deployment",
    "sglang-0.5.14-b300-tp8",
    "--model",
    "kimi-k2.6",
    "--drafter",
    "kimi-k2.6-dflash",
    "--experts",
    "correlated-mini-pair",
    "--most",
    "16",
    "--quiet",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    DEPLOYMENT.iter().copied().chain(more.iter().copied()).collect()
}

const LOAD: [&str; 12] = [
    "--process",
    "kimi-k2.6-dspark",
    "--tau",
    "4.5",
    "--concurrency",
    "1,32",
    "--context",
    "4096",
    "--response",
    "96",
    "--requests",
    "16",
];

#[test]
fn the_advice_is_a_table_and_a_file_that_agree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("advice.json");
    let mut args = with(&LOAD);
    args.extend(["--present", "chain:7", "--out", file.to_str().unwrap()]);
    let (out, _) = treeline(&args, 0);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&json["schema_version"], &json["failed"]), (&2.into(), &serde_json::json!([])));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|r| r["concurrency"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 32]);
    for row in rows {
        let f = |key: &str| row[key].as_f64().unwrap();
        assert!(f("lo") <= f("speedup") && f("speedup") <= f("hi"), "{row}");
        assert!(f("over_present") >= 1.0 - 1e-9, "the best is at least what runs today: {row}");
        assert!((0.0..=1.0).contains(&f("p_best")) && (0.0..1.0).contains(&f("at_stake")), "{row}");
        // What SGLang runs today with a block drafter is a chain or nothing.
        let today = row["today"]["choice"]["policy"].as_str().unwrap();
        assert!(matches!(today, "chain" | "plain"), "{row}");
        assert!(row["fixed"]["speedup"].as_f64().unwrap() >= row["today"]["speedup"].as_f64().unwrap());
        let name = format!("{} {}", row["best"]["policy"].as_str().unwrap(), row["best"]["budget"]);
        assert!(out.contains(&name), "{name}\n{out}");
    }
    let staked = |row: &&Value| row["at_stake"].as_f64().unwrap() > 0.0 && row["at_stake_input"].is_string();
    assert!(rows.iter().any(|r| staked(&r)), "some input decides somewhere: {rows:?}");
    // A tree pays more at one request than at 32 on a mixture of experts that is far from saturated.
    assert!(rows[0]["speedup"].as_f64() > rows[1]["speedup"].as_f64(), "{rows:?}");
    let keys: Vec<&str> = json["measure_next"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
    for key in ["acceptance_scale", "experts", "kv-dtype", "moe"] {
        assert!(keys.contains(&key), "{key} among {keys:?}");
    }
    let losses: Vec<f64> =
        json["measure_next"].as_array().unwrap().iter().map(|s| s["loss_mean"].as_f64().unwrap()).collect();
    assert!(losses.windows(2).all(|w| w[0] >= w[1]), "{losses:?}");
    assert!(out.contains("--speculative-num-draft-tokens"), "{out}");
    assert!(json["notes"].to_string().contains("not a recording"), "a process is no measurement: {}", json["notes"]);
    for line in out.lines().filter(|l| !l.contains("--speculative")) {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |args: &[&str], what: &str| {
        let (out, err) = treeline(args, 2);
        assert!(out.is_empty() && err.contains(what), "{what}\n{err}");
    };
    refused(&["advise"], "--deployment");
    refused(&with(&["--concurrency", "1", "--context", "4096"]), "there is no default");
    refused(&with(&["--process", "kimi-k2.6-dspark", "--context", "4096"]), "--concurrency is missing");
    refused(&with(&["--process", "kimi-k2.6-dspark", "--concurrency", "1"]), "--context is missing");
    refused(&with(&["--trace", "none.parquet", "--concurrency", "1"]), "no such trace");
    refused(&with(&["--tau", "4", "--concurrency", "1"]), "--process");
    let mut args = with(&LOAD);
    args.extend(["--present", "chain"]);
    refused(&args, "POLICY:BUDGET");
    args.pop();
    args.push("best-fist:8");
    refused(&args, "best-fist");
    refused(&["advise", "quickstart.toml", "--quiet"], "[deployment]");
    refused(&["advise", "batch-wide.toml", "--most", "8"], "cannot be used with");
}

const SPLIT: &str = r#"
name = "split"
seed = 3
record = "summary"
bootstrap = 400
split = "halves"

[backend]
kind = "sim"

[deployment]
engine = "vllm-0.24-b300-tp8"
model = "kimi-k2.6"
drafter = "kimi-k2.6-dflash"
tier = "table"
allow_extrapolation = true
experts = "correlated-mini-pair"
prefill = "excluded"

[workload]
concurrency = [1, 8, 64]
context = [4096]
response = 512
requests = 512
rounds = 4096
arrivals = "closed"

[[acceptance]]
name = "MBPP"
process = "kimi-k2.5-dflash-mbpp"
variants = false

[[policy]]
kind = "chain"
budget = [5, 7]

[[policy]]
kind = "best-first"
budget = [4, 6, 8, 10, 12, 16, 24]

[[policy]]
kind = "batch-wide"
budget = [32]
calibration = "claimed"
off = false
"#;

/// Fewer cells of `batch-wide.toml`: calibrated on half A and scored on half B, the batch-wide policy is nowhere more than a
/// percent below the fixed budget that half A chose, at the lower end of its interval.
#[test]
fn batch_wide_holds_its_bound_on_requests_that_it_has_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("split.toml");
    std::fs::write(&file, SPLIT).unwrap();
    let dir = folder.path().join("run");
    let (out, _) = treeline(&["run", file.to_str().unwrap(), "--out", dir.to_str().unwrap(), "--quiet"], 0);
    assert!(out.contains("batch-wide 32 against the best fixed budget of half A"), "{out}");
    let priced: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("priced.json")).unwrap()).unwrap();
    let scores = priced["split"].as_array().unwrap();
    assert_eq!(scores.len(), 3);
    for s in scores {
        assert_eq!((s["calibrated"].as_u64(), s["scored"].as_u64()), (Some(256), Some(256)));
        let p = &s["policies"][0];
        assert!(p["gain"]["lo"].as_f64().unwrap() >= 0.99, "{s}");
        assert!(p["gain"]["se"].as_f64().unwrap() <= 0.006, "{s}");
        let (mid, hindsight) = (p["gain"]["mid"].as_f64().unwrap(), p["over_hindsight"]["mid"].as_f64().unwrap());
        assert!(hindsight <= mid + 1e-12, "what is known afterwards is at least as good: {s}");
    }
}

/// A policy with a memory is replayed round by round: it has no halves.
#[test]
fn split_refuses_what_it_cannot_calibrate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("split.toml");
    std::fs::write(&file, SPLIT.replace("off = false\n", "")).unwrap();
    let dir = folder.path().join("run");
    let (_, err) = treeline(&["run", file.to_str().unwrap(), "--out", dir.to_str().unwrap(), "--quiet"], 2);
    assert!(err.contains("`split` needs cells on nested tables"), "{err}");
}

/// Advice from an experiment of conditional drafts: refused before anything is simulated, with what to do instead.
#[test]
fn conditional_drafters_are_refused_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("eagle.parquet");
    let process = treeline_sim::accept::process("kimi-k2.5-dflash-mbpp", Path::new(".")).unwrap();
    let mut recorded = process.generate(6, 2, 1).unwrap();
    recorded.meta.conditional = true;
    // Responses of one token: they have no round, whoever drafts.
    for r in &mut recorded.requests {
        (r.emitted, r.max_new) = (1, 1);
        r.positions.clear();
    }
    treeline::trace::write(&trace, &recorded).unwrap();
    let source = format!("[[acceptance]]\nname = \"eagle\"\ntrace = {trace:?}\n\n");
    let (from, to) = (SPLIT.find("[[acceptance]]").unwrap(), SPLIT.find("[[policy]]").unwrap());
    let text = format!("{}{source}{}", &SPLIT[..from], &SPLIT[to..]);
    let text = text.replace("response = 512\nrequests = 512\n", "").replace("kimi-k2.6-dflash", "kimi-k2.5-eagle3");
    let file = folder.path().join("split.toml");
    std::fs::write(&file, text).unwrap();
    let dir = folder.path().join("run");
    let (_, err) = treeline(&["run", file.to_str().unwrap(), "--out", dir.to_str().unwrap(), "--quiet"], 2);
    assert!(err.contains("`split` needs cells on nested tables"), "{err}");
    assert!(err.contains("acceptance `eagle` is of a conditional drafter"), "{err}");
    assert!(!dir.exists(), "nothing was begun");
    let (out, err) = treeline(&["advise", file.to_str().unwrap(), "--quiet"], 2);
    assert!(out.is_empty() && err.contains("acceptance `eagle` is of a conditional drafter"), "{err}");
    assert!(err.contains("`treeline run`"), "{err}");
}
