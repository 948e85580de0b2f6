//! Files of synthetic weights: what is read, and what is refused.

use super::refused::check;
use super::*;

/// A complete file; nothing in it is read from disk.
pub(super) const SHAPES: &str = r#"name = "rank"
seed = 7
record = "summary"

[target]
checkpoint = { synthetic = "kimi-k2.6", layers = 61, ranks = 8, rank = 3 }

[drafter]
kind = "dflash"
checkpoint = { synthetic = "kimi-k2.6" }
width = 16

[backend]
kind = "cuda"
context = 8320
trace = "traces/demo.parquet"

[cuda]
dtype = "bf16"
expert_overlap = 0.5
prompt = 8192

[workload]
concurrency = [1, 8]

[[policy]]
kind = "best-first"
budget = [8, 64]
"#;

#[test]
fn synthetic_weights_are_read() {
    let e = read(SHAPES).unwrap();
    let Backend::Synthetic(s) = &e.backend else { panic!("{:?}", e.backend) };
    assert_eq!((s.target.written.as_str(), s.drafter.written.as_str()), ("kimi-k2.6", "kimi-k2.6"));
    assert_eq!((s.layers, s.ranks, s.rank), (Some(61), 8, 3));
    assert_eq!((s.context, s.prompt, s.expert_overlap, s.width), (8320, Some(8192), 0.5, 16));
    assert_eq!(s.trace.path, Path::new("/somewhere/experiments/traces/demo.parquet"));
    assert_eq!(e.backend.kind(), "cuda");
    let short = SHAPES.replace(", layers = 61, ranks = 8, rank = 3", "").replace("prompt = 8192\n", "");
    let Backend::Synthetic(s) = read(&short).unwrap().backend else { panic!("not synthetic") };
    assert_eq!((s.layers, s.ranks, s.rank, s.prompt), (None, 1, 0, None));
}

#[test]
fn a_rank_or_layer_that_does_not_exist() {
    check(SHAPES, "rank = 3", "rank = 8", "there is no rank 8 of 8", "8", "");
    check(SHAPES, "ranks = 8, rank = 3", "rank = 1", "there is no rank 1 of 1", "1", "");
    let number = |of: &str| format!("invalid value: integer `0`, expected a whole number from {of}");
    check(SHAPES, "layers = 61", "layers = 0", &number("1 to 1000"), "0", "");
    check(SHAPES, "ranks = 8", "ranks = 0", &number("1 to 64"), "0", "");
}

#[test]
fn what_synthetic_weights_do_not_read() {
    let drafters = "`layers` is not read here";
    let with = "{ synthetic = \"kimi-k2.6\", layers = 6 }\nwidth";
    check(SHAPES, "{ synthetic = \"kimi-k2.6\" }\nwidth", with, drafters, "layers", "the target's holds for both");
    check(SHAPES, "[1, 8]", "[1, 8]\nmax_new = 9", "`max_new` is not read here", "max_new", "comes from the trace");
    check(
        SHAPES,
        "width = 16",
        "depth = 3\nwidth = 16",
        "`depth` is not read here",
        "depth",
        "how deep its drafts are",
    );
    let chunk = "context = 8320\nprefill_chunk = 64";
    check(
        SHAPES,
        "context = 8320",
        chunk,
        "`prefill_chunk` is not read here",
        "prefill_chunk",
        "no prompt is computed",
    );
    let unknown = "unknown key `rang`";
    check(SHAPES, "rank = 3", "rang = 3", unknown, "rang", "did you mean `rank`?");
    let real = on_cuda("cuda", "expert_overlap = 0.1");
    check(&real, "seed = 7", "seed = 8", "`expert_overlap` is not read here", "expert_overlap", "have routers");
    let real = on_cuda("cuda", "prompt = 64");
    check(&real, "seed = 7", "seed = 8", "`prompt` is not read here", "prompt", "of a chosen length");
}

#[test]
fn what_synthetic_weights_need() {
    check(SHAPES, "prompt = 8192", "prompt = 8320", "a context of 8320 has no room behind this", "8320", "");
    check(SHAPES, "\"bf16\"", "\"f32\"", "synthetic weights are bf16 and INT4", "\"f32\"", "bf16");
    let share = "invalid value: floating point `1.0`, expected a share from 0 to 0.99";
    check(SHAPES, "expert_overlap = 0.5", "expert_overlap = 1.0", share, "1.0", "");
    let overlap = "synthetic weights need `expert_overlap`";
    check(SHAPES, "expert_overlap = 0.5\n", "", overlap, "cuda", "expert_overlap = 0");
    check(SHAPES, "trace = \"traces/demo.parquet\"\n", "", "synthetic weights need a trace", "backend", "trace record");
    let drafter = "checkpoint = { synthetic = \"kimi-k2.6\" }";
    let real = "synthetic weights need a synthetic DFlash drafter";
    check(SHAPES, drafter, "checkpoint = \"models/d\"", real, "drafter", "synthetic =");
    let alone = "synthetic weights of a drafter need those of a target";
    check(&on_cuda("cuda", ""), "checkpoint = \"models/dflash\"", drafter, alone, "{ synthetic = \"kimi-k2.6\" }", "");
    let cpu = SHAPES.replace("[cuda]\ndtype = \"bf16\"\nexpert_overlap = 0.5\nprompt = 8192\n", "");
    let cpu = cpu.replace("trace = \"traces/demo.parquet\"\n", "");
    let prompts = "max_new = 8\nignore_eos = true\nchat = \"off\"\nprompts = [{ file = \"p.jsonl\" }]\n[sampling]\nlaw = \"greedy\"\ntemperature = [0]\n[[policy]]";
    let message = "synthetic weights run on backend `cuda`, not `cpu`";
    let table = "{ synthetic = \"kimi-k2.6\", layers = 61, ranks = 8, rank = 3 }";
    check(&cpu.replacen("[[policy]]", prompts, 1), "\"cuda\"", "\"cpu\"", message, table, "");
}

/// The same file with `--backend sim` is the replay that it is held against.
#[test]
fn the_trace_of_synthetic_weights_is_replayed() {
    let overrides = Overrides { backend: Some("sim".into()), ..Overrides::default() };
    let e = read_with(SHAPES, &overrides).unwrap();
    assert!(matches!(e.backend, Backend::Sim(r) if r.trace.written == "traces/demo.parquet"));
}
