//! Verbs that read a user's files: profiles of every kind, op tables, imports.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the binary in `folder`; stdout and stderr, neither with colour nor a panic.
#[track_caller]
fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treeline"));
    command.args(args).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("COLUMNS").current_dir(folder);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}\n{out}\n{err}");
    assert!(!out.contains('\x1b') && !err.contains('\x1b') && !err.contains("panicked"), "{out}{err}");
    (out, err)
}

fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run(folder, args, 0).0).unwrap()
}

/// The text of a shipped file.
fn shipped(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-sim").join(path)).unwrap()
}

/// A copy of every kind is read, checked and shown like what ships; an error names file, line and key.
#[test]
fn profiles_reads_checks_and_prints_files_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (path, kind, name, from, to, says) in [
        ("profiles/hardware/b300-sxm6.toml", "hardware", "b300-sxm6", "sms = ", "sm = ", "`sms`: missing"),
        (
            "profiles/models/kimi-k2.6.toml",
            "models",
            "kimi-k2.6",
            "max_context = ",
            "context = ",
            "`max_context`: missing",
        ),
        (
            "profiles/drafters/kimi-k2.5-eagle3.toml",
            "drafters",
            "kimi-k2.5-eagle3",
            "steps = { value = 7",
            "steps = { value = 0",
            "`steps`: is 0",
        ),
        (
            "profiles/deployments/vllm-0.16-h200-tp8.toml",
            "deployments",
            "vllm-0.16-h200-tp8",
            "engine = \"vllm\"",
            "engine = \"vlm\"",
            "`engine`: \"vlm\" is not known",
        ),
        (
            "profiles/experts/uniform.toml",
            "distinct experts",
            "uniform",
            "kind = \"uniform\"",
            "kind = \"uniform\"\nrho = 1",
            "`rho`: unknown key",
        ),
        (
            "processes/kimi-k2.6-dspark.toml",
            "acceptance processes",
            "kimi-k2.6-dspark",
            "0.816",
            "1.816",
            "`conditional`: rate 1.816",
        ),
    ] {
        let text = shipped(path);
        std::fs::write(at.join("mine.toml"), format!("\u{feff}{text}")).unwrap();
        let (own, like) = (json(at, &["profiles", "./mine.toml", "--json"]), json(at, &["profiles", name, "--json"]));
        assert_eq!((own["kind"].as_str(), own["name"].as_str()), (Some(kind), Some("./mine.toml")), "{path}");
        assert_eq!((&own["fields"], &own["toml"]), (&like["fields"], &like["toml"]), "{path}");
        let (shown, _) = run(at, &["profiles", "mine.toml"], 0);
        assert!(shown.len() > 20, "{shown}");
        assert!(text.contains(from), "{path} {from}");
        std::fs::write(at.join("mine.toml"), text.replacen(from, to, 1)).unwrap();
        let (out, err) = run(at, &["profiles", "./mine.toml"], 2);
        assert!(out.is_empty() && err.contains("mine.toml") && err.contains(says), "{path}: {err}");
    }
    let old = json(at, &["profiles", "vllm-0.16-h200-tp8", "--json"]);
    assert_eq!(old["other_tables"].as_array().map(Vec::len), Some(5));
    assert!(!old["not_modelled"].as_array().unwrap().is_empty());
    let (text, _) = run(at, &["profiles", "vllm-0.16-h200-tp8"], 0);
    assert!(
        text.contains("    not modelled: ") && text.contains("    other tables: moe of vllm 0.16: priced by"),
        "{text}"
    );
    // A checkpoint's folder and its config.
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/configs/kimi_k25.json");
    std::fs::copy(config, at.join("config.json")).unwrap();
    for name in ["./config.json", "config.json", "./"] {
        assert_eq!(json(at, &["profiles", name, "--json"])["kind"], "models", "{name}");
    }
    let (_, err) = run(at, &["profiles", "./none.toml"], 2);
    assert!(err.contains("none.toml") && err.contains("help:"), "{err}");
    std::fs::write(at.join("plain"), "name = 1").unwrap();
    assert!(run(at, &["profiles", "plain"], 2).1.contains("write its path, `./plain`"));
    assert!(run(at, &["profiles", "./plain"], 2).1.contains("plain:1: is neither hardware"));
}

#[test]
fn optables_info_lists_what_ships_and_a_folder_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (text, _) = run(at, &["optables", "info"], 0);
    assert!(text.contains("b300 sglang/0.5.14") && text.contains("points)") && text.contains("digest "), "{text}");
    let own = json(at, &["optables", "info", "--json"]);
    assert!(own["tables"].as_array().unwrap().len() > 50);
    assert!(own["tables"].as_array().unwrap().iter().all(|t| t["points"].as_u64() > Some(0)));

    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-sim/optables");
    std::fs::create_dir(at.join("mine")).unwrap();
    for entry in std::fs::read_dir(tables).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, at.join("mine").join(from.file_name().unwrap())).unwrap();
    }
    assert_eq!(json(at, &["optables", "info", "mine", "--json"]), own, "the same files");
    // One more byte order mark is not another table; a wrong cell is an error with its line.
    let moe = std::fs::read_to_string(at.join("mine/moe.csv")).unwrap();
    std::fs::write(at.join("mine/moe.csv"), format!("\u{feff}{moe}")).unwrap();
    assert_eq!(json(at, &["optables", "info", "mine", "--json"])["digest"], own["digest"]);
    std::fs::write(at.join("mine/moe.csv"), moe.replacen("\nb200", "\nb200,what", 1)).unwrap();
    let (out, err) = run(at, &["optables", "info", "mine"], 2);
    assert!(out.is_empty() && err.contains("moe.csv, line"), "{err}");
    std::fs::remove_file(at.join("mine/moe.csv")).unwrap();
    assert!(run(at, &["optables", "info", "mine"], 2).1.contains("moe.csv"));
    assert!(run(at, &["optables", "info", "nowhere"], 2).1.contains("nowhere"));
}

#[test]
fn optables_import_says_what_is_no_package_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let refused = |package: &str, says: &str| {
        let (out, err) = run(at, &["optables", "import", package, "-o", "out"], 2);
        assert!(out.is_empty() && err.contains(says), "{package}: {err}");
        assert!(!at.join("out").exists(), "{package}");
        err
    };
    refused("nowhere.whl", "nowhere.whl");
    std::fs::create_dir(at.join("empty")).unwrap();
    let said = refused("empty", "holds no aiconfigurator_core/systems/data");
    assert!(said.contains("pip download --no-deps aiconfigurator-core==0.12.0"), "{said}");
    std::fs::write(at.join("text.whl"), "no archive").unwrap();
    refused("text.whl", "is no wheel");
    // The folder of another version, and one whose tables are not there or damaged.
    let data = at.join("package/aiconfigurator_core/systems/data/h200_sxm");
    std::fs::create_dir_all(&data).unwrap();
    let said = refused("package", ".parquet");
    let missing = said.split_whitespace().find(|w| w.contains(".parquet")).unwrap().trim_end_matches(':');
    let missing = at.join(missing.trim_start_matches("./"));
    std::fs::create_dir_all(missing.parent().unwrap()).unwrap();
    std::fs::write(&missing, b"PAR1 and no more").unwrap();
    refused("package", missing.file_name().unwrap().to_str().unwrap());
    std::fs::create_dir(at.join("package/aiconfigurator_core-0.11.0.dist-info")).unwrap();
    refused("package", "is version 0.11.0, the slice is made from 0.12.0");
}

#[test]
fn imports_of_several_models_ask_which() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let counters = |m: &str, accepted: u32| {
        format!(
            "vllm:spec_decode_num_drafts_total{{model_name=\"{m}\"}} 1000\n\
             vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name=\"{m}\",position=\"0\"}} {accepted}\n"
        )
    };
    std::fs::write(at.join("metrics"), format!("{}{}", counters("a", 800), counters("b", 300))).unwrap();
    let base = ["import", "vllm", "metrics", "--like", "kimi-k2.6-dspark", "--name", "own"];
    let (out, err) = run(at, &base, 2);
    assert!(out.is_empty() && err.contains("2 models: a, b; choose one with --model NAME"), "{err}");
    let (out, _) = run(at, &[&base[..], &["--model", "b"]].concat(), 0);
    assert!(
        out.contains("values = [0.3]") && out.contains("model b of 2") && out.contains("drafter = \"block\""),
        "{out}"
    );
}
