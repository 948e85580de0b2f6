//! Recording: plain decoding, with the drafter asked at every position.
//!
//! The recorder is a tree policy that looks at everything and proposes nothing, so the trajectory is the target's own. It
//! asks as deep as any policy could at that position, so near a response's end the rows stop where a live run's would.

mod policy;

use policy::Recorder;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
use treeline_core::{Engine, Error, Fault, Law, Request, Response, RunSetup, run};

/// What to record of a conditional drafter beside the rows that every policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frontier {
    /// Most probable nodes expanded per level, the best path always among them; 1 = that path alone.
    pub beam: u32,
    /// Expansions per position, root included: what the beam leaves goes to the most probable unexpanded nodes of any
    /// level.
    pub expansions: u32,
}

impl Default for Frontier {
    /// Enough for the usual settings: 8 nodes a level, 96 in all.
    fn default() -> Self {
        Self { beam: 8, expansions: 96 }
    }
}

/// What a recording is made with.
#[derive(Clone, Copy)]
pub struct RecordSetup<'a> {
    /// Ranks kept per row, at most the engine's.
    pub width: u32,
    /// For conditional drafters.
    pub frontier: Frontier,
    /// How the target's tokens are chosen: greedy or sample-and-match.
    pub law: &'a Law<'a>,
    /// Requests decoded together.
    pub concurrency: u32,
    /// Domain of each request, in order.
    pub domains: &'a [String],
    /// Where the trace comes from, in words.
    pub source: &'a str,
}

/// A finished recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The requests that ended in good order, token ids kept.
    pub trace: Trace,
    /// The others: id and why they ended.
    pub faults: Vec<(u64, Fault)>,
}

/// Decodes every request plainly and records what the drafter proposed behind each token. All requests must sample at one
/// temperature. `progress` is called after every round with the tokens it gave.
///
/// # Errors
/// A law that needs drawn candidates (its verdict depends on the tree, so there is no trajectory to record), requests of
/// different temperatures, or what ends a whole run.
pub fn record<E: Engine>(
    engine: &mut E,
    requests: &[Request],
    setup: &RecordSetup<'_>,
    progress: &mut dyn FnMut(u32),
) -> Result<Recorded, Error> {
    let info = engine.info();
    let temperature = match setup.law {
        Law::Greedy => 0.0,
        Law::SampleMatch { .. } => requests.first().map_or(0.0, |r| r.sampling.temperature),
        _ => return Err(Error::Refused(format!("law `{}` leaves no trajectory to record", setup.law.kind()))),
    };
    let tempered = |r: &&Request| r.sampling.temperature != temperature && !matches!(setup.law, Law::Greedy);
    if let Some(other) = requests.iter().find(tempered) {
        return Err(Error::Refused(format!("request {} has another temperature than the first", other.id)));
    }
    let mut policy = Recorder::new(setup, &info, requests.len());
    let run_setup = RunSetup { budget: info.depth, concurrency: setup.concurrency, law: setup.law, cost: None };
    let mut sink = |view: &treeline_core::RoundView<'_>| progress(view.log.tokens());
    let responses = run(engine, &mut policy, requests, &run_setup, &mut sink)?;
    let meta = TraceMeta {
        depth: info.depth,
        width: policy.width,
        conditional: info.conditional,
        ids: true,
        vocab: info.vocab,
        context: info.context,
        temperature,
        seed: setup.law.seed(),
        source: setup.source.to_owned(),
    };
    let mut recorded = Recorded { trace: Trace { meta, requests: Vec::new() }, faults: Vec::new() };
    for (i, (request, response)) in requests.iter().zip(responses).enumerate() {
        let positions = std::mem::take(&mut policy.positions[i]);
        match finish(request, response, positions, setup.domains.get(i)) {
            Ok(request) => recorded.trace.requests.push(request),
            Err(fault) => recorded.faults.push((request.id, fault)),
        }
    }
    Ok(recorded)
}

/// Fills in where the truth ranked, now that the response is complete.
fn finish(
    request: &Request,
    response: Response,
    mut positions: Vec<Position>,
    domain: Option<&String>,
) -> Result<TraceRequest, Fault> {
    let end = response.end?;
    let tokens = response.tokens;
    for (i, position) in positions.iter_mut().enumerate() {
        position.truth = truth(position, tokens.get(i + 1..).unwrap_or(&[]));
    }
    Ok(TraceRequest {
        id: request.id,
        domain: domain.cloned().unwrap_or_default(),
        prompt_tokens: request.prompt.len() as u32,
        max_new: request.max_new,
        emitted: tokens.len() as u32,
        tokens,
        positions,
        end,
    })
}

/// Ranks of the tokens that followed, depth by depth.
fn truth(position: &Position, followed: &[u32]) -> Vec<Option<u32>> {
    let rank = |ids: &[u32], token: u32| ids.iter().position(|&id| id == token).map(|r| r as u32);
    if position.expansions.is_empty() {
        let depths = 1..=position.ends.len() as u32;
        return followed.iter().zip(depths).map(|(&t, d)| rank(position.row_ids(d), t)).collect();
    }
    let mut out = Vec::new();
    let mut node = Some(0);
    for &token in followed {
        let Some(expansion) = node.and_then(|n: u32| position.expansions.get(n as usize)) else { break };
        let rank = rank(&expansion.ids, token);
        out.push(rank);
        node = rank.and_then(|r| crate::replay::child(position, node.unwrap_or(0), r));
    }
    out
}
