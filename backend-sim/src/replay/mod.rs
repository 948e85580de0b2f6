//! The replay engine: one drafter that reads recorded rows, one verifier whose verdict the recorded truth forces.

mod draft;
mod verify;

pub use draft::{ReplayDrafter, ReplayDrafts};
pub use verify::{ReplayVerdict, ReplayVerifier};

use crate::validate::{TraceFault, validate};
use std::collections::BTreeMap;
use std::sync::Arc;
use treeline_core::trace::{Position, Trace, TraceRequest};
use treeline_core::{Admit, End, Engine, EngineInfo, Error, Fault, Law, Needs, Request, Sampling, Seq};

/// Token of a replay from ranks that stands for "came, but the drafter did not list it". No candidate carries it.
pub const UNLISTED: u32 = u32::MAX;

/// Token of a replay from ranks that stands for the end of a response whose first token already was its last.
pub const END_TOKEN: u32 = u32::MAX - 1;

/// A trace behind the [`Engine`] seam. Build one per run; the trace itself is shared.
#[derive(Debug)]
pub struct ReplayEngine {
    recording: Recording,
    slots: u32,
    drafter: ReplayDrafter,
    verifier: ReplayVerifier,
    features: (),
}

impl ReplayEngine {
    /// An engine with `slots` sequences at once over `trace`.
    ///
    /// # Errors
    /// [`TraceFault`] when the trace contradicts itself.
    pub fn new(trace: Arc<Trace>, slots: u32) -> Result<Self, TraceFault> {
        validate(&trace)?;
        let index = trace.requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect();
        let recording = Recording { trace, index: Arc::new(index) };
        Ok(Self {
            slots: slots.max(1),
            drafter: ReplayDrafter::new(recording.clone()),
            verifier: ReplayVerifier::new(recording.clone()),
            recording,
            features: (),
        })
    }

    /// Recording, drafter and verifier, for an engine that wraps them.
    pub(crate) fn into_parts(self) -> (Recording, ReplayDrafter, ReplayVerifier) {
        (self.recording, self.drafter, self.verifier)
    }

    /// The trace that it answers from.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.recording.trace
    }
}

impl Engine for ReplayEngine {
    type V = ReplayVerifier;
    type D = ReplayDrafter;

    fn info(&self) -> EngineInfo {
        let meta = &self.recording.trace.meta;
        EngineInfo {
            slots: self.slots,
            context: meta.context,
            vocab: meta.vocab,
            depth: meta.depth,
            width: meta.width,
            conditional: meta.conditional,
            draws: false,
        }
    }

    fn admit(&mut self, _slot: u32, request: &Request, _law: &Law<'_>) -> Result<Admit, Fault> {
        let (root, start) = self.recording.admit(request)?;
        Ok(Admit::Done { root, start })
    }

    fn release(&mut self, _slot: u32) {}

    fn parts(&mut self) -> (&mut Self::D, &mut Self::V, &mut ()) {
        (&mut self.drafter, &mut self.verifier, &mut self.features)
    }
}

/// The requests of a trace in the form that [`treeline_core::run`] takes, in recorded order. Prompts are not on record:
/// they are stood in for by one token, and the engine gives the recorded length as the start.
#[must_use]
pub fn requests(trace: &Trace) -> Vec<Request> {
    let eos = |r: &TraceRequest| match r.end {
        End::Eos => vec![r.tokens.last().copied().unwrap_or(END_TOKEN)],
        _ => Vec::new(),
    };
    let sampling = Sampling::at(trace.meta.temperature);
    let request = |r: &TraceRequest| Request { id: r.id, prompt: vec![0], max_new: r.max_new, eos: eos(r), sampling };
    trace.requests.iter().map(request).collect()
}

/// Checks, before a run, that a policy can be replayed from `trace`.
///
/// # Errors
/// [`Error::Refused`] when the drafter was conditional, the policy expands nodes off the best path, and the trace holds no
/// such expansion.
pub fn check_policy(kind: &str, needs: &Needs, trace: &Trace) -> Result<(), Error> {
    let off_path = |p: &Position| p.expansions.iter().any(|e| e.rank > 0);
    // A policy of one rank a row (the chain) stays on the best path.
    let branches = needs.waves && needs.width > 1;
    if !trace.meta.conditional || !branches || trace.requests.iter().any(|r| r.positions.iter().any(off_path)) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "policy `{kind}` expands nodes beside the best path, and this trace of a conditional drafter holds none: record it again with a beam wider than 1, or replay the chain"
    )))
}

/// The trace with its requests by id.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    trace: Arc<Trace>,
    index: Arc<BTreeMap<u64, usize>>,
}

impl Recording {
    fn request(&self, id: u64) -> Result<&TraceRequest, Fault> {
        let at = self.index.get(&id).and_then(|&i| self.trace.requests.get(i));
        at.ok_or_else(|| Fault::Request(format!("the trace has no request {id}")))
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The request with this id and its place in the trace.
    pub fn place(&self, id: u64) -> Option<(usize, &TraceRequest)> {
        let &place = self.index.get(&id)?;
        Some((place, self.trace.requests.get(place)?))
    }

    /// Root and start of a request that is admitted.
    pub fn admit(&self, request: &Request) -> Result<(u32, u32), Fault> {
        let recorded = self.request(request.id)?;
        if request.max_new != recorded.max_new {
            // A longer response is not on record, a shorter one would have had shallower trees near its end.
            return Err(Fault::Request(format!(
                "request {} was recorded with `max_new` = {}, it cannot be replayed with {}",
                request.id, recorded.max_new, request.max_new
            )));
        }
        Ok((self.root(recorded), recorded.prompt_tokens))
    }

    /// The request of `seq` and the index of its root among the emitted tokens.
    fn locate(&self, seq: &Seq) -> Result<(&TraceRequest, usize), Fault> {
        let request = self.request(seq.request)?;
        let root = seq.start.checked_sub(request.prompt_tokens).filter(|&i| i < request.emitted);
        root.map(|i| (request, i as usize)).ok_or(Fault::TraceEnd { position: seq.start })
    }

    /// The token chosen by the prefill.
    fn root(&self, request: &TraceRequest) -> u32 {
        let ends_at_once = request.emitted == 1 && request.end == End::Eos;
        let coded = if ends_at_once { END_TOKEN } else { UNLISTED };
        request.tokens.first().copied().unwrap_or(coded)
    }
}

/// Index of the recorded expansion of the node at `rank` under expansion `parent` of a position.
#[must_use]
pub fn child(position: &Position, parent: u32, rank: u32) -> Option<u32> {
    let rest = position.expansions.iter().enumerate().skip(parent as usize + 1);
    rest.filter(|(_, e)| e.parent == parent && e.rank == rank).map(|(i, _)| i as u32).next()
}
