//! The house habits that a machine can check.

use crate::repo::{files, read};

/// Runs `check` over every line of every file; the failures are listed together.
fn every_line(endings: &[&str], check: impl Fn(&str) -> Option<&'static str>) {
    let mut bad = Vec::new();
    for path in files(endings) {
        for (n, line) in read(&path).lines().enumerate() {
            if let Some(why) = check(line) {
                bad.push(format!("{}:{}: {why}", path.display(), n + 1));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn no_stray_white_space() {
    every_line(&[".rs", ".toml", ".py", ".sh"], |line| {
        if line.ends_with([' ', '\t']) {
            Some("white space at the end of the line")
        } else if line.contains('\t') {
            Some("a tab")
        } else {
            None
        }
    });
}

#[test]
fn every_module_says_what_it_is() {
    let bad: Vec<String> =
        files(&[".rs"]).into_iter().filter(|p| !read(p).starts_with("//!")).map(|p| p.display().to_string()).collect();
    assert!(bad.is_empty(), "no module documentation on the first line:\n{}", bad.join("\n"));
}

#[test]
fn files_have_one_room_each() {
    let bad: Vec<String> = files(&[".rs", ".py"])
        .into_iter()
        .map(|p| (read(&p).lines().count(), p))
        .filter(|(lines, _)| *lines > 400)
        .map(|(lines, p)| format!("{}: {lines} lines", p.display()))
        .collect();
    assert!(bad.is_empty(), "longer than 400 lines:\n{}", bad.join("\n"));
}

#[test]
fn nothing_is_left_unfinished() {
    // Spelled in two halves so that this file does not find itself.
    let marks = [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("#[", "ignore"), concat!("FIX", "ME")];
    every_line(&[".rs"], |line| marks.iter().any(|m| line.contains(m)).then_some("unfinished, or a test switched off"));
}
