//! The general way: any policy, arrival and prompt charge, round by round over a priced replay.

use crate::config::{ArrivalsSpec, PrefillName};
use crate::priced::{Acceptance, Prepared};
use crate::run::source::{Facts, Source, Wall};
use serde_json::json;
use std::sync::Arc;
use treeline_core::trace::Trace;
use treeline_core::{Law, Needs, Request, StepCost};
use treeline_sim::accept::Process;
use treeline_sim::batch::{Arrivals, BatchSetup, Prefill, PricedEngine};
use treeline_sim::cost::CostModel;
use treeline_sim::memory::Room;
use treeline_sim::{check_policy, law, requests};

/// Prompt tokens of one chunk between two rounds.
const CHUNK: u32 = 8192;

/// A source at one context.
pub(super) struct PricedSource {
    trace: Arc<Trace>,
    cost: Arc<CostModel>,
    setup: BatchSetup,
    facts: Facts,
    /// What all GPUs draw while nothing runs, in W.
    idle_w: f64,
    /// Its acceptance.
    pub acceptance: Acceptance,
    /// Where responses are placed; `None` = behind their own prompts.
    pub context: Option<u32>,
}

/// Every source at every context, in file order.
///
/// # Errors
/// A source that cannot be had; weights that do not fit.
pub(super) fn sources(p: &Prepared<'_>) -> anyhow::Result<Vec<PricedSource>> {
    let (e, run) = (p.experiment, p.run);
    let room = p.profiles.room()?;
    let cost = Arc::new(p.cost.clone());
    let contexts: Vec<Option<u32>> =
        if run.context.is_empty() { vec![None] } else { run.context.iter().copied().map(Some).collect() };
    let mut out = Vec::new();
    for (i, spec) in run.acceptance.iter().enumerate() {
        let (drafter, at) = (&p.profiles.drafter, format!("acceptance.{i}"));
        let (acceptance, trace) = Acceptance::load(spec, run, drafter, &e.folder, e.seed, &at)?;
        let trace = Arc::new(trace);
        for &context in &contexts {
            out.push(PricedSource {
                setup: setup(p, &room, &acceptance, context),
                facts: facts(p, &p.sources[i].digest, &acceptance, &trace, context),
                idle_w: p.profiles.hardware.idle_w * f64::from(p.profiles.deployment.ranks),
                trace: trace.clone(),
                cost: cost.clone(),
                acceptance: acceptance.clone(),
                context,
            });
        }
    }
    Ok(out)
}

impl PricedSource {
    /// The same prices over what a moved process generates: a closed loop of decoding alone.
    pub fn moved(&self, process: &Process, walk: Walk) -> anyhow::Result<Self> {
        let trace = Arc::new(process.generate(walk.requests, walk.tokens, walk.seed)?);
        let overlap = (0..u64::from(walk.requests)).map(|r| process.novelty(walk.seed, r) as f32).collect();
        let (arrivals, prefill) = (Arrivals::Closed, Prefill::Excluded);
        Ok(Self {
            setup: BatchSetup { arrivals, prefill, overlap, kv: None, ..self.setup.clone() },
            facts: self.facts.clone(),
            cost: self.cost.clone(),
            acceptance: self.acceptance.clone(),
            trace,
            ..*self
        })
    }
}

/// What a moved process generates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// Requests.
    pub requests: u32,
    /// Tokens of a response.
    pub tokens: u32,
    /// Seed; the same for all, so that moved and unmoved are compared on the same random numbers.
    pub seed: u64,
}

fn setup(p: &Prepared<'_>, room: &Room, acceptance: &Acceptance, context: Option<u32>) -> BatchSetup {
    BatchSetup {
        slots: 1,
        arrivals: match p.run.arrivals {
            ArrivalsSpec::Closed => Arrivals::Closed,
            ArrivalsSpec::Poisson { rate } => Arrivals::Poisson { per_s: rate, seed: p.experiment.seed },
        },
        prefill: match p.profiles.spec.prefill {
            PrefillName::Excluded => Prefill::Excluded,
            PrefillName::Charged => Prefill::Charged { chunk: CHUNK },
        },
        context,
        budget: 0,
        draft_rows: p.profiles.draft_rows(),
        kv: Some(room.clone()),
        overlap: acceptance.overlap.clone(),
    }
}

fn facts(p: &Prepared<'_>, digest: &str, a: &Acceptance, trace: &Trace, context: Option<u32>) -> Facts {
    let tier = p.profiles.spec.tier.name();
    let mut notes = vec!["replayed round by round: the first and last responses run in smaller company".to_owned()];
    if p.profiles.spec.prefill == PrefillName::Charged {
        notes.push(format!("prompts of joining requests are charged in chunks of {CHUNK} tokens"));
    }
    let process = a.process.is_some();
    Facts {
        backend: "sim",
        hardware: Some(p.profiles.hardware.name.clone()),
        gpu: None,
        deployment: Some(p.profiles.deployment.name.clone()),
        acceptance: a.name.clone(),
        workload: a.workload.clone(),
        context: context.unwrap_or(a.prompt),
        ranks: p.profiles.deployment.ranks,
        width: trace.meta.width,
        depth: trace.meta.depth,
        temperatures: vec![a.temperature],
        clock: true,
        tokens: trace.meta.ids,
        knows_truth: !trace.meta.conditional,
        tau: if process { "process" } else { "replayed" },
        tier,
        identity: json!({
            "treeline": env!("CARGO_PKG_VERSION"),
            "backend": "sim",
            "cost": p.cost.digest(),
            "acceptance": [a.name, digest],
            "context": context,
            "arrivals": format!("{:?}", p.run.arrivals),
            "prefill": p.profiles.spec.prefill.name(),
            "seed": p.experiment.seed,
        }),
        manifest: json!(null),
        notes,
        warnings: Vec::new(),
    }
}

impl Source for PricedSource {
    type Engine = PricedEngine;

    fn engine(&self, slots: u32, budget: u32) -> anyhow::Result<PricedEngine> {
        // Small trees hold no room for the file's largest.
        let setup = BatchSetup { slots, budget, ..self.setup.clone() };
        Ok(PricedEngine::new(self.trace.clone(), self.cost.clone(), setup)?)
    }

    fn requests(&self, _temperature: f64) -> Vec<Request> {
        requests(&self.trace)
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        law(&self.trace)
    }

    fn domain(&self, index: usize) -> &str {
        self.trace.requests.get(index).map_or("", |r| &r.domain)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn check(&self, kind: &str, needs: &Needs) -> anyhow::Result<()> {
        Ok(check_policy(kind, needs, &self.trace)?)
    }

    fn cost(&self) -> Option<&dyn StepCost> {
        Some(&*self.cost)
    }

    fn wall(&self, engine: &PricedEngine) -> Option<Wall> {
        let open = self.setup.arrivals != Arrivals::Closed;
        open.then(|| Wall { ms: engine.clock_ms(), idle_w: self.idle_w })
    }

    fn user_ms(&self, engine: &PricedEngine) -> Option<f64> {
        // A round's time holds the prompts before it: those of others keep a user waiting, its own came before its tokens.
        if self.setup.prefill == Prefill::Excluded {
            return None;
        }
        let ended = engine.visits().iter().filter_map(|v| Some((v.end_ms? - v.first_ms, f64::from(v.tokens - 1))));
        let (ms, tokens) = ended.fold((0.0, 0.0), |s, v| (s.0 + v.0, s.1 + v.1));
        (tokens > 0.0).then(|| ms / tokens)
    }

    fn remarks(&self, engine: &PricedEngine) -> Vec<String> {
        let Some(l) = engine.latency() else { return Vec::new() };
        let open = matches!(self.setup.arrivals, Arrivals::Poisson { .. });
        let waits = format!(
            "first token after {:.0} ms (p99 {:.0}), of which {:.0} ms in the queue (p99 {:.0})",
            l.ttft.mean, l.ttft.p99, l.queue.mean, l.queue.p99
        );
        open.then_some(waits).into_iter().collect()
    }
}
