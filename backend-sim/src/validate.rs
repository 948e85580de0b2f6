//! What must hold for a trace before anything is replayed from it: files may be damaged or written by others.

use std::collections::BTreeSet;
use thiserror::Error;
use treeline_core::End;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};

/// Deepest level and widest row of a trace: far beyond any drafter, small enough to size buffers by.
pub const MAX_DEPTH: u32 = 4096;

/// Why a trace cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceFault {
    /// Something holds for no trace at all.
    #[error("trace: {0}")]
    Meta(String),
    /// One request contradicts itself.
    #[error("trace, request {request}: {why}")]
    Request {
        /// Its id.
        request: u64,
        /// What is wrong.
        why: String,
    },
    /// One position contradicts itself, or its request.
    #[error("trace, request {request}, position {position}: {why}")]
    Position {
        /// Id of the request.
        request: u64,
        /// Index of the position in the request, 0 = behind the first emitted token.
        position: usize,
        /// What is wrong.
        why: String,
    },
}

/// Checks a trace from its outermost claims to every row.
///
/// # Errors
/// The first [`TraceFault`] found.
pub fn validate(trace: &Trace) -> Result<(), TraceFault> {
    let meta = &trace.meta;
    let refuse = |why: &str| Err(TraceFault::Meta(why.to_owned()));
    if meta.depth == 0 || meta.depth > MAX_DEPTH {
        return refuse(&format!("depth {} is not within 1 and {MAX_DEPTH}", meta.depth));
    }
    if meta.width == 0 {
        return refuse("width is 0: no candidates");
    }
    if !meta.temperature.is_finite() || meta.temperature < 0.0 {
        return refuse("the temperature is negative or no number");
    }
    let mut seen = BTreeSet::new();
    for request in &trace.requests {
        if !seen.insert(request.id) {
            return Err(TraceFault::Request { request: request.id, why: "its id occurs twice".into() });
        }
        check_request(meta, request).map_err(|why| TraceFault::Request { request: request.id, why })?;
        for (position, at) in request.positions.iter().enumerate() {
            check_position(meta, request, position, at).map_err(|why| TraceFault::Position {
                request: request.id,
                position,
                why,
            })?;
        }
    }
    Ok(())
}

fn check_request(meta: &TraceMeta, r: &TraceRequest) -> Result<(), String> {
    if r.emitted == 0 {
        return Err("it emitted nothing, not even the first token".into());
    }
    if r.prompt_tokens == 0 {
        return Err("its prompt is empty".into());
    }
    if r.emitted > r.max_new {
        return Err(format!("it emitted {} tokens, more than its limit of {}", r.emitted, r.max_new));
    }
    let last = u64::from(r.prompt_tokens) + u64::from(r.emitted) - 1;
    if last > u64::from(meta.context) {
        return Err(format!("its last token lies at position {last}, the context holds {}", meta.context));
    }
    // Every emitted token but the last was a root.
    if r.positions.len() as u64 != u64::from(r.emitted) - 1 {
        return Err(format!("{} positions for {} emitted tokens", r.positions.len(), r.emitted));
    }
    let tokens = if meta.ids { r.emitted as usize } else { 0 };
    if r.tokens.len() != tokens {
        return Err(format!("{} token ids where {tokens} belong", r.tokens.len()));
    }
    match r.end {
        End::Length if r.emitted < r.max_new => {
            Err(format!("it ended by length after {} of {} tokens", r.emitted, r.max_new))
        }
        End::Context if last < u64::from(meta.context) => Err("it ended by context before the context was full".into()),
        _ => Ok(()),
    }
}

fn check_position(meta: &TraceMeta, r: &TraceRequest, index: usize, p: &Position) -> Result<(), String> {
    // Tokens behind this root: positions.len() = emitted − 1, so there is at least one.
    let behind = r.emitted as usize - 1 - index;
    if meta.conditional {
        if !(p.ends.is_empty() && p.logp.is_empty() && p.ids.is_empty()) {
            return Err("a conditional trace keeps its rows in the expansions".into());
        }
        return check_expansions(meta, p, behind);
    }
    if !p.expansions.is_empty() {
        return Err("a block trace has no expansions".into());
    }
    if p.ends.len() > meta.depth as usize {
        return Err(format!("{} rows, the trace has {} levels", p.ends.len(), meta.depth));
    }
    if p.ends.windows(2).any(|w| w[0] > w[1]) || p.ends.last().map_or(0, |&e| e as usize) != p.logp.len() {
        return Err("the ends of its rows do not cover its candidates".into());
    }
    if meta.ids && p.ids.len() != p.logp.len() {
        return Err(format!("{} token ids for {} candidates", p.ids.len(), p.logp.len()));
    }
    let due = p.ends.len().min(behind);
    if p.truth.len() != due {
        return Err(format!("{} true ranks where {due} belong", p.truth.len()));
    }
    for (i, truth) in p.truth.iter().enumerate() {
        check_truth(i, *truth, p.row(i as u32 + 1).len())?;
    }
    (1..=p.ends.len() as u32).try_for_each(|d| check_row(meta, d, p.row(d)))
}

fn check_expansions(meta: &TraceMeta, p: &Position, behind: usize) -> Result<(), String> {
    let mut depths: Vec<u32> = Vec::with_capacity(p.expansions.len());
    let mut edges = BTreeSet::new();
    for (i, e) in p.expansions.iter().enumerate() {
        let depth = if i == 0 {
            if e.parent != 0 || e.rank != 0 {
                return Err("the first expansion is not the root".into());
            }
            0
        } else {
            let parent = e.parent as usize;
            if parent >= i {
                return Err(format!("expansion {i}: parent {parent} is not before it"));
            }
            if e.rank as usize >= p.expansions[parent].logp.len() {
                return Err(format!("expansion {i}: its parent lists no rank {}", e.rank));
            }
            if !edges.insert((e.parent, e.rank)) {
                return Err(format!("expansion {i}: rank {} of node {parent} was expanded before", e.rank));
            }
            depths[parent] + 1
        };
        if depth >= meta.depth {
            return Err(format!("expansion {i} lies at depth {depth}, the trace has {} levels", meta.depth));
        }
        depths.push(depth);
        if meta.ids && e.ids.len() != e.logp.len() {
            return Err(format!("expansion {i}: {} token ids for {} candidates", e.ids.len(), e.logp.len()));
        }
        check_row(meta, depth + 1, &e.logp)?;
    }
    if p.truth.len() > behind.min(meta.depth as usize) {
        return Err(format!("{} true ranks, {behind} tokens follow", p.truth.len()));
    }
    let mut at = (!p.expansions.is_empty()).then_some(0);
    for (i, truth) in p.truth.iter().enumerate() {
        let Some(node) = at else { return Err(format!("true rank {i} lies behind a node that was not expanded")) };
        check_truth(i, *truth, p.expansions[node as usize].logp.len())?;
        at = truth.and_then(|rank| crate::replay::child(p, node, rank));
    }
    Ok(())
}

fn check_truth(i: usize, truth: Option<u32>, row: usize) -> Result<(), String> {
    match truth {
        Some(rank) if rank as usize >= row => Err(format!("true rank {rank} at depth {}, the row lists {row}", i + 1)),
        _ => Ok(()),
    }
}

fn check_row(meta: &TraceMeta, depth: u32, row: &[f32]) -> Result<(), String> {
    if row.len() > meta.width as usize {
        return Err(format!("the row at depth {depth} lists {} candidates, the width is {}", row.len(), meta.width));
    }
    // Most rows are right, and one pass without a way out in its middle says so.
    let falls = row.windows(2).fold(true, |falls, w| falls & (w[0] >= w[1]));
    if falls && row.first().is_none_or(|&x| x < f32::INFINITY) {
        return Ok(());
    }
    if let Some(x) = row.iter().find(|x| x.is_nan() || **x == f32::INFINITY) {
        return Err(format!("the row at depth {depth} has the log-probability {x}"));
    }
    if row.windows(2).any(|w| w[0] < w[1]) {
        return Err(format!("the row at depth {depth} is not ordered best first"));
    }
    Ok(())
}
