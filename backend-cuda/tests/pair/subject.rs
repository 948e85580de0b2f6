//! What the tests here run: a pair of models on a device and on the CPU, and prompts for it.

use crate::pairs::{self, KIMI, fixture};
use std::path::PathBuf;
use std::sync::OnceLock;
use treeline_checkpoint::Tokenizer;
use treeline_core::testing::Shape;
use treeline_core::{Law, Request, Response, RunSetup, Sampling, run};
use treeline_cpu::{CpuEngine, CpuPair, EngineSettings, Scorer};
use treeline_cuda::device::{Arch, Dtype, Gpu};
use treeline_cuda::engine::{CudaEngine, CudaPair, CudaSettings, DrafterSource, PairOptions};
use treeline_cuda::testing::gpus;

/// Positions of the mini pair's engines.
const CONTEXT: u32 = 800;

/// Prompt files of the mini pair, taken in turn; each is a domain.
pub const DOMAINS: [&str; 5] = ["humaneval", "gsm8k", "mtbench", "heldout-code", "heldout-prose"];

/// The longest prompt that is taken, in tokens.
const LONGEST: usize = 400;

/// A pair on one device and on the CPU.
pub struct Subject {
    pub gpu: Gpu,
    pub cpu: &'static CpuPair,
    pub cuda: CudaPair,
    context: u32,
}

/// The pair of each device: the mini pair on a GPU, a fixture of the same family on the emulator.
pub fn subjects(dtype: Dtype) -> Vec<Subject> {
    gpus().into_iter().map(|gpu| Subject::new(gpu, dtype)).collect()
}

impl Subject {
    fn new(gpu: Gpu, dtype: Dtype) -> Self {
        if gpu.info().arch == Arch::Host {
            static FIXTURE: OnceLock<CpuPair> = OnceLock::new();
            let cpu = FIXTURE.get_or_init(|| KIMI.on_cpu());
            return Self { cuda: KIMI.on(&gpu, dtype), gpu, cpu, context: pairs::CONTEXT };
        }
        static MINI: OnceLock<CpuPair> = OnceLock::new();
        let (target, dir) = (models().join("mini-target"), models().join("mini-dflash"));
        let source = treeline_cpu::DrafterSource::Dflash { dir: dir.clone() };
        let cpu = MINI.get_or_init(|| CpuPair::load(&target, &source).unwrap_or_else(|e| panic!("{e}")));
        let options = PairOptions { dtype, context: CONTEXT };
        let cuda = CudaPair::load(&gpu, &target, &DrafterSource::Dflash { dir }, &options);
        Self { cuda: cuda.unwrap_or_else(|e| panic!("{e}")), gpu, cpu, context: CONTEXT }
    }

    /// Whether this is the mini pair.
    pub fn real(&self) -> bool {
        self.gpu.info().arch != Arch::Host
    }

    /// One of two numbers: for the mini pair, or for the fixture.
    pub fn either<T>(&self, mini: T, tiny: T) -> T {
        if self.real() { mini } else { tiny }
    }

    pub fn name(&self) -> String {
        let dtype = self.cuda.options().dtype;
        format!("{} on {}, {dtype:?}", self.either("mini pair", "fixture"), self.gpu.info().name)
    }

    /// Folder of the target.
    pub fn target_dir(&self) -> PathBuf {
        self.either(models().join("mini-target"), fixture(KIMI.target))
    }

    pub fn context(&self) -> u32 {
        self.context
    }

    /// `n` prompts, one domain after the other in turn, as requests for `max_new` tokens.
    pub fn requests(&self, n: usize, max_new: u32, sampling: Sampling) -> Vec<Request> {
        if !self.real() {
            return pairs::requests(n, max_new, sampling);
        }
        let tokenizer = Tokenizer::open(&models().join("mini-target")).unwrap();
        let prompts = |domain: &str| -> Vec<Vec<u32>> {
            let text = std::fs::read_to_string(models().join(format!("../prompts/{domain}.jsonl"))).unwrap();
            let prompt = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                tokenizer.encode(line["text"].as_str().unwrap(), true).unwrap()
            };
            text.lines().map(prompt).filter(|p| p.len() <= LONGEST).take(n.div_ceil(DOMAINS.len())).collect()
        };
        let files: Vec<Vec<Vec<u32>>> = DOMAINS.iter().map(|d| prompts(d)).collect();
        let request = |i: usize| {
            let prompt = files[i % DOMAINS.len()][i / DOMAINS.len()].clone();
            Request { id: i as u64, prompt, max_new, eos: Vec::new(), sampling }
        };
        (0..n).map(request).collect()
    }

    /// An engine with trees of at most `nodes` nodes.
    pub fn engine(&self, slots: u32, nodes: u32) -> CudaEngine {
        self.engine_with(CudaSettings::new(slots, self.context, nodes))
    }

    pub fn engine_with(&self, settings: CudaSettings) -> CudaEngine {
        self.cuda.engine(settings).unwrap_or_else(|e| panic!("{e}"))
    }

    /// An engine of one slot on the CPU.
    pub fn on_cpu(&self) -> CpuEngine {
        let settings = EngineSettings { slots: 1, context: self.context, chunk: 256 };
        self.cpu.engine(settings).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Real prompts for greedy text, or those of the fixture: what most tests are about.
    pub fn greedy(&self) -> Vec<Request> {
        self.requests(self.either(50, 4), self.either(128, 16), Sampling::GREEDY)
    }

    /// The CPU engine's plain text of [`Subject::greedy`], made once.
    pub fn greedy_text(&self) -> &'static [Vec<u32>] {
        static TEXTS: [OnceLock<Vec<Vec<u32>>>; 2] = [OnceLock::new(), OnceLock::new()];
        TEXTS[usize::from(self.real())].get_or_init(|| self.plain(&self.greedy(), &Law::Greedy))
    }

    /// The CPU engine's logits of every token of [`Subject::greedy_text`], made once.
    pub fn greedy_logits(&self) -> &'static [Vec<Vec<f32>>] {
        static LOGITS: [OnceLock<Vec<Vec<Vec<f32>>>>; 2] = [OnceLock::new(), OnceLock::new()];
        let one = |i: usize, request: &Request| {
            let whole = [&request.prompt[..], &self.greedy_text()[i]].concat();
            let rows = Scorer::new(self.cpu.target().clone()).extend(&whole[..whole.len() - 1]);
            (request.prompt.len() - 1..rows.nrows()).map(|row| rows.row(row).to_vec()).collect()
        };
        LOGITS[usize::from(self.real())].get_or_init(|| side_by_side(&self.greedy(), &one))
    }

    /// The CPU engine's plain text of each request.
    pub fn plain(&self, requests: &[Request], law: &Law<'_>) -> Vec<Vec<u32>> {
        let one = |_: usize, request: &Request| {
            let setup = RunSetup { budget: 0, concurrency: 1, law, cost: None };
            let one = std::slice::from_ref(request);
            let mut responses = run(&mut self.on_cpu(), &mut Shape::chain(0), one, &setup, &mut |_| {}).unwrap();
            responses.pop().map(|r: Response| r.tokens).unwrap()
        };
        side_by_side(requests, &one)
    }
}

/// `one` of every request, on all cores; results in the order of the requests.
pub fn side_by_side<T: Send>(requests: &[Request], one: &(dyn Fn(usize, &Request) -> T + Sync)) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(requests.len()).max(1);
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let mine = requests.iter().enumerate().skip(worker).step_by(workers);
            move || mine.map(|(i, request)| (i, one(i, request))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

fn models() -> PathBuf {
    fixture("../../../experiments/models")
}
