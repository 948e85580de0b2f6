//! Whatever the bytes: an experiment or an error that can be shown, never a panic.

use super::*;
use proptest::prelude::*;

/// Reads, shows what comes of it, and holds an experiment to its way back.
fn survives(text: &str) {
    match read(text) {
        Err(e) => {
            let shown = e.to_string();
            assert!(shown.lines().count() <= 6 && shown.contains('^'), "{shown}");
        }
        Ok(e) => {
            let at = Path::new("/somewhere/runs/x");
            let resolved = resolved_toml(&e, at);
            let back = parse(&resolved, "r.toml", at, &Registry::builtin(), &Overrides::default());
            assert_eq!(back.unwrap_or_else(|why| panic!("{why}\n{resolved}")), e);
        }
    }
}

/// Words that files are made of, and values at the edges.
const WORDS: [&str; 28] = [
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    ",",
    ".",
    "\"",
    "'",
    "\n",
    "\t",
    "#",
    "\u{0}",
    "é",
    "nan",
    "-inf",
    "1e999",
    "-1",
    "0",
    "18446744073709551616",
    "0x",
    "true",
    "2026-11-30",
    "kind",
    "policy",
    "\"\"\"",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn words_in_any_order(words in proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..60)) {
        survives(&words.concat());
    }

    #[test]
    fn a_valid_file_with_a_piece_replaced(
        base in proptest::sample::select(&[CPU, SIM, priced::PRICED][..]),
        at in any::<proptest::sample::Index>(),
        length in 0usize..12,
        word in proptest::sample::select(&WORDS[..]),
    ) {
        let text = base;
        let start = text.floor_char_boundary(at.index(text.len()));
        let end = text.floor_char_boundary(text.len().min(start + length));
        survives(&format!("{}{word}{}", &text[..start], &text[end..]));
    }

    #[test]
    fn a_valid_file_with_a_value_replaced(
        base in proptest::sample::select(&[CPU, priced::PRICED][..]),
        line in any::<proptest::sample::Index>(),
        value in prop_oneof![
            proptest::sample::select(&WORDS[..]).prop_map(str::to_owned),
            any::<i64>().prop_map(|v| v.to_string()),
            any::<f64>().prop_map(|v| format!("{v:?}")),
            "[a-z\\-]{0,12}".prop_map(|s| format!("{s:?}")),
            proptest::collection::vec(any::<i32>(), 0..4).prop_map(|v| format!("{v:?}")),
        ],
    ) {
        let mut lines: Vec<String> = base.lines().map(str::to_owned).collect();
        let with_value: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].contains(" = ")).collect();
        let i = with_value[line.index(with_value.len())];
        let key = lines[i].split(" = ").next().unwrap_or_default().to_owned();
        lines[i] = format!("{key} = {value}");
        survives(&lines.join("\n"));
    }
}

/// Deep nesting must not exhaust the stack.
#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("x = {}1{}", open.repeat(20_000), close.repeat(20_000));
        survives(&text);
    }
    survives(&format!("[{}]", vec!["a"; 20_000].join(".")));
}
