//! Whole runs of backend cuda through files: on the emulator, and on the GPU where there is one.
#![allow(clippy::unwrap_used)]

mod site;

use serde_json::Value;
use site::Site;
use treeline::config::{self, Backend, Experiment, Overrides};
use treeline::run::{self, Options, Outcome, RecordOptions};
use treeline_cuda::device::Gpu;
use treeline_policies::Registry;
use treeline_sim::Frontier;

/// The experiment, on a backend of this kind.
fn experiment(site: &Site, kind: &str, emulated: bool) -> Experiment {
    let text = format!(
        r#"
name = "tiny"
seed = 5
record = "all"
bootstrap = 100
[target]
checkpoint = "target"
[drafter]
kind = "dflash"
checkpoint = "dflash"
width = 16
[backend]
kind = "{kind}"
context = 64
prefill_chunk = 16
[cuda]
dtype = "f32"
emulated = {emulated}
[workload]
max_new = 8
ignore_eos = true
chat = "off"
concurrency = [2]
[[workload.prompts]]
file = "prompts.jsonl"
take = 2
[sampling]
law = "sample-match"
temperature = [0]
[[policy]]
kind = "best-first"
budget = [6]
"#
    );
    let folder = site.path("");
    config::parse(&text, "tiny.toml", &folder, &Registry::builtin(), &Overrides::default()).unwrap()
}

fn run(site: &Site, kind: &str, emulated: bool, out: &str) -> Outcome {
    let options = Options { out: Some(site.path(out)), quiet: true, ..Options::default() };
    run::run(&experiment(site, kind, emulated), &Registry::builtin(), &options).unwrap()
}

/// Devices that are here: emulated or not.
fn devices() -> Vec<bool> {
    let mut here = Vec::new();
    if Gpu::emulated().is_ok() {
        here.push(true);
    }
    if Gpu::open(0).is_ok() {
        here.push(false);
    }
    here
}

/// Acceptance, rows and experts are those of backend cpu; the folder says what computed them; only a GPU has a clock.
#[test]
fn a_run_on_a_gpu_measures_what_the_cpu_does() {
    for emulated in devices() {
        let site = Site::new();
        let cpu = run(&site, "cpu", emulated, "cpu");
        let cuda = run(&site, "cuda", emulated, "cuda");
        assert_eq!(cuda.failed, []);
        let figures = |outcome: &Outcome| {
            let cell = |c: &treeline::results::Cell| (c.policy.clone(), c.budget, c.tau, c.rows_mean);
            outcome.summary.cells.iter().map(cell).collect::<Vec<_>>()
        };
        assert_eq!(figures(&cuda), figures(&cpu));
        // Drafts that are as likely as each other may be other ones, and route elsewhere.
        for (a, b) in cuda.summary.cells.iter().zip(&cpu.summary.cells) {
            let (a, b) = (a.experts_mean.unwrap(), b.experts_mean.unwrap());
            assert!((a / b - 1.0).abs() < 0.05, "{a} experts against {b}");
        }
        assert!(cuda.summary.cells.iter().all(|c| c.backend == "cuda" && c.step_ms.is_some() != emulated));
        let manifest: Value = serde_json::from_slice(&std::fs::read(cuda.dir.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest["machine"]["gpu"].is_string(), !emulated);
        assert!(manifest["deployment"].as_str().unwrap().ends_with("f32, CUDA graphs"), "{manifest}");
        // What is written down is read back as the same experiment.
        let text = std::fs::read_to_string(cuda.dir.join("experiment.resolved.toml")).unwrap();
        let again = config::parse(&text, "r.toml", &cuda.dir, &Registry::builtin(), &Overrides::default()).unwrap();
        assert!(matches!(&again.backend, Backend::Cuda(_, how) if how.graphs && how.emulated == emulated));
    }
}

/// Synthetic weights: acceptance is what the trace gives in a replay, on the device and staged, and the routing that was asked
/// for is what ran (the engine checks it in every pass).
#[test]
fn synthetic_weights_accept_what_the_trace_does() {
    for emulated in devices() {
        let site = Site::new();
        let options = RecordOptions {
            out: site.path("t.parquet"),
            ranks_only: true,
            width: None,
            temperature: None,
            frontier: Frontier::default(),
            quiet: true,
        };
        run::record_trace(&experiment(&site, "cpu", emulated), &options).unwrap();
        // Shapes are all that is read of a model: half of these experts' width is still whole groups.
        let shapes = std::fs::read(site.path("target").join("config.json")).unwrap();
        let mut shapes: Value = serde_json::from_slice(&shapes).unwrap();
        shapes["moe_intermediate_size"] = 64.into();
        std::fs::create_dir(site.path("wide")).unwrap();
        std::fs::write(site.path("wide").join("config.json"), shapes.to_string()).unwrap();
        let text = format!(
            r#"
name = "shapes"
seed = 5
record = "all"
bootstrap = 100
[target]
checkpoint = {{ synthetic = "wide", layers = 3, ranks = 2, rank = 1 }}
[drafter]
kind = "dflash"
checkpoint = {{ synthetic = "dflash" }}
width = 16
[backend]
kind = "cuda"
context = 64
trace = "t.parquet"
[cuda]
dtype = "bf16"
expert_overlap = 0.25
emulated = {emulated}
[workload]
concurrency = [2]
[[policy]]
kind = "best-first"
budget = [6]
[[policy]]
kind = "talon"
budget = [6]
"#
        );
        let read = |text: &str, backend: Option<&str>| {
            let overrides = Overrides { backend: backend.map(str::to_owned), ..Overrides::default() };
            config::parse(text, "shapes.toml", &site.path(""), &Registry::builtin(), &overrides)
        };
        let run = |experiment: &Experiment, out: &str| {
            let options = Options { out: Some(site.path(out)), quiet: true, ..Options::default() };
            run::run(experiment, &Registry::builtin(), &options).unwrap()
        };
        let shapes = run(&read(&text, None).unwrap(), "shapes");
        let replay = run(&read(&text, Some("sim")).unwrap(), "replay");
        assert_eq!((&shapes.failed, &replay.failed), (&vec![], &vec![]));
        assert_eq!(shapes.summary.cells.len(), 3);
        for (a, b) in shapes.summary.cells.iter().zip(&replay.summary.cells) {
            assert_eq!((&a.policy, a.budget, a.tau, a.rows_mean), (&b.policy, b.budget, b.tau, b.rows_mean));
            assert!(a.notes.iter().any(|note| note.starts_with("synthetic weights")), "{:?}", a.notes);
            assert!(a.experts_mean.is_some() && a.step_ms.is_some() != emulated);
            assert_eq!((a.ranks, a.source.tau.as_str()), (2, "replayed"));
            assert!(a.deployment.as_ref().unwrap().contains("synthetic weights"), "{:?}", a.deployment);
        }
        // Behind positions that are filled instead of computed: the same steps.
        let filled = text.replace("[cuda]", "[cuda]\nprompt = 32");
        let filled = run(&read(&filled, None).unwrap(), "filled");
        assert_eq!(filled.failed, []);
        for (a, b) in filled.summary.cells.iter().zip(&replay.summary.cells) {
            assert_eq!((&a.policy, a.budget, a.tau, a.rows_mean), (&b.policy, b.budget, b.tau, b.rows_mean));
            assert!(a.notes.iter().any(|note| note.contains("behind 32 positions")), "{:?}", a.notes);
        }
        let beyond = read(&text.replace("layers = 3", "layers = 300"), None).unwrap();
        let why = run::run(&beyond, &Registry::builtin(), &Options::default()).unwrap_err().to_string();
        assert!(why.contains("layers") && why.contains("300"), "{why}");
        let toml = std::fs::read_to_string(shapes.dir.join("experiment.resolved.toml")).unwrap();
        let again = config::parse(&toml, "r.toml", &shapes.dir, &Registry::builtin(), &Overrides::default()).unwrap();
        assert!(matches!(again.backend, Backend::Synthetic(s) if s.layers == Some(3) && s.expert_overlap == 0.25));
    }
}

/// A trace recorded on the GPU is that of the CPU engine.
#[test]
fn a_trace_recorded_on_a_gpu_is_the_cpus() {
    for emulated in devices() {
        let site = Site::new();
        let record = |kind: &str| {
            let out = site.path(&format!("{kind}.parquet"));
            let options = RecordOptions {
                out: out.clone(),
                ranks_only: false,
                width: None,
                temperature: None,
                frontier: Frontier::default(),
                quiet: true,
            };
            run::record_trace(&experiment(&site, kind, emulated), &options).unwrap();
            treeline::trace::read(&out).unwrap()
        };
        let (cpu, cuda) = (record("cpu"), record("cuda"));
        for (a, b) in cpu.requests.iter().zip(&cuda.requests) {
            assert_eq!((&a.tokens, a.positions.len()), (&b.tokens, b.positions.len()));
            for (p, q) in a.positions.iter().zip(&b.positions) {
                // Below the most probable ranks, near-ties may fall either way.
                let best = |p: &treeline_core::trace::Position| p.row_ids(1).first().copied();
                assert_eq!((best(p), &p.ends), (best(q), &q.ends));
            }
        }
    }
}
