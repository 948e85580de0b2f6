//! Nothing, less than nothing, not a number, far too much: every key of a priced run refuses each where it stands.

use super::priced::PRICED;
use super::read;

/// What each key is tried with: its line in [`PRICED`] or a line to add, with `{}` for the value, and the values that are
/// refused.
const NUMBERS: [&str; 8] = ["0", "-1", "-0.5", "nan", "-nan", "inf", "1e300", "99999999999"];
/// For keys that take no number.
const WORDS: [&str; 6] = ["0", "-1", "nan", "1e300", "\"\"", "true"];

/// (line to replace, the same with the value, values that are legal here after all).
const KEYS: [(&str, &str, &[&str]); 14] = [
    ("concurrency = [1, 64]", "concurrency = [{}]", &[]),
    ("concurrency = [1, 64]", "concurrency = [1, {}]", &[]),
    ("context = [1024, 16384]", "context = [{}]", &[]),
    ("context = [1024, 16384]", "context = [1024, {}]", &[]),
    ("response = 512", "response = {}", &[]),
    ("response = 512", "response = 512\nrequests = {}", &[]),
    ("response = 512", "response = 512\nrounds = {}", &[]),
    ("response = 512", "response = 512\narrivals = {{ rate = {} }}", &[]),
    ("tau = 5.3", "tau = {}", &[]),
    ("value = 6.4", "value = {}", &[]),
    ("policy = \"best-first\", budget = 16 }", "policy = \"best-first\", budget = {} }", &[]),
    // The bound itself, and the table, are what 0 and 1 mean.
    ("tier = \"table\"", "tier = \"table\"\noverhead_scale = {}", &["0"]),
    (
        "reference = { policy = \"best-first\", budget = 8 }",
        "reference = {{ policy = \"best-first\", budget = {} }}",
        &[],
    ),
    ("budget = [8, 16]", "budget = [8, {}]", &[]),
];

/// Keys that name something or switch something.
const NAMES: [(&str, &str, &[&str]); 11] = [
    ("engine = \"sglang-0.5.14-b300-tp8\"", "engine = {}", &[]),
    ("model = \"kimi-k2.6\"", "model = {}", &[]),
    ("drafter = \"kimi-k2.6-dflash\"", "drafter = {}", &[]),
    ("tier = \"table\"", "tier = {}", &[]),
    ("tier = \"table\"", "tier = \"calibrated\"\ncalibration = {}", &[]),
    ("tier = \"table\"", "tier = \"table\"\nhardware = {}", &[]),
    ("tier = \"table\"", "tier = \"table\"\nallow_extrapolation = {}", &["true"]),
    ("experts = \"correlated-public-chains\"", "experts = {}", &[]),
    ("prefill = \"excluded\"", "prefill = {}", &[]),
    ("name = \"GSM8K τ 5.3\"", "name = {}", &[]),
    ("process = \"kimi-k2.5-dflash\"", "process = {}", &[]),
];

/// The key that a pattern ends in: what stands before the ` =` next to `{}`.
fn key(pattern: &str) -> &str {
    let before = pattern.split("{}").next().unwrap();
    before.rsplit_once(" =").unwrap().0.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

/// Tries one value in one place; the error has a line, and the line holds the key.
fn refused(line: &str, pattern: &str, value: &str) {
    assert!(PRICED.contains(line), "the file has no {line:?}");
    let written = pattern.replace("{{", "{").replace("}}", "}").replacen("{}", value, 1);
    let text = PRICED.replacen(line, &written, 1);
    let shown = match read(&text) {
        Ok(_) => panic!("{written:?} was read"),
        Err(e) => e.to_string(),
    };
    let number: usize = shown.lines().nth(1).unwrap().split(':').nth(1).unwrap().parse().unwrap();
    let there = text.lines().nth(number - 1).unwrap();
    assert!(there.contains(key(pattern)), "{written:?} is laid to {there:?}\n{shown}");
    assert!(shown.contains('^'), "{shown}");
}

#[test]
fn no_key_takes_a_value_that_means_nothing() {
    for (keys, values) in [(&KEYS[..], &NUMBERS[..]), (&NAMES[..], &WORDS[..])] {
        for (line, pattern, legal) in keys {
            for value in values.iter().filter(|v| !legal.contains(*v)) {
                refused(line, pattern, value);
            }
        }
    }
}

#[test]
fn lists_and_tables_are_checked_whole() {
    for (line, written) in [
        ("concurrency = [1, 64]", "concurrency = []"),
        ("concurrency = [1, 64]", "concurrency = [4, 4]"),
        ("context = [1024, 16384]", "context = []"),
        ("context = [1024, 16384]", "context = [9, 9]"),
        ("response = 512", "response = 512\narrivals = {}"),
        ("response = 512", "response = 512\narrivals = \"open\""),
        ("response = 512", "response = 512\narrivals = 4"),
        ("budget = [8, 16]", "budget = []"),
    ] {
        let text = PRICED.replacen(line, written, 1);
        let shown = read(&text).map(|_| ()).unwrap_err().to_string();
        let number: usize = shown.lines().nth(1).unwrap().split(':').nth(1).unwrap().parse().unwrap();
        let last = written.lines().last().unwrap();
        assert_eq!(text.lines().nth(number - 1), Some(last), "{shown}");
    }
}
