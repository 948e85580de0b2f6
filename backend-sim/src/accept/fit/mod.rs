//! Fitting a process: to a recorded trace, to a public curve, to an engine's counters.
//!
//! A trace fixes every parameter but the overlap with experts, by likelihood or moments, each with a standard error. Rates
//! are those of the *walk* from committed root to committed root, as engines count them: averages over all positions
//! exceed it, because a walk passes over easy stretches in fewer steps.

mod curve;
mod likelihood;
mod newton;
mod spread;
mod walk;

pub use curve::{beta_binomial, from_counts, from_curve, independent_tau};

use super::chain::Penalties;
use super::parameter::{Drafts, Parameter, Rates};
use super::process::Process;
use likelihood::{penalties, rank_law, temper};
use spread::{exponents, spreads};
use thiserror::Error;
use treeline_core::trace::Trace;
use walk::Walked;

/// Why nothing can be fitted.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FitError {
    /// The trace is of a conditional drafter.
    #[error("a process is fitted to a block drafter's trace: this one's drafter is conditional")]
    Conditional,
    /// Too little of something.
    #[error("{0}")]
    TooLittle(String),
    /// A curve or counters contradict themselves.
    #[error("{0}")]
    Contradiction(String),
    /// The outcome is no process.
    #[error(transparent)]
    Process(#[from] super::ProcessError),
    /// The trace contradicts itself.
    #[error(transparent)]
    Trace(#[from] crate::TraceFault),
}

/// What the fit left of the data.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The process; each range is ±1.96 standard errors.
    pub process: Process,
    /// Standard error of each fitted parameter, by key.
    pub errors: Vec<(&'static str, f64)>,
    /// Roots of the walk that it rests on.
    pub roots: usize,
    /// Requests.
    pub requests: usize,
    /// Acceptance length of the chain on the walk, as counted.
    pub chain_tau: f64,
}

/// Fits a process called `name` to a block drafter's trace.
///
/// # Errors
/// [`FitError`]: a conditional trace, fewer than two requests, or a depth that no root of the walk reaches.
pub fn from_trace(trace: &Trace, name: &str) -> Result<Fit, FitError> {
    if trace.meta.conditional {
        return Err(FitError::Conditional);
    }
    crate::validate(trace)?;
    let walked = Walked::of(trace)?;
    let temper = temper(&walked);
    let rows = walked.rows(temper.value);
    let steepness = exponents(&rows);
    let ranks = rank_law(&rows, trace.meta.vocab, steepness.value);
    let chain = penalties(&rows);
    let spread =
        spreads(&rows, &Penalties { sibling: chain[0].value, unlisted: chain[1].value, recovery: chain[2].value });
    let text =
        format!("fitted to {} roots of {} requests; trace: {}", walked.roots.len(), walked.requests, trace.meta.source);
    let mut errors = Vec::new();
    let mut take = |key: &'static str, e: Estimate, least: f64, most: f64| {
        errors.push((key, e.error));
        let mut p = Parameter::fitted(e.value.clamp(least, most), e.error, &text);
        (p.low, p.high) = (p.low.clamp(least, most), p.high.clamp(least, most));
        p
    };
    let none = "a trace does not show experts; no published value";
    let process = Process {
        name: name.to_owned(),
        about: format!("what a rank trace shows of its pair ({text})"),
        drafter: Drafts::Block,
        width: trace.meta.width.max(2),
        vocab: trace.meta.vocab,
        conditional: Rates { values: walked.rates.clone(), errors: walked.rate_errors.clone(), source: text.clone() },
        request_spread: take("request_spread", spread.request, 0.0, 20.0),
        position_spread: take("position_spread", spread.position, 0.0, 20.0),
        confidence_spread: take("confidence_spread", spread.confidence, 0.0, 20.0),
        temper: take("temper", temper, 0.05, 20.0),
        rank_exponent: take("rank_exponent", ranks[0], 0.0, 20.0),
        rank_slope: take("rank_slope", ranks[1], 0.0, 20.0),
        rank_spread: take("rank_spread", steepness, 0.0, 20.0),
        rank_far: take("rank_far", ranks[2], 0.0, 1.0),
        after_sibling: take("after_sibling", chain[0], -30.0, 30.0),
        after_unlisted: take("after_unlisted", chain[1], -30.0, 30.0),
        recovery: take("recovery", chain[2], 0.0, 1.0),
        overlap_correlation: Parameter::new(0.0, 0.0, 0.0, none),
        overlap_spread: Parameter::new(0.0, 0.0, 0.0, none),
    };
    process.check()?;
    Ok(Fit { process, errors, roots: walked.roots.len(), requests: walked.requests, chain_tau: walked.tau })
}

/// A value with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}
