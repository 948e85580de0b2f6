//! What stands in for models without meaning (synthetic weights): drafts and truth from a trace.
//!
//! A trace of plain decoding with a block drafter holds, for every emitted token, the drafter's rows behind it and the rank of
//! the true token in each. Where it keeps no token ids, the candidate of rank r gets the id r.

use crate::error::{CudaError, Result};
use std::collections::BTreeMap;
use treeline_core::trace::{Position, Trace, TraceRequest};
use treeline_core::{Candidate, End, Request, Sampling, Truth};

/// A trace, ready to be looked up by request and position.
#[derive(Debug)]
pub struct Recorded {
    trace: Trace,
    index: BTreeMap<u64, usize>,
    /// Stands for a token that came and that the drafter did not list, and for the end of a response. No candidate has them.
    unlisted: u32,
    end: u32,
}

impl Recorded {
    /// For models of `vocab` tokens. With `prompt`, every prompt has that length and not the recorded one.
    ///
    /// # Errors
    /// [`CudaError::Model`]: a conditional drafter's trace, or ids that the vocabulary has no room for.
    pub fn new(mut trace: Trace, vocab: u32, prompt: Option<u32>) -> Result<Self> {
        let refuse = |why: String| Err(CudaError::Model(why));
        if trace.meta.conditional {
            return refuse("the trace is of a conditional drafter: synthetic weights take a block drafter's".into());
        }
        let ids = trace.requests.iter().flat_map(|r| &r.positions).flat_map(|p| &p.ids);
        let highest = ids.copied().max().map_or(trace.meta.width, |id| id.max(trace.meta.width));
        let tokens = trace.requests.iter().flat_map(|r| &r.tokens).copied().max().unwrap_or(0);
        if highest.max(tokens) >= vocab.saturating_sub(2) {
            return refuse(format!("the trace has token {}; the synthetic model has {vocab}", highest.max(tokens)));
        }
        if let Some(prompt) = prompt {
            trace.requests.iter_mut().for_each(|r| r.prompt_tokens = prompt);
        }
        let index = trace.requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect();
        Ok(Self { trace, index, unlisted: vocab - 2, end: vocab - 1 })
    }

    /// The trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The requests of the trace, with prompts of tokens that mean nothing.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        let token =
            |r: &TraceRequest, i: u32| i.wrapping_mul(31).wrapping_add((r.id as u32).wrapping_mul(17)) % self.unlisted;
        let request = |r: &TraceRequest| Request {
            id: r.id,
            prompt: (0..r.prompt_tokens).map(|i| token(r, i)).collect(),
            max_new: r.max_new,
            eos: if r.end == End::Eos { vec![self.end] } else { Vec::new() },
            sampling: Sampling::GREEDY,
        };
        self.trace.requests.iter().map(request).collect()
    }

    /// The request, and the number of the emitted token at absolute position `start`.
    fn locate(&self, request: u64, start: u32) -> Option<(&TraceRequest, usize)> {
        let request = self.trace.requests.get(*self.index.get(&request)?)?;
        Some((request, start.checked_sub(request.prompt_tokens)? as usize))
    }

    /// Per depth: the rank of the true token in its row behind a recorded root.
    #[must_use]
    pub fn truth(&self, request: u64, start: u32) -> Option<&[Option<u32>]> {
        self.position(request, start).map(|p| p.truth.as_slice())
    }

    /// Where the rows behind a root are.
    pub(crate) fn position(&self, request: u64, start: u32) -> Option<&Position> {
        let (request, at) = self.locate(request, start)?;
        request.positions.get(at)
    }

    /// Candidates at `depth` (1-based) behind a recorded root.
    pub(crate) fn row(position: &Position, depth: u32) -> impl Iterator<Item = Candidate> + '_ {
        let ids = position.row_ids(depth);
        let id = move |rank: usize| ids.get(rank).copied().unwrap_or(rank as u32);
        position.row(depth).iter().enumerate().map(move |(rank, &logp)| Candidate { token: id(rank), logp })
    }
}

impl Truth for Recorded {
    fn token(&self, request: u64, root: u32, depth: u32) -> Option<u32> {
        let (request, at) = self.locate(request, root)?;
        let came = at + depth as usize;
        if came >= request.emitted as usize {
            return None;
        }
        if came + 1 == request.emitted as usize && request.end == End::Eos {
            return Some(self.end);
        }
        if let Some(&token) = request.tokens.get(came) {
            return Some(token);
        }
        let ranks = request.positions.get(at).map(|p| &p.truth);
        let rank = depth.checked_sub(1).and_then(|level| ranks?.get(level as usize).copied().flatten());
        Some(rank.unwrap_or(self.unlisted))
    }
}
