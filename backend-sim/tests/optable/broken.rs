//! Damaged files, unknown keys: one error that names the place, never a panic.

use super::from;
use proptest::prelude::*;
use treeline_sim::optable::*;

/// The error of the shipped files with one of them changed.
#[track_caller]
fn fails(file: &str, change: impl Fn(&str) -> String, words: &[&str]) {
    let at = FILES.iter().position(|f| *f == file).unwrap();
    let mut texts = SHIPPED.map(String::from);
    texts[at] = change(SHIPPED[at]);
    let error = OpTables::parse(&texts).expect_err("damaged").to_string();
    for word in words.iter().chain([&file]) {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

/// `text` with line `n` (from 1) changed.
fn line(text: &str, n: usize, change: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> =
        text.lines().enumerate().map(|(i, l)| if i + 1 == n { change(l) } else { l.to_owned() }).collect();
    lines.join("\n")
}

/// A line with cell `i` replaced.
fn cell(line: &str, i: usize, by: &str) -> String {
    let mut cells: Vec<&str> = line.split(',').collect();
    cells[i] = by;
    cells.join(",")
}

#[test]
fn damaged_files_name_file_line_and_cell() {
    fails("moe.csv", |_| String::new(), &["header", "system,engine"]);
    fails("moe.csv", |_| "system,engine\n".into(), &["line 1", "header must start with"]);
    fails("moe.csv", |t| t.replace("top_k", "topk"), &["line 2", "top_k"]);
    fails("moe.csv", |t| t.lines().take(2).collect::<Vec<_>>().join("\n"), &["no row"]);
    fails("gemm.csv", |t| t[..t.len() / 2].to_owned(), &["cut short"]);
    for (bad, why) in
        [("NaN", "`NaN`"), ("-3.0", "`-3.0`"), ("inf", "`inf`"), ("0", "`0`"), ("1e400", "`1e400`"), ("fast", "`fast`")]
    {
        fails("moe.csv", |t| line(t, 5, |l| cell(l, 12, bad)), &["line 5", why, "positive number of µs"]);
    }
    fails("moe.csv", |t| line(t, 3, |l| cell(l, 10, "uniform")), &["line 3", "`uniform`"]);
    fails("moe.csv", |t| line(t, 3, |l| cell(l, 9, "0")), &["line 3", "tp"]);
    fails("moe.csv", |t| line(t, 2, |l| cell(l, 12, "1")), &["line 2", "does not increase"]);
    fails("moe.csv", |t| t.replace(",balanced,", ",power_law_1.01,"), &["stands twice"]);
    fails("moe.csv", |t| line(t, 4, |_| t.lines().nth(2).unwrap().into()), &["line 4", "stands twice"]);
    fails("allreduce.csv", |t| t.replace("262144;", "262144;1;"), &["not increasing sizes"]);
    fails("allreduce.csv", |t| t.replace(",262144;", ",1;262144;"), &["no message from 0 to 1 bytes"]);
    fails("allreduce.csv", |t| line(t, 3, |l| cell(l, 5, "lazy")), &["line 3", "`lazy`"]);
    fails("mla.csv", |t| line(t, 4, |l| cell(l, 6, "1024")), &["batch does not increase"]);
    fails("mla_bmm.csv", |t| line(t, 3, |l| cell(l, 5, "inside")), &["line 3", "`inside`"]);
    fails(
        "attention.csv",
        |t| line(t, 9, |l| l.split(',').take(9).chain(vec![""; 17]).collect::<Vec<_>>().join(",")),
        &["line 9", "without a time"],
    );
}

#[test]
fn a_folder_without_a_table_says_which() {
    let error = OpTables::read(std::path::Path::new("no-such-folder")).unwrap_err().to_string();
    assert!(error.contains("no-such-folder") && error.contains("moe.csv"), "{error}");
}

#[test]
fn a_missing_table_lists_the_nearest() {
    let tables = OpTables::shipped();
    let key = |from| MoeKey { from, shape: MoeShape::KIMI_INT4, tp: 8 };
    let error = tables.moe(&key(from("mi300", "vllm", "0.24.0"))).unwrap_err().to_string();
    assert!(error.contains("system mi300") && error.contains("system b300, engine vllm, version 0.24.0"), "{error}");
    let error = tables.moe(&MoeKey { tp: 64, ..key(from("h200", "vllm", "0.24.0")) }).unwrap_err().to_string();
    assert!(
        error.contains("tp 64") && error.contains("system h200, engine vllm") && error.contains("tp 16"),
        "{error}"
    );
    let error = tables.moe(&key(from("b200", "vllm", "0.19.0"))).unwrap_err().to_string();
    assert!(error.contains("left out") && error.contains("Marlin"), "{error}");
    let mla = MlaKey { from: from("h200", "vllm", "0.14.0"), part: MlaPart::Kernel, kv: "fp8", heads: 8 };
    let error = tables.mla(&mla).unwrap_err().to_string();
    assert!(error.contains("host-bound"), "{error}");
}

#[test]
fn a_key_that_says_too_little_is_ambiguous() {
    let any = Wanted { version: None, ..from("h200", "sglang", "") };
    let error = OpTables::shipped().moe(&MoeKey { from: any, shape: MoeShape::KIMI_INT4, tp: 8 }).unwrap_err();
    assert!(matches!(error, TableError::Ambiguous { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("version 0.5.10") && text.contains("version 0.5.14"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any change of the small files is read or refused.
    #[test]
    fn damage_never_panics(file in 0..2usize, at in any::<prop::sample::Index>(), length in 0..40usize, by in "[0-9.,;\\-\na-z]{0,12}") {
        let mut texts = SHIPPED.map(String::from);
        let start = at.index(texts[file].len());
        let start = (0..=start).rev().find(|&i| texts[file].is_char_boundary(i)).unwrap();
        let end = (start + length).min(texts[file].len());
        let end = (start..=end).rev().find(|&i| texts[file].is_char_boundary(i)).unwrap();
        texts[file].replace_range(start..end, &by);
        // The others are long; small ones of one row do.
        for i in 2..7 {
            texts[i] = SHIPPED[i].lines().take(3).collect::<Vec<_>>().join("\n");
        }
        if let Err(error) = OpTables::parse(&texts) {
            prop_assert!(error.to_string().contains(FILES[file]), "{error}");
        }
    }
}
