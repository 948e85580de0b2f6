//! What is refused, with the place of the caret: one line a case.

use super::{CPU, SIM, on_cuda, read};
use crate::config::{Backend, Overrides, parse};
use std::path::Path;
use treeline_policies::Registry;

/// Replaces `from` (which must be there) by `to`, and expects an error whose first line is `message`, whose caret marks
/// exactly `marked`, and whose help contains `help` (empty: no help is expected).
#[track_caller]
pub(super) fn check(base: &str, from: &str, to: &str, message: &str, marked: &str, help: &str) {
    assert!(base.contains(from), "the base file has no {from:?}");
    let text = base.replacen(from, to, 1);
    let shown = match read(&text) {
        Ok(e) => panic!("{to:?} was read as {e:?}"),
        Err(e) => e.to_string(),
    };
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], message, "\n{shown}");
    let number: usize = lines[1].split(':').nth(1).unwrap().parse().unwrap();
    let line = lines[3].split_once(" | ").unwrap().1;
    assert_eq!(text.lines().nth(number - 1).unwrap_or_default().trim_end(), line, "\n{shown}");
    let caret = lines[4].split_once(" | ").unwrap().1;
    let start = caret.find('^').unwrap();
    let under: String = line.chars().skip(start).take(caret.matches('^').count()).collect();
    assert_eq!(under, marked, "\n{shown}");
    match lines.get(5) {
        None => assert_eq!(help, "", "\n{shown}"),
        Some(shown_help) => assert!(!help.is_empty() && shown_help.contains(help), "{help:?}\n{shown}"),
    }
}

#[test]
fn unknown_keys() {
    check(CPU, "seed = 7", "sead = 7", "unknown key `sead`", "sead", "did you mean `seed`?");
    check(CPU, "[[policy]]", "[[polcy]]", "unknown key `polcy`", "polcy", "did you mean `policy`?");
    check(CPU, "width = 64", "widht = 64", "unknown key `widht`", "widht", "did you mean `width`?");
    check(CPU, "take = 4", "limit = 4", "unknown key `limit`", "limit", "expected one of `file`, `take`");
    check(CPU, "source =", "sources =", "unknown key `sources`", "sources", "did you mean `source`?");
    check(CPU, "width = 4\n", "widht = 4\n", "policy 2: unknown key `widht`", "widht", "did you mean `width");
    check(
        CPU,
        "budget = [7]",
        "budget = [7]\nbeam = 2",
        "policy 1: unknown key `beam`",
        "beam",
        "expected one of `kind`",
    );
}

#[test]
fn unknown_values() {
    check(CPU, "\"dflash\"", "\"dflsh\"", "unknown value `dflsh`", "\"dflsh\"", "did you mean `dflash`?");
    check(CPU, "\"cpu\"", "\"tpu\"", "unknown value `tpu`", "\"tpu\"", "did you mean `cpu`?");
    let missing = "missing section `cuda`, which backend `cuda` needs";
    check(CPU, "\"cpu\"", "\"cuda\"", missing, "\"cuda\"", "dtype = \"bf16\"");
    check(CPU, "\"chain\"", "\"chian\"", "unknown policy `chian`", "\"chian\"", "did you mean `chain`?");
    check(CPU, "\"chain\"", "\"zzz\"", "unknown policy `zzz`", "\"zzz\"", "registered policies: `chain`");
    check(CPU, "\"chain\"", "\"plain\"", "unknown policy `plain`", "\"plain\"", "baseline = false");
    let record =
        "invalid value: string \"sample:0\", expected `summary`, `all` or `sample:N` (every N-th round, N ≥ 1)";
    check(CPU, "\"summary\"", "\"sample:0\"", record, "\"sample:0\"", "");
}

#[test]
fn wrong_types() {
    let int = "a whole number from 0 to 18446744073709551615";
    check(CPU, "seed = 7", "seed = \"7\"", &format!("invalid type: string \"7\", expected {int}"), "\"7\"", "");
    check(CPU, "seed = 7", "seed = 7.5", &format!("invalid type: floating point `7.5`, expected {int}"), "7.5", "");
    check(CPU, "[1, 4]", "1", "invalid type: integer `1`, expected a list, as in [1, 2]", "1", "");
    check(CPU, "[7]", "7", "invalid type: integer `7`, expected a list, as in [1, 2]", "7", "");
    check(CPU, "ignore_eos = true", "ignore_eos = 1", "invalid type: integer `1`, expected a boolean", "1", "");
    check(
        CPU,
        "[target]\ncheckpoint = \"models/target\"",
        "target = 3",
        "invalid type: integer `3`, expected a table",
        "3",
        "",
    );
    check(CPU, "kind = \"chain\"", "kind = 3", "expected a string, found integer", "3", "");
    check(SIM, "[[policy]]", "[policy]", "`policy` is a list of tables", "[policy]", "write [[policy]]");
    check(CPU, "width = 4\n", "width = \"4\"\n", "policy 2: invalid type: string \"4\", expected u32", "\"4\"", "");
    check(CPU, "width = 4\n", "width = nan\n", "expected a finite number", "nan", "");
    check(CPU, "width = 4\n", "width = 2026-11-30\n", "a date is no parameter of a policy", "2026-11-30", "");
}

#[test]
fn values_out_of_range() {
    let budget = "a whole number from 1 to 4096";
    for bad in ["0", "-1", "4097", "99999999999"] {
        let message = format!("invalid value: integer `{bad}`, expected {budget}");
        check(CPU, "budget = [7]", &format!("budget = [{bad}]"), &message, bad, "");
    }
    let huge = "99999999999999999999999999999999999999999";
    check(CPU, "budget = [7]", &format!("budget = [{huge}]"), "integer number overflowed", huge, "");
    let heat = "a temperature of 0, or from 0.01 to 10";
    for (bad, shown) in
        [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf"), ("-0.5", "-0.5"), ("11.0", "11.0"), ("1e-9", "0.000000001")]
    {
        let message = format!("invalid value: floating point `{shown}`, expected {heat}");
        check(CPU, "[0.7, 0]", &format!("[0.7, {bad}]"), &message, bad, "");
    }
    // The first token of a response comes from the prefill: with one token there is no round.
    let rounds = "invalid value: integer `1`, expected a whole number from 2 to 1048576";
    check(CPU, "max_new = 96", "max_new = 1", rounds, "1", "");
    let mass = "invalid value: floating point `0.0`, expected a probability above 0, at most 1";
    check(CPU, "law = ", "top_p = 0.0\nlaw = ", mass, "0.0", "");
    check(
        CPU,
        "\"demo\"",
        "\"../demo\"",
        "invalid value: string \"../demo\", expected a name of 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit",
        "\"../demo\"",
        "",
    );
    check(
        CPU,
        "max_new = 96",
        "max_new = 512",
        "512 new tokens do not fit 512 positions beside a prompt",
        "512",
        "raise",
    );
}

#[test]
fn lists() {
    check(CPU, "[7]", "[]", "the list is empty; it needs at least one entry", "[]", "");
    check(CPU, "[7]", "[7, 8, 7]", "this value is listed twice", "7", "");
    check(CPU, "[0.7, 0]", "[0.0, -0.0]", "this value is listed twice", "-0.0", "");
    // The same number to an engine that computes in f32.
    check(CPU, "[0.7, 0]", "[0.7, 0.70000000001]", "this value is listed twice", "0.70000000001", "");
    check(CPU, "[1, 4]", "[4, 4]", "this value is listed twice", "4", "");
    let twice = "[[workload.prompts]]\nfile = \"./prompts/../prompts/code.jsonl\"\n[sampling]";
    check(CPU, "[sampling]", twice, "this prompt file is listed twice", "\"./prompts/../prompts/code.jsonl\"", "");
    let policy = "[[policy]]\nkind = \"chain\"\nbudget = [5, 7]\n\n[[policy]]\nkind = \"top-k\"";
    check(CPU, "[[policy]]\nkind = \"top-k\"", policy, "policy `chain` with budget 7 is listed twice", "7", "");
    let many = format!("[{}]", (0..1001).map(|i| (1 + i).to_string()).collect::<Vec<_>>().join(", "));
    let shown = read(&CPU.replace("[7]", &many)).unwrap_err().to_string();
    assert!(shown.starts_with("more than 1000 entries"), "{shown}");
}

#[test]
fn missing_keys() {
    check(CPU, "seed = 7\n", "", "missing key `seed`", "n", "");
    let all = "missing keys `seed`, `record`, `backend`, `workload`, `policy`";
    check("name = \"x\"\n", "x", "y", all, "n", "quickstart.toml");
    check(CPU, "context = 512\n", "", "missing key `context`, which backend `cpu` needs", "backend", "");
    check(CPU, "max_new = 96\n", "", "missing key `max_new`, which backend `cpu` needs", "workload", "");
    check(CPU, "law = \"sample-match\"\n", "", "missing key `law`", "[sampling]", "");
    check(
        CPU,
        "[target]\ncheckpoint = \"models/target\"\n",
        "",
        "missing key `target`, which backend `cpu` needs",
        "backend",
        "",
    );
    check(CPU, "checkpoint = \"models/dflash\"\n", "", "drafter `dflash` needs `checkpoint`", "drafter", "");
    check(CPU, "budget = [7]\n", "", "missing key `budget` of this policy", "[[policy]]", "");
    check(
        SIM,
        "trace = \"traces/demo.parquet\"\n",
        "",
        "backend `sim` replays a trace, and none is named",
        "\"sim\"",
        "--trace OUT",
    );
    let none = &SIM[..SIM.find("[[policy]]").unwrap()];
    check(none, "name", "name", "missing `[[policy]]`", "n", "name at least one policy");
    check(none, "baseline = false", "policy = []", "the list is empty; it needs at least one policy", "[]", "");
}

#[test]
fn keys_that_nobody_reads() {
    let sim = "`trace` is not read here";
    check(CPU, "kind = \"cpu\"", "kind = \"cpu\"\ntrace = \"t\"", sim, "trace", "only backend `sim` reads it");
    check(
        SIM,
        "concurrency",
        "chat = \"off\"\nconcurrency",
        "`chat` is not read here",
        "chat",
        "takes it from the trace",
    );
    check(
        SIM,
        "kind = \"sim\"",
        "kind = \"sim\"\ncontext = 512",
        "`context` is not read here",
        "context",
        "from the trace",
    );
    check(
        SIM,
        "[workload]",
        "prefill_chunk = 8\n[workload]",
        "`prefill_chunk` is not read here",
        "prefill_chunk",
        "only backends `cpu` and `cuda`",
    );
    let replace = "`replace` is not read by law `sample-match`";
    check(CPU, "law = ", "replace = true\nlaw = ", replace, "replace", "only law `residual`");
    check(CPU, "width = 64", "order = 3\nwidth = 64", "`order` is not read by drafter `dflash`", "order", "");
    let cost = "[cost.curve]\nrows = [1, 2]\nms = [1, 2]\nsource = \"x\"\n[workload]";
    check(SIM, "[workload]", cost, "`cost` is not read here", "cost", "no policy of this file reads a step cost");
    let greedy = "law `greedy` takes the argmax; temperature 0.7 would not be read";
    check(CPU, "\"sample-match\"", "\"greedy\"", greedy, "0.7", "sample-match");
}

/// What the CUDA engine has no form of.
#[test]
fn backend_cuda_refuses_what_it_cannot_run() {
    let cuda = on_cuda("cuda", "");
    check(&cuda, "\"bf16\"", "\"f16\"", "unknown value `f16`", "\"f16\"", "`bf16`");
    check(
        &cuda,
        "budget = [7]",
        "budget = [7, 257]",
        "backend `cuda` verifies at most 256 nodes per request",
        "257",
        "",
    );
    let crowd = cuda.replace("[1, 4]", "[256]");
    let rows = "256 such trees have more rows than one pass of backend `cuda`";
    check(&crowd, "budget = [7]", "budget = [7, 255]", rows, "255", "may be 65535");
    let chunk = "backend `cuda` takes at most 256 prompt tokens per forward";
    check(&cuda, "context = 512", "context = 512\nprefill_chunk = 257", chunk, "257", "");
    let emulated = on_cuda("cuda", "emulated = true\ngpu = 99");
    check(&emulated, "seed = 7", "seed = 7", "`gpu` is not read here", "gpu", "leave `gpu` out");
    check(&cuda, "width = 64", "width = 1025", "backend `cuda` keeps at most 1024 ranks per row", "1025", "");
    let drafter = "kind = \"dflash\"\ncheckpoint = \"models/dflash\"";
    let ngram = "kind = \"ngram\"\ndepth = 3\norder = 2";
    check(&cuda, drafter, ngram, "backend `cuda` has no n-gram drafter", "\"ngram\"", "backend `cpu`");
    let sim = SIM.replace("[workload]", "[cuda]\ndtype = \"f32\"\n\n[workload]");
    check(&sim, "seed = 7", "seed = 8", "`cuda` is not read here", "cuda", "takes it from the trace");
}

/// A trace named on the command line is replayed or refused, never forgotten.
#[test]
fn a_trace_for_a_backend_that_reads_none() {
    let overrides = Overrides { trace: Some("t.parquet".into()), ..Overrides::default() };
    let read = |overrides: &Overrides| parse(CPU, "demo.toml", Path::new("/f"), &Registry::builtin(), overrides);
    let shown = read(&overrides).unwrap_err().to_string();
    assert!(shown.starts_with("`--trace` names a trace, which only backend `sim` reads\n"), "{shown}");
    assert!(shown.contains("kind = \"cpu\"") && shown.ends_with("= help: add `--backend sim`"), "{shown}");
    let sim = Overrides { backend: Some("sim".into()), ..overrides };
    assert!(matches!(read(&sim).unwrap().backend, Backend::Sim(_)));
}

#[test]
fn laws_that_do_not_fit() {
    let residual = "law = \"residual\"\nreplace = true";
    let message = "policy `top-k` builds trees of ranked candidates; law `residual` verifies drawn ones";
    check(CPU, "law = \"sample-match\"", residual, message, "\"top-k\"", "use law `sample-match`");
    let chain = CPU.replace("\"top-k\"", "\"chain\"").replace("width = 4\n", "");
    let chain = &chain[..chain.rfind("[[policy]]").unwrap()];
    let chain = chain.replace("[cost]\ncurve", "#");
    read(&chain.replace("law = \"sample-match\"", residual)).unwrap();
    check(&chain, "\"sample-match\"", "\"residual\"", "law `residual` needs `replace`", "sampling", "replace = true");
}

#[test]
fn costs_that_are_no_curve() {
    let length = "a cost curve needs at least two points and as many `ms` as `rows` (got 3 rows, 2 ms)";
    check(CPU, "[4.5, 9, 30.25]", "[4.5, 9]", length, "[4.5, 9]", "");
    check(CPU, "[1, 9, 65]", "[1, 65, 9]", "`rows` must ascend and start at 1 or more; entry 2 does not", "9", "");
    let flat = "`ms` end no higher than they begin: by a cost that is flat or falls, the largest tree would always be chosen; measure the curve";
    check(CPU, "[4.5, 9, 30.25]", "[2, 2, 2]", flat, "[2, 2, 2]", "");
    check(CPU, "[4.5, 9, 30.25]", "[9, 12, 4]", flat, "[9, 12, 4]", "");
    let time = "invalid value: floating point `0.0`, expected a time in ms above 0";
    check(CPU, "[4.5, 9, 30.25]", "[4.5, 0, 30.25]", time, "0", "");
    let cost = &CPU[CPU.find("[cost]").unwrap()..CPU.find("[[policy]]").unwrap()];
    check(CPU, cost, "", "policy `adaptive` needs a step cost", "\"adaptive\"", "treeline calibrate FILE");
}

#[test]
fn syntax() {
    check(CPU, "seed = 7", "seed = ", "not valid TOML: string values must be quoted, expected literal string", "", "");
    check(CPU, "seed = 7", "seed = 7\nseed = 8", "not valid TOML: duplicate key", "seed", "");
}
