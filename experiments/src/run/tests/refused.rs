//! What is refused before the first round: a folder in use, an output that would be lost, prompts that are none.

use super::*;
use crate::run::{Refused, files};

/// Two runs in one folder would write over each other: the second is refused, and the lock ends with its process.
#[test]
fn a_folder_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), &Mock::block(), &experiment());
    let again = Options { resume: true, ..options(dir.path()) };
    let try_again = || execute(&Mock::block(), &experiment(), &Registry::builtin(), &again);
    let held = files::lock(dir.path()).unwrap();
    let error = try_again().unwrap_err();
    assert!(error.is::<Refused>() && error.to_string().ends_with("another run is writing to this folder"), "{error:#}");
    drop(held);
    try_again().unwrap();
}

/// Everything before the first round is a refusal, with its own message; what fails later is not.
#[test]
fn refusals_are_told_from_failures() {
    let dir = tempfile::tempdir().unwrap();
    let run = |e: &Experiment, dir: &Path| execute(&Mock::block(), e, &Registry::builtin(), &options(dir));
    let unknown = Experiment { policies: vec![policy("nothing", &[4], json!({}))], ..experiment() };
    let error = run(&unknown, dir.path()).unwrap_err();
    assert!(error.is::<Refused>() && error.to_string().contains("unknown policy kind `nothing`"), "{error:#}");
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let error = run(&experiment(), dir.path()).unwrap_err();
    assert!(error.is::<Refused>() && error.to_string().ends_with("is neither empty nor a run's folder"), "{error:#}");
}

/// An experiment typed as the output of `trace record` is not replaced by a trace, and a folder is noticed at once.
#[test]
fn only_traces_are_replaced_by_traces() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("e.toml"), "name = \"mine\"").unwrap();
    std::fs::write(at("t.parquet"), b"PAR1 and more").unwrap();
    let refused = |name: &str| files::replaceable(&at(name)).unwrap_err().to_string();
    assert!(refused("e.toml").ends_with("no trace: it is not replaced"));
    assert!(refused(".").ends_with("no file"));
    assert!(refused("e.toml/below").contains("e.toml"));
    files::replaceable(&at("t.parquet")).unwrap();
    files::replaceable(&at("new/folder/t.parquet")).unwrap();
    let left: Vec<_> = std::fs::read_dir(at("new/folder")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Prompt lines are refused by file and line; a byte order mark is no part of the first.
#[test]
fn prompt_files_are_refused_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.jsonl");
    let read = |bytes: &[u8], take: Option<u32>| {
        std::fs::write(&path, bytes).unwrap();
        let file = crate::config::PromptFile { file: Location::new("p.jsonl", dir.path()), take };
        crate::run::workload::lines(&file).map(|(lines, _)| lines.len()).map_err(|e| format!("{e:#}"))
    };
    let good = "{\"id\": 1, \"domain\": \"d\", \"text\": \"t\"}\n";
    assert_eq!(read(format!("\u{feff}{good}\r\n\n{good}").as_bytes(), None), Ok(2));
    assert_eq!(read(good.repeat(3).as_bytes(), Some(2)), Ok(2));
    let check = |bytes: &[u8], says: &str| {
        let error = read(bytes, None).unwrap_err();
        assert!(error.contains("p.jsonl") && error.ends_with(says), "{error}");
    };
    check(b"", "has no prompts");
    check(b"\n  \n", "has no prompts");
    check(&[good.as_bytes(), b"{\"id\": \"\xff\"}"].concat(), "line 2: is not UTF-8");
    check(
        format!("{good}{{\"id\": ").as_bytes(),
        "line 2: is no {\"id\", \"domain\", \"text\"}: EOF while parsing a value, column 7",
    );
    check(b"{\"id\": 1, \"domain\": \"d\"}", "missing field `text`, column 24");
    assert!(read(good.as_bytes(), Some(2)).unwrap_err().ends_with("2 prompts are wanted, the file has 1"));
}
