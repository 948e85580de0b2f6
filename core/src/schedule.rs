//! A whole run: admission up to the concurrency cap, rounds, ends.

use crate::batch::{Batch, Limits, Request, Seq};
use crate::error::{Error, Fault};
use crate::law::{End, Law};
use crate::log::{Phase, RoundLog};
use crate::round::{RoundSetup, RoundView, Stage, check_fit, run_round};
use crate::seams::{Admit, Engine, StepCost, TreePolicy};

/// What a run is made of, beside engine and policy.
#[derive(Clone, Copy)]
pub struct RunSetup<'a> {
    /// The most nodes per request and round; 0 = plain decoding.
    pub budget: u32,
    /// Sequences that may run at once.
    pub concurrency: u32,
    /// How trees are judged.
    pub law: &'a Law<'a>,
    /// What a step costs, for policies that ask.
    pub cost: Option<&'a dyn StepCost>,
}

/// What became of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The request's id.
    pub request: u64,
    /// Emitted tokens, the first one (chosen by the prefill) included.
    pub tokens: Vec<u32>,
    /// Verify steps.
    pub steps: u32,
    /// How it ended.
    pub end: Result<End, Fault>,
}

impl Response {
    /// Tokens that verify steps emitted: all but the first.
    #[must_use]
    pub fn decoded(&self) -> u32 {
        (self.tokens.len() as u32).saturating_sub(1)
    }
}

/// Runs every request to its end. Requests are admitted in list order into the lowest free slot, at most `concurrency` at
/// a time, each when the engine is ready for it. `sink` sees each round. Returns one response a request, in list order.
///
/// # Errors
/// [`Error::Refused`] before the first round when policy, law and engine do not fit; later only what ends the whole run.
/// [`Error::Stalled`] when nothing runs and the next request never becomes ready.
pub fn run<E: Engine>(
    engine: &mut E,
    policy: &mut dyn TreePolicy,
    requests: &[Request],
    setup: &RunSetup<'_>,
    sink: &mut dyn FnMut(&RoundView<'_>),
) -> Result<Vec<Response>, Error> {
    let info = engine.info();
    let limits = Limits {
        budget: setup.budget,
        depth: info.depth,
        width: info.width,
        concurrency: setup.concurrency.min(info.slots).max(1),
    };
    check_fit(policy.kind(), &policy.needs(&limits), setup.law, &info, setup.cost.is_some())?;
    let round_setup = RoundSetup { limits: &limits, law: setup.law, cost: setup.cost };
    let mut responses: Vec<Response> = requests
        .iter()
        .map(|r| Response { request: r.id, tokens: Vec::new(), steps: 0, end: Ok(End::Length) })
        .collect();
    let mut waiting = 0..requests.len();
    let mut idled = false;
    let mut batch = Batch::default();
    let mut stage = Stage::default();
    let mut round = 0;
    loop {
        engine.mark(Phase::Prefill);
        while (batch.len() as u32) < limits.concurrency
            && waiting.start < waiting.end
            && engine.ready(&requests[waiting.start])
        {
            let index = waiting.start;
            waiting.start += 1;
            idled = false;
            let slot = free_slot(&batch);
            match prefill(engine, slot, &requests[index], index, setup.law, info.context) {
                Ok((seq, end)) => {
                    responses[index].tokens.push(seq.root);
                    match end {
                        Some(end) => {
                            responses[index].end = Ok(end);
                            engine.release(slot);
                        }
                        None => {
                            let place = batch.seqs.partition_point(|s| s.slot < slot);
                            batch.seqs.insert(place, seq);
                        }
                    }
                }
                Err(fault) => responses[index].end = Err(fault),
            }
        }
        if batch.is_empty() {
            let Some(next) = requests.get(waiting.start) else { return Ok(responses) };
            if idled {
                return Err(Error::Stalled { request: next.id });
            }
            engine.idle();
            idled = true;
            continue;
        }
        engine.mark(Phase::Host);
        let log = run_round(engine, policy, &batch, &round_setup, &mut stage, round, sink)?;
        round += 1;
        advance(engine, &mut batch, &log, &mut responses, info.context);
        stage.reuse(engine, log);
    }
}

/// The lowest slot that no sequence of the batch (sorted by slot) holds.
fn free_slot(batch: &Batch) -> u32 {
    batch.iter().enumerate().find(|(i, s)| s.slot != *i as u32).map_or(batch.len() as u32, |(i, _)| i as u32)
}

/// Processes a prompt; returns the sequence, and its end where the first token already is one.
fn prefill<E: Engine>(
    engine: &mut E,
    slot: u32,
    request: &Request,
    index: usize,
    law: &Law<'_>,
    context: u32,
) -> Result<(Seq, Option<End>), Fault> {
    let tokens = request.prompt.len() as u32;
    if tokens == 0 {
        return Err(Fault::Request("the prompt is empty".into()));
    }
    if request.max_new == 0 {
        return Err(Fault::Request("`max_new` is 0: nothing to emit".into()));
    }
    if tokens > context {
        return Err(Fault::PromptTooLong { tokens, context });
    }
    loop {
        if let Admit::Done { root, start } = engine.admit(slot, request, law)? {
            let seq = Seq {
                slot,
                request: request.id,
                index,
                start,
                root,
                left: request.max_new - 1,
                eos: request.eos.as_slice().into(),
                sampling: request.sampling,
                round: 0,
            };
            let end = if request.eos.contains(&root) {
                Some(End::Eos)
            } else if seq.left == 0 {
                Some(End::Length)
            } else if start >= context {
                Some(End::Context)
            } else {
                None
            };
            return Ok((seq, end));
        }
    }
}

/// Moves every sequence on by what its round gave; ended ones leave the batch and free their slot.
fn advance<E: Engine>(engine: &mut E, batch: &mut Batch, log: &RoundLog, responses: &mut [Response], context: u32) {
    let mut entries = log.entries.iter();
    batch.seqs.retain_mut(|seq| {
        let Some(entry) = entries.next() else { return true };
        let response = &mut responses[seq.index];
        let end = match &entry.result {
            Err(fault) => Some(Err(fault.clone())),
            Ok(step) => {
                response.steps += 1;
                response.tokens.extend_from_slice(&step.emitted);
                seq.round += 1;
                seq.start += step.emitted.len() as u32;
                seq.left -= step.emitted.len() as u32;
                seq.root = step.last().unwrap_or(seq.root);
                let full = (seq.start >= context).then_some(End::Context);
                step.end.or(full).map(Ok)
            }
        };
        match end {
            None => true,
            Some(end) => {
                response.end = end;
                engine.release(seq.slot);
                false
            }
        }
    });
}
