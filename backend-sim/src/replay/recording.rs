//! A trace as a replay reads it: requests found by id, responses where they are placed.

use super::{END_TOKEN, UNLISTED};
use std::collections::BTreeMap;
use std::sync::Arc;
use treeline_core::trace::{Trace, TraceRequest};
use treeline_core::{End, Fault, Request, Seq};

/// The trace with its requests by id.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(super) trace: Arc<Trace>,
    index: Arc<BTreeMap<u64, usize>>,
    /// Tokens in front of every response, where they are not those of its own prompt.
    placed: Option<u32>,
}

impl Recording {
    pub fn new(trace: Arc<Trace>) -> Self {
        let index = trace.requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect();
        Self { trace, index: Arc::new(index), placed: None }
    }

    /// The same with every response behind `context` tokens.
    pub fn placed(self, context: u32) -> Self {
        Self { placed: Some(context), ..self }
    }

    /// Whether responses are not behind their own prompts.
    pub fn is_placed(&self) -> bool {
        self.placed.is_some()
    }

    /// Positions that an engine needs to hold every response as it was recorded.
    pub fn context(&self) -> u32 {
        let recorded = self.trace.meta.context;
        let Some(placed) = self.placed else { return recorded };
        // No request has less room behind its prompt than it had.
        let prompt = self.trace.requests.iter().map(|r| r.prompt_tokens).min().unwrap_or(0);
        placed.saturating_add(recorded.saturating_sub(prompt))
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The request with this id and its place in the trace.
    pub fn find(&self, id: u64) -> Option<(usize, &TraceRequest)> {
        let &place = self.index.get(&id)?;
        Some((place, self.trace.requests.get(place)?))
    }

    /// The same for a running sequence: most runs serve the trace's requests in its order, so the place is tried first.
    #[inline]
    pub fn place(&self, seq: &Seq) -> Option<(usize, &TraceRequest)> {
        let first = self.trace.requests.get(seq.index).filter(|r| r.id == seq.request);
        first.map(|r| (seq.index, r)).or_else(|| self.find(seq.request))
    }

    /// Root and start of a request that is admitted.
    pub fn admit(&self, request: &Request) -> Result<(u32, u32), Fault> {
        let (_, recorded) = self.find(request.id).ok_or_else(|| unknown(request.id))?;
        if request.max_new != recorded.max_new {
            // A longer response is not on record, a shorter one would have had shallower trees near its end.
            return Err(Fault::Request(format!(
                "request {} was recorded with `max_new` = {}, it cannot be replayed with {}",
                request.id, recorded.max_new, request.max_new
            )));
        }
        Ok((root(recorded), self.start(recorded)))
    }

    /// Absolute position of the first root of a response.
    #[inline]
    fn start(&self, request: &TraceRequest) -> u32 {
        self.placed.unwrap_or(request.prompt_tokens)
    }

    /// The request of `seq` and the index of its root among the emitted tokens.
    #[inline]
    pub fn locate(&self, seq: &Seq) -> Result<(&TraceRequest, usize), Fault> {
        let (_, request) = self.place(seq).ok_or_else(|| unknown(seq.request))?;
        let root = seq.start.checked_sub(self.start(request)).filter(|&i| i < request.emitted);
        root.map(|i| (request, i as usize)).ok_or(Fault::TraceEnd { position: seq.start })
    }
}

fn unknown(id: u64) -> Fault {
    Fault::Request(format!("the trace has no request {id}"))
}

/// The token chosen by the prefill.
fn root(request: &TraceRequest) -> u32 {
    let ends_at_once = request.emitted == 1 && request.end == End::Eos;
    let coded = if ends_at_once { END_TOKEN } else { UNLISTED };
    request.tokens.first().copied().unwrap_or(coded)
}
