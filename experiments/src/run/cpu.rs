//! Real models on the CPU as a source of rounds.

use super::machine;
use super::models::{Backing, Served};
use super::source::{Facts, Source};
use crate::config::{Drafter, Experiment, Live};
use serde_json::Value;
use treeline_core::{Engine as _, Law, Request};
use treeline_cpu::{CpuEngine, CpuPair, DrafterSource, EngineSettings};

/// A target and a drafter with their prompts. Cells share the weights.
pub(super) struct CpuSource {
    pair: CpuPair,
    served: Served,
    facts: Facts,
}

impl CpuSource {
    /// Loads models and prompts.
    ///
    /// # Errors
    /// What the checkpoints, the tokenizer or the prompt files refuse.
    pub fn load(experiment: &Experiment, live: &Live) -> anyhow::Result<Self> {
        let pair = CpuPair::load(&live.target.path, &drafter(&live.drafter))?;
        let served = Served::load(experiment, live, pair.target().config())?;
        let facts = served.facts(Backing {
            backend: "cpu",
            hardware: machine::line(),
            gpu: None,
            drafter: pair.describe_drafter(),
            manner: "f32".to_owned(),
            identity: Value::Null,
            depth: engine(&pair, live, 1)?.info().depth,
            clock: true,
            notes: Vec::new(),
        })?;
        Ok(Self { pair, served, facts })
    }
}

/// The drafter in the engine's terms.
fn drafter(drafter: &Drafter) -> DrafterSource {
    match drafter {
        Drafter::Dflash { checkpoint, .. } => DrafterSource::Dflash { dir: checkpoint.path.clone() },
        Drafter::Autoregressive { checkpoint, depth, .. } => {
            DrafterSource::Autoregressive { dir: checkpoint.path.clone(), depth: *depth }
        }
        Drafter::Ngram { depth, order, .. } => DrafterSource::NGram { order: *order, depth: *depth },
    }
}

fn engine(pair: &CpuPair, live: &Live, slots: u32) -> anyhow::Result<CpuEngine> {
    Ok(pair.engine(EngineSettings { slots, context: live.context, chunk: live.prefill_chunk })?)
}

impl Source for CpuSource {
    type Engine = CpuEngine;

    fn engine(&self, slots: u32, _budget: u32) -> anyhow::Result<CpuEngine> {
        engine(&self.pair, &self.served.live, slots)
    }

    fn requests(&self, temperature: f64) -> Vec<Request> {
        self.served.requests(temperature)
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        self.served.law()
    }

    fn domain(&self, index: usize) -> &str {
        self.served.domain(index)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
