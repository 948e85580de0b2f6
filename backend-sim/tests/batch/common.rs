//! A price that can be worked out by hand, traces of any kind of end, and runs over both.

#[path = "../drawn/mod.rs"]
mod drawn;

use drawn::Draws;
use std::sync::Arc;
use treeline_core::log::Priced;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
use treeline_core::{
    End, Entry, Error, Law, Limits, Phase, PhaseTimes, Response, RunSetup, StepCost, StepShape, StepTime, run,
};
use treeline_policies::Registry;
use treeline_sim::batch::{Arrivals, BatchSetup, Prefill, PricedEngine, Pricing};
use treeline_sim::cost::{PromptPrice, StepPrice, StepQuery};
use treeline_sim::experts::{Experts, Novelty, Popularity};
use treeline_sim::requests;

/// Rows of a draft pass of the traces' drafter.
pub const BLOCK: u32 = 6;

/// A price in plain numbers. Steps are padded to `buckets`.
pub struct Plain {
    pub experts: Option<Experts>,
    pub buckets: Vec<u32>,
}

impl Plain {
    pub fn padded(&self, rows: u32) -> u32 {
        self.buckets.iter().copied().find(|b| *b >= rows).unwrap_or(rows)
    }
}

impl StepCost for Plain {
    fn step(&self, s: &StepShape) -> StepTime {
        let query = StepQuery { draft_requests: u32::from(s.draft_rows > 0) * s.requests, ..StepQuery::from(s) };
        StepTime { verify_ms: self.price(&query).ms(), ..StepTime::default() }
    }

    fn bucket_ends(&self) -> &[u32] {
        &self.buckets
    }
}

impl Pricing for Plain {
    fn price(&self, q: &StepQuery) -> StepPrice {
        let padded_rows = self.padded(q.rows);
        let effective = q.effective_rows.unwrap_or(f64::from(q.rows) * 0.8);
        let mut phases = PhaseTimes::default();
        phases.ms[Phase::Draft as usize] = f64::from(q.draft_rows) * 0.01 + f64::from(q.expand_waves) * 0.5;
        phases.ms[Phase::Verify as usize] =
            3.0 + f64::from(padded_rows) * 0.04 + effective * 0.02 + q.context_sum as f64 * 1e-5;
        phases.ms[Phase::Host as usize] = 0.1 * f64::from(u32::from(q.draft_requests > 0));
        let ms = phases.round();
        StepPrice {
            phases,
            padded_rows,
            experts: self.experts.as_ref().map(|e| e.distinct(384, 8, effective)),
            hbm_bytes: 1e9,
            flops: 1e9,
            watts: 500.0,
            joules: ms * 0.5,
            in_domain: q.rows <= 4096,
        }
    }

    fn prefill(&self, tokens: u32, cached: u32) -> PromptPrice {
        let ms = 1.0 + f64::from(tokens) * 0.1 + f64::from(cached) * 0.001;
        PromptPrice { ms, joules: 0.6 * ms }
    }

    fn ranks(&self) -> u32 {
        8
    }

    fn experts(&self) -> Option<&Experts> {
        self.experts.as_ref()
    }
}

/// The price of a mixture of experts whose rows overlap by edge.
pub fn moe() -> Arc<Plain> {
    let novelty = Novelty { chain: 0.7, chain_decay: 0.3, sibling: 0.5, sibling_decay: 0.2, repeat: 0.05, spine: 5 };
    let experts = Experts::Correlated { popularity: Popularity::Even, novelty };
    Arc::new(Plain { experts: Some(experts), buckets: vec![4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024] })
}

/// A rank trace of `count` requests: rows of random sharpness, the easier the request the sharper, the truth drawn from
/// each. Responses of different length; every third ends by an end token, the others by length.
pub fn trace(count: u64, tokens: u32) -> Arc<Trace> {
    const WIDTH: u32 = 40;
    let depth = BLOCK - 1;
    let request = |id: u64| {
        let mut draws = Draws::new(id, [3, 5]);
        let emitted = tokens / 2 + (draws.draw() * f64::from(tokens / 2)) as u32 + 1;
        let eos = id % 3 == 2;
        let max_new = if eos { emitted + 9 } else { emitted };
        let easy = 1.2 * draws.draw();
        let mut position = |index: u32| {
            let mut p = Position::default();
            let levels = depth.min((max_new - 1 - index).saturating_sub(1));
            for _ in 0..levels {
                let power = 1.3 + easy + 2.5 * draws.draw();
                let rank = draws.row(&mut p, WIDTH, power, 1.03);
                if (p.truth.len() as u32) < emitted - 1 - index {
                    p.truth.push(rank);
                }
            }
            p
        };
        TraceRequest {
            id: id + 100,
            domain: String::new(),
            prompt_tokens: 10 + (id as u32 * 7) % 50,
            max_new,
            tokens: Vec::new(),
            emitted,
            positions: (0..emitted - 1).map(&mut position).collect(),
            end: if eos { End::Eos } else { End::Length },
        }
    };
    let meta = TraceMeta {
        depth,
        width: WIDTH,
        conditional: false,
        ids: false,
        vocab: 1000,
        context: 4096,
        temperature: 0.0,
        seed: 0,
        source: "drawn".into(),
    };
    Arc::new(Trace { meta, requests: (0..count).map(request).collect() })
}

/// A closed loop at a cap, nothing limited.
pub fn closed(slots: u32, budget: u32) -> BatchSetup {
    BatchSetup {
        slots,
        arrivals: Arrivals::Closed,
        prefill: Prefill::Excluded,
        context: None,
        budget,
        draft_rows: BLOCK,
        kv: None,
        overlap: Vec::new(),
    }
}

/// One round as it went.
#[derive(Debug, Clone, PartialEq)]
pub struct Went {
    pub entries: Vec<Entry>,
    pub times: PhaseTimes,
    pub priced: Priced,
}

/// What a run left.
pub struct Ran {
    pub engine: PricedEngine,
    pub responses: Vec<Response>,
    pub rounds: Vec<Went>,
}

/// Runs a policy over the whole trace.
pub fn play(trace: &Arc<Trace>, cost: &Arc<Plain>, setup: &BatchSetup, kind: &str, params: &str) -> Result<Ran, Error> {
    let mut engine = PricedEngine::new(trace.clone(), cost.clone(), setup.clone()).unwrap();
    let limits =
        Limits { budget: setup.budget, depth: trace.meta.depth, width: trace.meta.width, concurrency: setup.slots };
    let params: serde_json::Value = serde_json::from_str(params).unwrap();
    let mut policy = Registry::builtin().build(kind, &params, &limits).unwrap();
    let run_setup = RunSetup { budget: setup.budget, concurrency: setup.slots, law: &Law::Greedy, cost: Some(&**cost) };
    let mut rounds = Vec::new();
    let responses = run(&mut engine, &mut *policy, &requests(trace), &run_setup, &mut |view| {
        let (times, priced) = (view.log.times.unwrap(), view.log.priced.unwrap());
        rounds.push(Went { entries: view.log.entries.clone(), times, priced });
    })?;
    Ok(Ran { engine, responses, rounds })
}
