//! The replay of a trace as a source of rounds.

use super::plan::sha256;
use super::source::{Facts, Source, decimal};
use crate::config::Replay;
use crate::trace;
use anyhow::Context as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use treeline_core::trace::Trace;
use treeline_core::{Law, Needs, Request};
use treeline_sim::{ReplayEngine, check_policy, law, requests};

/// A trace, ready to be replayed by any number of engines.
pub(super) struct SimSource {
    trace: Arc<Trace>,
    /// Index of each request by id.
    index: BTreeMap<u64, usize>,
    facts: Facts,
}

impl SimSource {
    /// Reads the trace of `replay`.
    pub fn load(replay: &Replay) -> anyhow::Result<Self> {
        let path = &replay.trace.path;
        let trace = trace::read(path)?;
        anyhow::ensure!(!trace.requests.is_empty(), "{}: holds no request", path.display());
        let digest = sha256(&std::fs::read(path).with_context(|| path.display().to_string())?);
        Ok(Self::new(trace, &replay.trace.written, &digest))
    }

    /// A source over a trace in memory; `name` and `digest` say which.
    pub fn new(trace: Trace, name: &str, digest: &str) -> Self {
        let m = &trace.meta;
        let kind = if m.conditional { "conditional drafter" } else { "block drafter" };
        let identity = json!({ "treeline": env!("CARGO_PKG_VERSION"), "backend": "sim", "trace": digest });
        let facts = Facts {
            backend: "sim",
            hardware: None,
            gpu: None,
            deployment: Some(m.source.clone()),
            acceptance: format!("replay of {name}, plain decoding with a {kind}, exact"),
            workload: name.to_owned(),
            context: m.context,
            ranks: 1,
            width: m.width,
            depth: m.depth,
            temperatures: vec![decimal(m.temperature)],
            clock: false,
            tokens: m.ids,
            knows_truth: !m.conditional,
            tau: "replayed",
            tier: "none",
            identity,
            manifest: json!({ "trace": { "file": name, "sha256": digest, "meta": m } }),
            notes: vec!["a replay has no clock: no time is given".to_owned()],
            warnings: Vec::new(),
        };
        let index = trace.requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect();
        Self { trace: Arc::new(trace), index, facts }
    }
}

impl Source for SimSource {
    type Engine = ReplayEngine;

    fn engine(&self, slots: u32, _budget: u32) -> anyhow::Result<ReplayEngine> {
        Ok(ReplayEngine::new(self.trace.clone(), slots)?)
    }

    fn requests(&self, _temperature: f64) -> Vec<Request> {
        requests(&self.trace)
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        law(&self.trace)
    }

    fn domain(&self, index: usize) -> &str {
        self.trace.requests.get(index).map_or("", |r| &r.domain)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn check(&self, kind: &str, needs: &Needs) -> anyhow::Result<()> {
        Ok(check_policy(kind, needs, &self.trace)?)
    }

    fn truth(&self, request: u64, start: u32) -> Option<&[Option<u32>]> {
        let request = self.trace.requests.get(*self.index.get(&request)?)?;
        let at = start.checked_sub(request.prompt_tokens)?;
        request.positions.get(at as usize).map(|p| p.truth.as_slice())
    }
}
