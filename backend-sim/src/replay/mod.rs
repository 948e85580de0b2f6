//! The replay engine: one drafter that reads recorded rows, one verifier whose verdict the recorded truth forces.

mod draft;
mod recording;
mod rows;
mod verify;

pub use draft::{ReplayDrafter, ReplayDrafts};
pub(crate) use recording::Recording;
pub use rows::BlockRows;
pub use verify::{ReplayVerdict, ReplayVerifier};

use crate::validate::{TraceFault, validate};
use std::sync::Arc;
use treeline_core::trace::{Position, Trace, TraceRequest};
use treeline_core::{Admit, End, Engine, EngineInfo, Error, Fault, Law, Needs, Request, Sampling};

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
        let recording = Recording::new(trace);
        Ok(Self {
            slots: slots.max(1),
            drafter: ReplayDrafter::new(recording.clone()),
            verifier: ReplayVerifier::new(recording.clone()),
            recording,
            features: (),
        })
    }

    /// Puts every response behind `context` tokens, whatever its recorded prompt; the engine's context grows with it.
    /// What is drafted and accepted stays the same, but that no tree is cut any more near the end of the context that the
    /// trace was recorded with.
    #[must_use]
    pub fn placed(mut self, context: Option<u32>) -> Self {
        if let Some(context) = context {
            let recording = self.recording.clone().placed(context);
            self.drafter = ReplayDrafter::new(recording.clone());
            self.verifier = ReplayVerifier::new(recording.clone());
            self.recording = recording;
        }
        self
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
            context: self.recording.context(),
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

/// The law that the trace's trajectory was decoded under, its seed with it.
#[must_use]
pub fn law(trace: &Trace) -> Law<'static> {
    match trace.meta.temperature {
        t if t > 0.0 => Law::SampleMatch { seed: trace.meta.seed },
        _ => Law::Greedy,
    }
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

/// Index of the recorded expansion of the node at `rank` under expansion `parent` of a position.
#[must_use]
pub fn child(position: &Position, parent: u32, rank: u32) -> Option<u32> {
    let rest = position.expansions.iter().enumerate().skip(parent as usize + 1);
    rest.filter(|(_, e)| e.parent == parent && e.rank == rank).map(|(i, _)| i as u32).next()
}
