//! What is in a trace file.

use super::{TraceFileError, read};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use treeline_core::trace::{Trace, TraceMeta};

/// A summary of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    /// What holds for the whole trace.
    pub meta: TraceMeta,
    /// Responses by domain.
    pub domains: BTreeMap<String, u64>,
    /// Responses.
    pub requests: u64,
    /// Positions with drafts: roots of a plain decode.
    pub positions: u64,
    /// Emitted tokens.
    pub tokens: u64,
    /// Recorded expansions of a conditional drafter.
    pub expansions: u64,
    /// Share of positions whose next token is the drafter's first choice.
    pub first_choice: Option<f64>,
    /// Share of positions whose next token is among the recorded ranks.
    pub listed: Option<f64>,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Bytes per position.
    pub bytes_per_position: Option<f64>,
}

/// Reads the file at `path` and sums it up.
///
/// # Errors
/// As [`read`].
pub fn info(path: &Path) -> Result<Info, TraceFileError> {
    let trace = read(path)?;
    let bytes = std::fs::metadata(path).map_err(|e| TraceFileError::io(path, e))?.len();
    Ok(Info::of(&trace, bytes))
}

impl Info {
    /// The summary of a trace whose file has `bytes` bytes.
    #[must_use]
    pub fn of(trace: &Trace, bytes: u64) -> Self {
        let mut domains = BTreeMap::new();
        for request in &trace.requests {
            *domains.entry(request.domain.clone()).or_insert(0) += 1;
        }
        let all = || trace.requests.iter().flat_map(|r| &r.positions);
        let first: Vec<Option<u32>> = all().filter_map(|p| p.truth.first().copied()).collect();
        let share = |n: usize| (!first.is_empty()).then(|| n as f64 / first.len() as f64);
        let positions = all().count() as u64;
        Self {
            meta: trace.meta.clone(),
            domains,
            requests: trace.requests.len() as u64,
            positions,
            tokens: trace.requests.iter().map(|r| u64::from(r.emitted)).sum(),
            expansions: all().map(|p| p.expansions.len() as u64).sum(),
            first_choice: share(first.iter().filter(|r| **r == Some(0)).count()),
            listed: share(first.iter().flatten().count()),
            bytes,
            bytes_per_position: (positions > 0).then(|| bytes as f64 / positions as f64),
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.meta;
        let kind = if m.conditional { "conditional" } else { "block" };
        let ids = if m.ids { "full trace (token ids kept)" } else { "rank trace (no token ids)" };
        writeln!(f, "{ids} of a {kind} drafter: {} levels, {} ranks, vocabulary {}", m.depth, m.width, m.vocab)?;
        writeln!(f, "temperature {}, seed {}, context {}", m.temperature, m.seed, m.context)?;
        writeln!(f, "source: {}", m.source)?;
        writeln!(f, "{} responses, {} tokens, {} positions", self.requests, self.tokens, self.positions)?;
        for (domain, n) in &self.domains {
            writeln!(f, "  {domain}: {n}")?;
        }
        if m.conditional {
            writeln!(f, "{} expansions", self.expansions)?;
        }
        if let (Some(first), Some(listed)) = (self.first_choice, self.listed) {
            writeln!(f, "next token: {:.1} % first choice, {:.1} % listed", first * 100.0, listed * 100.0)?;
        }
        match self.bytes_per_position {
            Some(per) => write!(f, "{} bytes, {per:.0} per position", self.bytes),
            None => write!(f, "{} bytes", self.bytes),
        }
    }
}
