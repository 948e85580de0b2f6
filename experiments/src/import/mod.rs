//! What other engines count, as acceptance processes and cost curves.
//!
//! | input | from | gives |
//! | --- | --- | --- |
//! | Prometheus text | vLLM `/metrics` (one scrape, or the difference of two) | rates by position, with counts |
//! | log lines `SpecDecoding metrics: …` | vLLM | rates by position, with counts |
//! | JSON or JSON lines with acceptance histograms | SGLang `meta_info`, vLLM per-request metrics | rates by position, dispersion between requests |
//! | `avg_spec_accept_length`, `sglang:spec_accept_length`, `accept len:` log lines | SGLang | an acceptance length only |
//! | CSV `k,tau` | any published curve of chains | rates by position, with the errors of their rounding |
//! | CSV of step times | any engine | a `[cost.curve]` |
//!
//! A line that should hold something and cannot be read is an error with its number; nothing is guessed or left out.
//! Budgets are converted: SGLang's `num_draft_tokens` counts the root, vLLM's `num_speculative_tokens` does not.

mod histogram;
mod lines;
mod model;
mod prometheus;
mod steps;

pub use steps::step_curve;

use serde_json::Value;
use std::path::{Path, PathBuf};
use thiserror::Error;
use treeline_sim::accept::fit::{self, FitError};
use treeline_sim::accept::{Parameter, Process, ProcessError, Rates};

/// Why a file cannot be imported; names it.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The system refused.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// One line is wrong.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong and what was expected.
        why: String,
    },
    /// The file as a whole does not do.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong or missing.
        why: String,
    },
    /// The outcome is no process.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Something wrong in a text, before the file is named.
pub(crate) struct Wrong {
    /// Line from 1; 0 = the text as a whole.
    line: usize,
    why: String,
}

impl Wrong {
    fn at(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }

    fn whole(why: impl Into<String>) -> Self {
        Self::at(0, why)
    }

    fn of(self, path: &Path) -> ImportError {
        match self.line {
            0 => ImportError::Content { path: path.to_owned(), why: self.why },
            line => ImportError::Line { path: path.to_owned(), line, why: self.why },
        }
    }
}

/// What a source of acceptance counted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counters {
    /// Verify steps that had a draft.
    pub drafts: u64,
    /// Steps that accepted the token at position 1, 2, ….
    pub accepted: Vec<u64>,
    /// Per request: steps that accepted the first token, and steps.
    pub requests: Vec<(u64, u64)>,
    /// Acceptance length, where nothing finer was counted.
    pub tau: Option<f64>,
    /// Rows of a verify step, the root counted, where the source says so.
    pub rows: Option<u32>,
    /// Remarks that belong into the result's source.
    pub notes: Vec<String>,
}

/// The file's text; not a pipe, not a device, at most 256 MiB: of more counters give an excerpt.
fn text(path: &Path) -> Result<String, ImportError> {
    let read = |e: treeline_sim::text::TextError| ImportError::Read { path: path.to_owned(), why: e.to_string() };
    treeline_sim::text::read(path, 256 << 20).map_err(read)
}

/// Reads vLLM's counters: Prometheus text, log lines, or per-request JSON. With `before`, an earlier scrape, the difference.
/// `model` chooses among several that were counted; `None` = there is only one.
///
/// # Errors
/// A line that cannot be read, counters that are missing or fall, counts of several models.
pub fn vllm(path: &Path, before: Option<&Path>, model: Option<&str>) -> Result<Counters, ImportError> {
    let now = text(path)?;
    let named = |w: Wrong| w.of(path);
    if let Some(before) = before {
        let earlier = prometheus::counters(&text(before)?, model).map_err(|w| w.of(before))?;
        return prometheus::difference(&prometheus::counters(&now, model).map_err(named)?, &earlier).map_err(named);
    }
    match kind(&now) {
        Kind::Json => histogram::counters(&now, model).map_err(named),
        Kind::Log => unnamed(model).and_then(|()| lines::vllm(&now)).map_err(named),
        Kind::Prometheus => prometheus::counters(&now, model).map_err(named),
    }
}

/// Reads SGLang's counters: JSON (`meta_info` of responses, server info), Prometheus text, or log lines. `model` as in
/// [`vllm`].
///
/// # Errors
/// A line that cannot be read, nothing about acceptance in the file, or counts of several models.
pub fn sglang(path: &Path, model: Option<&str>) -> Result<Counters, ImportError> {
    let now = text(path)?;
    let named = |w: Wrong| w.of(path);
    match kind(&now) {
        Kind::Json => histogram::counters(&now, model).map_err(named),
        Kind::Log => unnamed(model).and_then(|()| lines::sglang(&now)).map_err(named),
        Kind::Prometheus => prometheus::accept_length(&now, model).map_err(named),
    }
}

/// Log lines say nothing of the model that they are about.
fn unnamed(model: Option<&str>) -> Result<(), Wrong> {
    match model {
        None => Ok(()),
        Some(_) => Err(Wrong::whole("is a log, whose lines name no model: leave --model out")),
    }
}

enum Kind {
    Json,
    Log,
    Prometheus,
}

fn kind(text: &str) -> Kind {
    if text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<Value>(text.lines().find(|l| !l.trim().is_empty()).unwrap_or("")).is_ok()
        || serde_json::from_str::<Value>(text).is_ok()
    {
        Kind::Json
    } else if text.contains("SpecDecoding metrics:") || text.contains("accept len:") {
        Kind::Log
    } else {
        Kind::Prometheus
    }
}

/// A process called `name` with the rates of `counters`; all else is `like`'s. Where only an acceptance length was counted,
/// the shape of `like` is moved to it, as a chain of `rows` − 1 tokens.
///
/// # Errors
/// Counters that contradict themselves; an acceptance length without the rows of a step.
pub fn to_process(
    counters: &Counters,
    name: &str,
    like: &Process,
    rows: Option<u32>,
    path: &Path,
) -> Result<Process, ImportError> {
    let content = |why: String| ImportError::Content { path: path.to_owned(), why };
    // Of a path the name alone: a file that names a machine's folders cannot be passed on.
    let file = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let notes: String = counters.notes.iter().map(|n| format!("; {n}")).collect();
    let mut process = match counters.tau {
        None => {
            let steps = counters.drafts;
            let source = format!("{file}: {steps} verify steps, accepted by position {:?}{notes}", counters.accepted);
            let rates = fit::from_counts(counters.drafts, &counters.accepted, &source);
            with_rates(like, rates.map_err(|e: FitError| content(e.to_string()))?)
        }
        Some(tau) => {
            let rows = rows.or(counters.rows).filter(|r| *r >= 2).ok_or_else(|| {
                content("it holds an acceptance length only: give --draft-tokens, the engine's number of rows with the root counted".into())
            })?;
            let mut moved = like.to_tau(tau, (rows - 1).min(like.depth()))?;
            moved.conditional.source =
                format!("{file}: τ {tau} of a chain of {} tokens{notes}; {}", rows - 1, moved.conditional.source);
            moved
        }
    };
    if counters.requests.len() >= 8 {
        let (_, logits) = fit::beta_binomial(&counters.requests).map_err(|e| content(e.to_string()))?;
        let source =
            format!("{file}: Beta-Binomial over the first position of {} requests, in logits", counters.requests.len());
        let mut spread = Parameter::fitted(logits.value, logits.error, &source);
        spread.low = spread.low.max(0.0);
        process.request_spread = spread;
    }
    process.name = name.to_owned();
    process.about = format!("rates of {file}; spreads, ranks and the rest of process `{}`", like.name);
    process.check()?;
    Ok(process)
}

/// A published curve τ(k) as a process: lines `k,tau` with that header.
///
/// # Errors
/// A line that is no such pair, or a curve that is none of a chain.
pub fn curve(path: &Path, name: &str, like: &Process) -> Result<Process, ImportError> {
    let (points, rounding) = steps::curve_points(&text(path)?).map_err(|w| w.of(path))?;
    let file = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let rates = fit::from_curve(
        &points,
        rounding,
        &format!("{file}: exact by differences; errors of a rounding to {rounding}"),
    );
    let rates = rates.map_err(|e| ImportError::Content { path: path.to_owned(), why: e.to_string() })?;
    let mut process = with_rates(like, rates);
    process.name = name.to_owned();
    process.about = format!("chain curve of {file}; spreads, ranks and the rest of process `{}`", like.name);
    process.check()?;
    Ok(process)
}

fn with_rates(like: &Process, rates: Rates) -> Process {
    Process { conditional: rates, ..like.clone() }
}

#[cfg(test)]
mod tests;
