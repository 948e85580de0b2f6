//! At T = 1 the engine's tokens follow the target's own distribution: χ² of the whole round, from draft to commit, against
//! the CPU engine's probabilities, with controls that must fail.
#![allow(clippy::print_stdout, reason = "the figures go to docs/numbers/validation.md")]

mod pairs;

use pairs::{KIMI, Names, policy};
use serde_json::json;
use statrs::distribution::{ChiSquared, ContinuousCDF};
use treeline_core::law::first_token;
use treeline_core::sampling::target_dist;
use treeline_core::{
    Admit, Engine, EngineInfo, Error, Fault, Forest, Law, Phase, PhaseTimes, Program, Request, Round, RoundLog,
    RunSetup, Sampling, run,
};
use treeline_cpu::Scorer;
use treeline_cuda::device::{Arch, Dtype, Gpu};
use treeline_cuda::engine::{
    CudaDrafter, CudaDrafts, CudaEngine, CudaFeatures, CudaScorer, CudaSettings, CudaVerifier,
};
use treeline_cuda::testing::gpus;

const PROMPT: [u32; 6] = [7, 33, 2, 58, 19, 41];
const VOCAB: usize = 64;

/// An engine whose slots all hold the same prompt: a request that comes into a slot finds it processed already. Rows behind
/// the prompt are written anew by every request, and a request that ended leaves nothing for the drafter to take in.
struct Recycled {
    engine: CudaEngine,
    /// Logits behind the prompt.
    logits: Vec<f32>,
    admitted: Vec<bool>,
}

impl Engine for Recycled {
    type V = CudaVerifier;
    type D = CudaDrafter;

    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault> {
        let admitted = &mut self.admitted[slot as usize];
        if !*admitted {
            while self.engine.admit(slot, request, law)? == Admit::More {}
            *admitted = true;
        }
        let root = first_token(law, request, &self.logits, &mut Default::default())?;
        Ok(Admit::Done { root, start: PROMPT.len() as u32 })
    }

    fn release(&mut self, _: u32) {}

    fn parts(&mut self) -> (&mut CudaDrafter, &mut CudaVerifier, &mut CudaFeatures) {
        self.engine.parts()
    }

    fn fused(
        &mut self,
        round: &Round<'_>,
        program: &Program,
        law: &Law<'_>,
        forest: &mut Forest,
        log: &mut RoundLog,
    ) -> Result<Option<CudaDrafts>, Error> {
        self.engine.fused(round, program, law, forest, log)
    }

    fn mark(&mut self, phase: Phase) {
        self.engine.mark(phase);
    }

    fn take_times(&mut self) -> Option<PhaseTimes> {
        self.engine.take_times()
    }
}

/// An experiment: who samples, and the exact probabilities of what it samples.
struct Bench {
    engine: Recycled,
    /// Of the first two tokens, \[first\]\[second\].
    first: Vec<f64>,
    /// Of the second and third, \[second\]\[third\].
    second: Vec<f64>,
    size: Size,
}

/// How much of an experiment a device can do.
#[derive(Clone, Copy)]
struct Size {
    responses: usize,
    slots: u32,
    /// Nodes of a tree.
    nodes: u32,
    /// Cells of the test, at least.
    cells: u32,
}

impl Size {
    fn of(gpu: &Gpu) -> Self {
        match gpu.info().arch {
            Arch::Host => Self { responses: 256, slots: 32, nodes: 3, cells: 12 },
            _ => Self { responses: 200_000, slots: 64, nodes: 12, cells: 1000 },
        }
    }
}

impl Bench {
    fn new(gpu: &Gpu, names: Names) -> Self {
        let size = Size::of(gpu);
        let pair = names.on(gpu, Dtype::F32);
        let engine = pair.engine(CudaSettings { width: 64, ..CudaSettings::new(size.slots, 64, size.nodes) }).unwrap();
        let rows = CudaScorer::new(gpu, pair.target().clone(), 64).unwrap().extend(&PROMPT).unwrap();
        let logits = rows[PROMPT.len() - 1].clone();
        let mut scorer = Scorer::new(names.on_cpu().target().clone());
        let behind = scorer.extend(&PROMPT).row(PROMPT.len() - 1).to_vec();
        let (mut first, mut second) = (Vec::new(), vec![0.0; VOCAB * VOCAB]);
        for (root, p) in (0..).zip(dist(&behind)) {
            let tokens: Vec<u32> = std::iter::once(root).chain(0..VOCAB as u32).collect();
            let rows = scorer.tree(&tokens, &[0; VOCAB + 1]);
            for (at, q) in dist(&rows.row(0).to_vec()).into_iter().enumerate() {
                first.push(p * q);
                for (to, r) in second[at * VOCAB..].iter_mut().zip(dist(&rows.row(1 + at).to_vec())) {
                    *to += p * q * r;
                }
            }
        }
        let engine = Recycled { engine, logits, admitted: vec![false; size.slots as usize] };
        Self { engine, first, second, size }
    }

    /// p-values of (first, second) and (second, third) token of responses at `temperature`, of which every `copies`
    /// have one id; and how many tokens were accepted drafts.
    fn p_values(&mut self, seed: u64, temperature: f32, copies: usize) -> (f64, f64, u32) {
        let sampling = Sampling::at(temperature);
        let request = |i: usize| Request {
            id: (i / copies) as u64,
            prompt: PROMPT.to_vec(),
            max_new: 4,
            eos: Vec::new(),
            sampling,
        };
        let requests: Vec<Request> = (0..self.size.responses).map(request).collect();
        let mut policy = policy("best-first", &json!({}), self.size.nodes, &self.engine);
        let law = Law::SampleMatch { seed };
        let setup = RunSetup { budget: self.size.nodes, concurrency: self.size.slots, law: &law, cost: None };
        let mut accepted = 0;
        let responses = run(&mut self.engine, &mut *policy, &requests, &setup, &mut |view| {
            accepted += view.log.entries.iter().map(|e| e.result.as_ref().unwrap().accepted()).sum::<u32>();
        })
        .unwrap();
        let (mut first, mut second) = (vec![0u32; VOCAB * VOCAB], vec![0u32; VOCAB * VOCAB]);
        for response in &responses {
            let [a, b, c, _] = response.tokens[..] else { panic!("{response:?}") };
            first[a as usize * VOCAB + b as usize] += 1;
            second[b as usize * VOCAB + c as usize] += 1;
        }
        (p_value(&first, &self.first, self.size.cells), p_value(&second, &self.second, self.size.cells), accepted)
    }
}

fn dist(logits: &[f32]) -> Vec<f64> {
    let mut p = Vec::new();
    target_dist(logits, &Sampling::at(1.0), 0, &mut p).unwrap();
    p
}

/// χ² test of counts against probabilities; neighbours are pooled until 10 are expected.
fn p_value(counts: &[u32], p: &[f64], least: u32) -> f64 {
    let n: f64 = counts.iter().map(|c| f64::from(*c)).sum();
    let sum: f64 = p.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "probabilities sum to {sum}");
    let (mut chi, mut cells, mut pool) = (0.0, 0, (0.0, 0.0));
    for (count, p) in counts.iter().zip(p) {
        pool = (pool.0 + f64::from(*count), pool.1 + p * n);
        if pool.1 >= 10.0 {
            chi += (pool.0 - pool.1).powi(2) / pool.1;
            cells += 1;
            pool = (0.0, 0.0);
        }
    }
    // What is left over at the end is too little for a cell of its own, and adds less than it can.
    assert!(cells > least, "only {cells} cells are full enough");
    ChiSquared::new(f64::from(cells - 1)).unwrap().sf(chi)
}

#[test]
fn sampled_rounds_follow_the_target() {
    for gpu in gpus() {
        let mut bench = Bench::new(&gpu, KIMI);
        let (first, second, accepted) = bench.p_values(41, 1.0, 1);
        let n = bench.size.responses;
        println!(
            "{}: {n} responses, {accepted} accepted drafts, p = {first:.3} (tokens 1, 2) and {second:.3} (2, 3)",
            gpu.info().name
        );
        assert!(first > 1e-6 && second > 1e-6, "{first:e}, {second:e}");
        assert!(accepted as usize > n / 50, "trees hardly took part: {accepted}");
        assert!(bench.engine.engine.device_rounds() > 0);
    }
}

/// Control: numbers that ignore a part of their key (here the request's id: 16 requests share one).
#[test]
fn repeated_numbers_are_noticed() {
    for gpu in gpus() {
        let (first, second, _) = Bench::new(&gpu, KIMI).p_values(41, 1.0, 16);
        println!("{}: 16 requests of one id: p = {first:e} (tokens 1, 2) and {second:e} (2, 3)", gpu.info().name);
        assert!(first < 1e-9 && second < 1e-9, "{first:e}, {second:e}");
    }
}

/// Control: a temperature that is 10 % off. The emulator takes too few samples to see it.
#[test]
fn a_wrong_temperature_is_noticed() {
    for gpu in gpus().iter().filter(|gpu| gpu.info().arch != Arch::Host) {
        let (first, second, _) = Bench::new(gpu, KIMI).p_values(41, 1.1, 1);
        println!("{}: T = 1.1: p = {first:e} (tokens 1, 2) and {second:e} (2, 3)", gpu.info().name);
        assert!(first < 1e-9 && second < 1e-9, "{first:e}, {second:e}");
    }
}
