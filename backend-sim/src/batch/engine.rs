//! The priced engine: a replay whose rounds have a price and whose requests come and go by a clock.

use super::kv::{Kv, Need};
use super::latency::{Latency, Visit};
use super::step::{Drafted, PricedDrafter, PricedVerifier};
use super::{BatchError, BatchSetup, Prefill, Pricing};
use crate::cost::PromptPrice;
use crate::replay::{Recording, ReplayEngine};
use std::sync::Arc;
use treeline_core::log::PhaseTimes;
use treeline_core::trace::{Trace, TraceRequest};
use treeline_core::{Admit, Engine, EngineInfo, Fault, Law, Request};

/// A [`ReplayEngine`] with a cost model behind it. What is accepted comes from the trace alone, what it takes from the
/// model alone: every round is priced by the trees that were really verified, and the clock moves on by that.
///
/// The requests of a run must be those of the trace, in its order: arrivals go by their place in it.
pub struct PricedEngine {
    recording: Recording,
    info: EngineInfo,
    setup: BatchSetup,
    cost: Arc<dyn Pricing>,
    /// When each request arrives, by its place in the trace.
    arrivals: Vec<f64>,
    kv: Kv,
    /// Arrival of the request that was not ready when asked last.
    next_ms: f64,
    drafter: PricedDrafter,
    verifier: PricedVerifier,
    features: (),
}

impl PricedEngine {
    /// An engine over `trace`.
    ///
    /// # Errors
    /// [`BatchError`]: a trace that contradicts itself, arrivals that are none, a cap whose KV can never fit.
    pub fn new(trace: Arc<Trace>, cost: Arc<dyn Pricing>, setup: BatchSetup) -> Result<Self, BatchError> {
        let value = |key, rule| Err(BatchError::Value { key, value: "0".into(), rule });
        if setup.slots == 0 {
            return value("concurrency", "must be 1 or more");
        }
        if setup.prefill == (Prefill::Charged { chunk: 0 }) {
            return value("prefill.chunk", "a chunk of no tokens never ends a prompt: give 1 or more");
        }
        if setup.draft_rows == 0 {
            return value("draft_rows", "a draft pass has at least one row a request");
        }
        let replay = ReplayEngine::new(trace, setup.slots)?.placed(setup.context);
        let info = replay.info();
        let (recording, drafter, verifier) = replay.into_parts();
        let requests = &recording.trace().requests;
        let arrivals = setup.arrivals.times(requests.len())?;
        let needs: Vec<Need> = requests.iter().map(|r| need(&setup, r)).collect();
        let kv = Kv::new(setup.kv.clone(), setup.slots, &needs)?;
        let drafted = Arc::new(Drafted::default());
        let drafter = PricedDrafter::new(drafter, drafted.clone(), setup.draft_rows);
        let verifier = PricedVerifier::new(verifier, recording.clone(), drafted, cost.clone(), &setup);
        Ok(Self { recording, info, setup, cost, arrivals, kv, next_ms: 0.0, drafter, verifier, features: () })
    }

    /// Simulated time since the start of the run, in ms.
    #[must_use]
    pub fn clock_ms(&self) -> f64 {
        self.verifier.clock.now_ms
    }

    /// Every request that was admitted, in order of admission.
    #[must_use]
    pub fn visits(&self) -> &[Visit] {
        &self.verifier.clock.visits
    }

    /// How long the requests that ended waited; `None` when none did.
    #[must_use]
    pub fn latency(&self) -> Option<Latency> {
        Latency::of(self.visits())
    }

    fn prefill(&self, tokens: u32) -> PromptPrice {
        let Prefill::Charged { chunk } = self.setup.prefill else { return PromptPrice::default() };
        let chunks = (0..tokens).step_by(chunk as usize);
        let each = chunks.map(|cached| self.cost.prefill(chunk.min(tokens - cached), cached));
        each.fold(PromptPrice::default(), |sum, p| PromptPrice { ms: sum.ms + p.ms, joules: sum.joules + p.joules })
    }
}

/// Tokens in front of a response.
fn context(setup: &BatchSetup, request: &TraceRequest) -> u32 {
    setup.context.unwrap_or(request.prompt_tokens)
}

/// The most KV that a request will hold: context, response, and the tree behind its last root.
fn need(setup: &BatchSetup, request: &TraceRequest) -> Need {
    let tokens = context(setup, request).saturating_add(request.max_new);
    Need { tokens, rows: setup.budget.saturating_add(1) }
}

impl Engine for PricedEngine {
    type V = PricedVerifier;
    type D = PricedDrafter;

    fn info(&self) -> EngineInfo {
        self.info
    }

    fn ready(&mut self, request: &Request) -> bool {
        let Some((place, recorded)) = self.recording.find(request.id) else { return true };
        self.next_ms = self.arrivals[place];
        let need = need(&self.setup, recorded);
        self.next_ms <= self.clock_ms() && (self.kv.fits(need) || !self.kv.ever_fits(need))
    }

    fn idle(&mut self) {
        let clock = &mut self.verifier.clock;
        clock.now_ms = clock.now_ms.max(self.next_ms);
    }

    fn admit(&mut self, slot: u32, request: &Request, _law: &Law<'_>) -> Result<Admit, Fault> {
        let (root, start) = self.recording.admit(request)?;
        let found = self.recording.find(request.id);
        let (place, recorded) = found.ok_or_else(|| Fault::Request("the trace does not hold it".into()))?;
        let (need, context) = (need(&self.setup, recorded), context(&self.setup, recorded));
        if !self.kv.ever_fits(need) {
            return Err(Fault::Request(format!(
                "the KV of its {} tokens and {} tree rows exceeds the room of a GPU even when nothing else runs",
                need.tokens, need.rows
            )));
        }
        self.kv.take(slot, need);
        let clock = &self.verifier.clock;
        let arrival = if self.setup.arrivals == super::Arrivals::Closed { clock.now_ms } else { self.arrivals[place] };
        let prefill = self.prefill(context);
        self.verifier.clock.enter(slot, request.id, arrival, prefill);
        Ok(Admit::Done { root, start })
    }

    fn release(&mut self, slot: u32) {
        self.kv.free(slot);
        self.verifier.clock.leave(slot);
    }

    fn parts(&mut self) -> (&mut PricedDrafter, &mut PricedVerifier, &mut ()) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }

    fn take_times(&mut self) -> Option<PhaseTimes> {
        self.verifier.clock.times.take()
    }
}
