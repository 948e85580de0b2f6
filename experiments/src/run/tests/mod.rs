//! Runs over the scripted engine: real rounds, trees and policies, no models.

mod folder;
mod observe;
mod refused;
mod replay;
mod resume;
mod rounds;

use super::execute::execute;
use super::source::{Facts, Source};
use super::{Options, Outcome};
use crate::config::{Backend, Cost, Experiment, Location, PolicySpec, Record, Replay};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use treeline_core::testing::{MockEngine, Script};
use treeline_core::{
    Admit, CostCurve, Drafter, Engine, EngineInfo, Error, Fault, Forest, Law, Phase, PhaseTimes, Program, Request,
    Round, RoundLog, Sampling, Verifier,
};
use treeline_policies::Registry;

/// Seed of the law.
const SEED: u64 = 42;

/// The scripted engine with a clock that counts: round n takes (2 + n mod 3) ms of verifying, 1 of drafting.
struct Ticking {
    inner: MockEngine,
    rounds: u64,
    speed: f64,
    /// Rounds that take a second more: cold caches.
    cold: u64,
}

impl Engine for Ticking {
    type V = <MockEngine as Engine>::V;
    type D = <MockEngine as Engine>::D;

    fn info(&self) -> EngineInfo {
        self.inner.info()
    }
    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault> {
        self.inner.admit(slot, request, law)
    }
    fn release(&mut self, slot: u32) {
        self.inner.release(slot);
    }
    fn parts(&mut self) -> (&mut Self::D, &mut Self::V, &mut <Self::V as Verifier>::Features) {
        self.inner.parts()
    }
    fn fused(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        law: &Law<'_>,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> Result<Option<<Self::D as Drafter>::Drafts>, Error> {
        self.inner.fused(round, program, law, forest, log)
    }
    fn take_times(&mut self) -> Option<PhaseTimes> {
        self.rounds += 1;
        let cold = if self.rounds <= self.cold { 1000.0 } else { 0.0 };
        let mut times = PhaseTimes::default();
        times.ms[Phase::Prefill as usize] = 0.25;
        times.ms[Phase::Draft as usize] = 1.0 / self.speed;
        times.ms[Phase::Verify as usize] = cold + (2.0 + (self.rounds % 3) as f64) / self.speed;
        Some(times)
    }
}

/// A source of scripted engines that counts those it hands out.
struct Mock {
    script: Script,
    requests: u32,
    max_new: u32,
    speed: f64,
    cold: u64,
    facts: Facts,
    engines: AtomicU64,
}

impl Mock {
    fn new(script: Script) -> Self {
        let facts = Facts {
            backend: "cpu",
            hardware: Some("no machine".into()),
            gpu: None,
            deployment: Some("scripted".into()),
            acceptance: "measured".into(),
            workload: "scripted 10".into(),
            context: script.context,
            ranks: 1,
            width: script.width,
            depth: script.depth,
            temperatures: vec![0.7, 0.0],
            clock: true,
            tokens: true,
            knows_truth: false,
            tau: "measured",
            tier: "measured",
            identity: json!({ "script": format!("{script:?}") }),
            manifest: json!({ "target": { "sha256": "00" }, "prompts": [{ "file": "a.jsonl", "sha256": "11" }] }),
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        Self { script, requests: 10, max_new: 100, speed: 1.0, cold: 0, facts, engines: AtomicU64::new(0) }
    }

    fn block() -> Self {
        Self::new(Script { seed: SEED, depth: 5, width: 12, noise: 2.5, context: 160, ..Script::new(24) })
    }
}

impl Source for Mock {
    type Engine = Ticking;

    fn engine(&self, slots: u32, _budget: u32) -> anyhow::Result<Ticking> {
        self.engines.fetch_add(1, Relaxed);
        let script = Script { slots, ..self.script.clone() };
        Ok(Ticking { inner: MockEngine::new(script), rounds: 0, speed: self.speed, cold: self.cold })
    }

    fn requests(&self, temperature: f64) -> Vec<Request> {
        let request = |i: u32| Request {
            id: u64::from(i),
            prompt: (0..4 + i * 3).map(|t| (t * 5 + i) % self.script.target.vocab).collect(),
            max_new: self.max_new,
            eos: if i == 3 { vec![5] } else { Vec::new() },
            sampling: Sampling::at(temperature as f32),
        };
        (0..self.requests).map(request).collect()
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        Law::SampleMatch { seed: SEED }
    }

    fn domain(&self, index: usize) -> &str {
        ["code", "prose"][index % 2]
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

fn policy(kind: &str, budgets: &[u32], params: Value) -> PolicySpec {
    PolicySpec { kind: kind.into(), budgets: budgets.to_vec(), params }
}

/// Chain, best-first and adaptive over both temperatures of the mock.
fn experiment() -> Experiment {
    let curve = CostCurve::new(vec![1, 8, 32], vec![1.0, 1.4, 2.6]).unwrap();
    Experiment {
        name: "scripted".into(),
        seed: SEED,
        record: Record::All,
        bootstrap: 200,
        baseline: true,
        backend: Backend::Sim(Replay { trace: Location::new("t.parquet", Path::new(".")) }),
        concurrency: vec![1, 3],
        cost: Some(Cost { curve, source: "by hand".into() }),
        policies: vec![
            policy("chain", &[5], json!({})),
            policy("best-first", &[4, 16], Registry::builtin().example("best-first").unwrap()),
            policy("adaptive", &[16], Registry::builtin().example("adaptive").unwrap()),
        ],
        folder: std::env::temp_dir(),
    }
}

fn options(dir: &Path) -> Options {
    Options { out: Some(dir.to_owned()), quiet: true, ..Options::default() }
}

fn run_in(dir: &Path, source: &Mock, experiment: &Experiment) -> Outcome {
    execute(source, experiment, &Registry::builtin(), &options(dir)).unwrap()
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
