//! Formats of other engines, and what ships against what it was fitted to.

mod models;

use super::*;
use std::sync::Arc;
use treeline_core::{Engine, Law, Limits, RunSetup, run};
use treeline_sim::accept::process;
use treeline_sim::nested::Nested;
use treeline_sim::{ReplayEngine, requests};

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn like() -> Process {
    process("kimi-k2.6-dspark", Path::new("")).unwrap()
}

const SCRAPE: &str = r#"# HELP vllm:spec_decode_num_drafts Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1700.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 800.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 600.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 300.0
vllm:num_requests_running{engine="0",model_name="m"} 4.0
"#;

#[test]
fn vllm_counters() {
    let (_keep, path) = file("metrics.txt", SCRAPE);
    let counters = vllm(&path, None, None).unwrap();
    assert_eq!((counters.drafts, counters.accepted.as_slice()), (1000, &[800, 600, 300][..]));
    let p = to_process(&counters, "mine", &like(), None, &path).unwrap();
    assert_eq!(p.conditional.values, [0.8, 0.75, 0.5]);
    assert_eq!((p.depth(), p.tau(3)), (3, 2.7));
    assert!(p.conditional.source.contains("1000 verify steps") && !p.conditional.source.contains('/'));
    assert_eq!(Process::from_toml(&p.to_toml().unwrap(), "x").unwrap(), p);

    let (_keep, earlier) = file("before.txt", &SCRAPE.replace("1000.0", "400.0").replace("800.0", "300.0"));
    let since = SCRAPE.replace("_accepted_tokens_total", "_other_total");
    let (_keep, now) = file("now.txt", &since);
    let before = std::fs::read_to_string(&earlier).unwrap().replace("_accepted_tokens_total", "_other_total");
    std::fs::write(&earlier, before).unwrap();
    assert_eq!(vllm(&now, Some(&earlier), None).unwrap().accepted, [500, 0, 0]);
    assert!(vllm(&earlier, Some(&now), None).unwrap_err().to_string().contains("swapped"));
}

#[test]
fn vllm_log_lines() {
    // The figures of a public log: 259 drafted tokens at 7 positions are 37 drafts.
    let line = "(APIServer pid=3) INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.49, \
        Accepted throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: 92 tokens, Drafted: 259 tokens, \
        Per-position acceptance rate: 0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054, Avg Draft acceptance rate: 35.5%";
    let (_keep, path) = file("server.log", &format!("starting\n{line}\nidle\n{line}\n"));
    let counters = vllm(&path, None, None).unwrap();
    assert_eq!((counters.drafts, counters.accepted.as_slice()), (74, &[56, 46, 32, 24, 14, 8, 4][..]));
    let (_keep, path) = file("server.log", &format!("starting\n{}\n", line.replace("0.432", "0.4x2")));
    let says = vllm(&path, None, None).unwrap_err().to_string();
    assert!(says.contains("line 2") && says.contains("rates"), "{says}");
    let (_keep, path) = file("server.log", "SpecDecoding metrics: Mean acceptance length: 3.4\n");
    assert!(vllm(&path, None, None).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn sglang_histograms_and_lengths() {
    // A public response of block size 5: 63 right of 215 drafts in 43 steps.
    let meta = r#"{"meta_info": {"spec_accept_length": 2.4651162790697674, "spec_verify_ct": 43, "completion_tokens": 106,
        "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3]}}"#;
    let (_keep, path) = file("responses.json", &format!("[{meta}, {meta}]"));
    let counters = sglang(&path, None).unwrap();
    assert_eq!((counters.drafts, counters.accepted.as_slice()), (86, &[64, 36, 14, 6, 6][..]));
    assert_eq!(counters.requests, [(32, 43), (32, 43)]);
    let p = to_process(&counters, "mine", &like(), None, &path).unwrap();
    assert!((p.tau(5) - (1.0 + 63.0 / 43.0)).abs() < 0.01, "{}", p.tau(5));

    let lines: String = (0..12).map(|i| format!("{{\"spec_accept_histogram\": [{}, 30, 20]}}\n", 5 + 5 * i)).collect();
    let (_keep, path) = file("responses.jsonl", &lines);
    let p = to_process(&sglang(&path, None).unwrap(), "mine", &like(), None, &path).unwrap();
    assert!(p.request_spread.source.contains("12 requests") && p.request_spread.value > 0.1);
    let (_keep, path) = file("responses.jsonl", &format!("{lines}{{\"spec_accept\n"));
    assert!(sglang(&path, None).unwrap_err().to_string().contains("line 13"));

    let server = r#"{"speculative_num_draft_tokens": 8, "speculative_eagle_topk": 1, "internal_states": [{"avg_spec_accept_length": 3.9}]}"#;
    let (_keep, path) = file("server_info.json", server);
    let p = to_process(&sglang(&path, None).unwrap(), "mine", &like(), None, &path).unwrap();
    assert!((p.tau(7) - 3.9).abs() < 1e-9, "8 rows are a chain of 7");
    let (_keep, path) = file("server_info.json", &server.replace("topk\": 1", "topk\": 4"));
    assert!(sglang(&path, None).unwrap_err().to_string().contains("tree's"));

    let log = "Decode batch, #running-req: 4, #token: 900, accept len: 3.00, accept rate: 0.29\n\
        Decode batch, #running-req: 12, #token: 900, accept len: 4.00, accept rate: 0.43\n";
    let (_keep, path) = file("sglang.log", log);
    let counters = sglang(&path, None).unwrap();
    assert_eq!(counters.tau, Some(3.75));
    let says = to_process(&counters, "mine", &like(), None, &path).unwrap_err().to_string();
    assert!(says.contains("--draft-tokens"), "{says}");
    assert!((to_process(&counters, "mine", &like(), Some(5), &path).unwrap().tau(4) - 3.75).abs() < 1e-9);
    let (_keep, path) = file("metrics", "sglang:spec_accept_length{tp=\"0\"} 3.5\nsglang:num_running_reqs 2\n");
    assert_eq!(sglang(&path, None).unwrap().tau, Some(3.5));
}

#[test]
fn step_tables_become_cost_curves() {
    let by_rows = "rows,ms\n1,8.0\n9,9.5\n9,9.7\n9,20.0\n17,11\n";
    for (text, rows, ms) in [
        (by_rows, vec![1, 9, 17], vec![8.0, 9.7, 11.0]),
        ("# vLLM\nnum_speculative_tokens, ms\n0, 8\n7, 9\n", vec![1, 8], vec![8.0, 9.0]),
        ("num_draft_tokens,requests,ms\n8,1,9\n8,16,14\n", vec![8, 128], vec![9.0, 14.0]),
        ("budget,ms\n8,9\n16,10\n", vec![9, 17], vec![9.0, 10.0]),
    ] {
        let (_keep, path) = file("steps.csv", text);
        let curve = step_curve(&path).unwrap();
        assert_eq!((curve.rows(), curve.ms()), (rows.as_slice(), ms.as_slice()), "{text}");
    }
    for (text, says) in [
        ("rows,ms\n1,8\n9,-1\n", "line 3"),
        ("rows,ms\n1,8,3\n", "line 2"),
        ("rows,budget,ms\n1,8,3\n", "exactly one"),
        ("rows,time\n1,8\n", "`time`"),
        ("rows,ms\nx,8\n", "`x`"),
        ("", "empty"),
        ("rows,ms\n1,8\n", "steps.csv"),
    ] {
        let (_keep, path) = file("steps.csv", text);
        let error = step_curve(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn curves_by_file() {
    let (_keep, path) = file("curve.csv", "k,tau\n1,1.83\n2,2.43\n3,2.88\n");
    let p = curve(&path, "mine", &like()).unwrap();
    assert!((p.tau(3) - 2.88).abs() < 1e-12 && p.conditional.errors[0] > 0.002);
    let (_keep, path) = file("curve.csv", "k,tau\n1,1.83\n2,two\n");
    assert!(curve(&path, "mine", &like()).unwrap_err().to_string().contains("line 3"));
}

#[test]
fn every_unreadable_prometheus_line_is_an_error() {
    for (broken, line) in [
        ("vllm:spec_decode_num_drafts_total{a=\"b\" 3", 2),
        ("nothing", 2),
        ("a b c", 2),
        ("vllm:spec_decode_num_drafts_total -3", 2),
    ] {
        let (_keep, path) = file("m", &format!("# x\n{broken}\n"));
        let says = vllm(&path, None, None).unwrap_err().to_string();
        assert!(says.contains(&format!("line {line}")), "{broken}: {says}");
    }
    let (_keep, path) = file("m", "up 1\n");
    assert!(vllm(&path, None, None).unwrap_err().to_string().contains("spec_decode_num_drafts"));
    let (_keep, path) = file("m", &SCRAPE.replace("1700.0", "1600.0"));
    assert!(vllm(&path, None, None).unwrap_err().to_string().contains("sum up to 1700"));
    assert!(vllm(Path::new("/nowhere/at/all"), None, None).unwrap_err().to_string().contains("/nowhere/at/all"));
}

fn mini() -> treeline_core::trace::Trace {
    crate::trace::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/mini-pair.parquet")).unwrap()
}

/// The shipped process of the mini pair is what a fit to its bundled trace gives.
#[test]
fn the_mini_pairs_process_is_the_fit_of_its_trace() {
    let fit = fit::from_trace(&mini(), "mini-pair").unwrap().process;
    let shipped = process("mini-pair", Path::new("")).unwrap();
    for ((key, _, a), (_, _, b)) in fit.parameters().iter().zip(shipped.parameters()) {
        assert!((a.value - b.value).abs() < 0.006, "{key}: fitted {}, shipped {}", a.value, b.value);
    }
    for (a, b) in fit.conditional.values.iter().zip(&shipped.conditional.values) {
        assert!((a - b).abs() < 0.0006, "{a} {b}");
    }
}

/// On a recorded trace, with its ends of responses: look-ups equal the replay of the real policy at every budget.
#[test]
fn nested_tables_equal_replays_of_the_mini_pair() {
    let trace = Arc::new(mini());
    let nested = Nested::build(&trace, 64, 0).unwrap();
    for budget in 1..=64 {
        let mut engine = ReplayEngine::new(trace.clone(), 4).unwrap();
        let info = engine.info();
        let limits = Limits { budget, depth: info.depth, width: info.width, concurrency: 4 };
        let registry = treeline_policies::Registry::builtin();
        let mut policy = registry.build("best-first", &serde_json::json!({}), &limits).unwrap();
        let law = Law::Greedy;
        let setup = RunSetup { budget, concurrency: 4, law: &law, cost: None };
        let mut rounds = 0;
        run(&mut engine, policy.as_mut(), &requests(&trace), &setup, &mut |view| {
            for e in &view.log.entries {
                let i = e.start - trace.requests[e.index].prompt_tokens;
                assert_eq!(nested.accepted(e.index, i, budget), e.result.as_ref().unwrap().path.len() as u32);
                assert_eq!(nested.nodes(e.index, i, budget), e.rows - 1);
                rounds += 1;
            }
        })
        .unwrap();
        assert!(rounds > 100);
    }
}

/// A file that `tools/trace_writer.py` wrote is a trace; where pyarrow is at hand, one that it writes now.
#[test]
fn the_python_writers_files_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let check = |path: &Path| {
        let trace = crate::trace::read(path).unwrap();
        assert_eq!((trace.meta.depth, trace.meta.width, trace.requests.len()), (3, 4, 3));
        let emitted: Vec<u32> = trace.requests.iter().map(|r| r.emitted).collect();
        assert_eq!(emitted, [12, 9, 1]);
        assert!(trace.requests[0].positions[0].ends == [4, 8, 12] && trace.requests[0].positions[10].ends.is_empty());
        assert!(trace.requests.iter().flat_map(|r| &r.positions).any(|p| p.truth.first() == Some(&Some(0))));
        trace
    };
    let shipped = check(&root.join("experiments/tests/fixtures/python-writer.parquet"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("now.parquet");
    let script = root.join("experiments/tests/fixtures/write_trace.py");
    let ran = std::process::Command::new("python3").arg(&script).arg(root.join("tools")).arg(&path).output();
    match ran {
        Ok(out) if out.status.success() => assert_eq!(check(&path), shipped),
        Ok(out) if !String::from_utf8_lossy(&out.stderr).contains("No module named 'pyarrow'") => {
            panic!("{}", String::from_utf8_lossy(&out.stderr))
        }
        _ => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "skipped: no python3 with pyarrow");
        }
    }
}
