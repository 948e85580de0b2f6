//! Synthetic weights at real shapes on a GPU as a source of rounds: times are measured, acceptance is a trace's.

use super::cuda::{in_our_words, meter};
use super::plan::sha256;
use super::source::{Facts, Source, decimal};
use super::warnings::RunWarning;
use crate::config::{Experiment, Location, Synthetic};
use crate::trace;
use anyhow::Context as _;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use treeline_checkpoint::{DflashConfig, TargetConfig};
use treeline_core::trace::TraceRequest;
use treeline_core::{Engine as _, Law, Request};
use treeline_cuda::device::Gpu;
use treeline_cuda::engine::{
    CudaEngine, CudaPair, CudaSettings, MOST_CHUNK, MOST_NODES, MOST_WIDTH, Recorded, RoutingModel, SyntheticPair,
};
use treeline_cuda::model::{Shard, Synthetic as Shapes};
use treeline_cuda::probe::Meter;

/// The name under which shapes of Kimi K2.6 and its drafter are known.
const KIMI: &str = "kimi-k2.6";

/// Models of synthetic weights on one GPU, and the trace that stands in for their words.
pub(super) struct SyntheticSource {
    pair: CudaPair,
    recorded: Arc<Recorded>,
    what: Synthetic,
    /// The largest tree that engines have room for.
    nodes: u32,
    meter: Option<Meter>,
    facts: Facts,
}

impl SyntheticSource {
    /// Opens the GPU, reads the trace and fills the weights.
    ///
    /// # Errors
    /// No such GPU, a trace or config that cannot be used, memory.
    pub fn load(experiment: &Experiment, what: &Synthetic) -> anyhow::Result<Self> {
        let gpu = match what.cuda.emulated {
            true => Gpu::emulated()?,
            false => Gpu::open(what.cuda.gpu as usize)?,
        };
        let path = &what.trace.path;
        let recording = trace::read(path)?;
        anyhow::ensure!(!recording.requests.is_empty(), "{}: holds no request", path.display());
        let digest = sha256(&std::fs::read(path).with_context(|| path.display().to_string())?);
        let (config, drafter) = configs(what)?;
        let recorded = Recorded::new(recording, config.vocab as u32, what.prompt);
        let recorded = Arc::new(recorded.with_context(|| path.display().to_string())?);
        let layers = what.layers.map_or(config.layers.len(), |n| n as usize);
        let shard = Shard { rank: what.rank as usize, ranks: what.ranks as usize };
        let target = Shapes { config, layers, shard, positions: what.context as usize, seed: experiment.seed };
        let routing = RoutingModel { repeat: what.expert_overlap, seed: experiment.seed };
        let filled = what.prompt.is_some();
        let pair = SyntheticPair { target, drafter, recorded: recorded.clone(), routing, filled };
        let pair = CudaPair::synthetic(&gpu, &pair).map_err(in_our_words)?;
        let budgets = experiment.policies.iter().flat_map(|p| p.budgets.iter().copied());
        let nodes = budgets.max().unwrap_or(0).min(MOST_NODES);
        let depth = engine(&pair, what, 1, 0)?.info().depth;
        let facts = facts(&pair, &recorded, what, &digest, depth, layers);
        let meter = meter(&what.cuda);
        Ok(Self { pair, recorded, what: what.clone(), nodes, meter, facts })
    }
}

/// Shapes of target and drafter.
fn configs(what: &Synthetic) -> anyhow::Result<(TargetConfig, DflashConfig)> {
    let target = match what.target.written.as_str() {
        KIMI => TargetConfig::from_json(include_str!("presets/kimi-k2.6.json"), Path::new(KIMI))?,
        _ => TargetConfig::from_dir(&what.target.path)?,
    };
    let mut drafter = match what.drafter.written.as_str() {
        KIMI => DflashConfig::from_json(include_str!("presets/kimi-k2.6-dflash.json"), Path::new(KIMI))?,
        _ => DflashConfig::from_dir(&what.drafter.path)?,
    };
    let all = target.layers.len();
    if let Some(layers) = what.layers.map(|n| n as usize).filter(|n| *n < all) {
        // Tapped layers of a shortened target: as deep in what is left of it.
        drafter.target_layers.iter_mut().for_each(|id| *id = *id * layers / all);
        drafter.target_layers.dedup();
        drafter.num_target_layers = Some(layers);
    }
    Ok((target, drafter))
}

fn engine(pair: &CudaPair, what: &Synthetic, slots: u32, nodes: u32) -> anyhow::Result<CudaEngine> {
    let settings = CudaSettings::new(slots, what.context, nodes);
    let settings = CudaSettings {
        chunk: what.prefill_chunk.min(what.context).min(MOST_CHUNK),
        rows: settings.rows.min(u32::from(u16::MAX)),
        width: what.width.min(MOST_WIDTH),
        graphs: what.cuda.graphs,
        ..settings
    };
    pair.engine(settings).map_err(in_our_words)
}

fn facts(pair: &CudaPair, recorded: &Recorded, what: &Synthetic, digest: &str, depth: u32, layers: usize) -> Facts {
    let (meta, info) = (&recorded.trace().meta, pair.gpu().info());
    let name = |at: &Location| match at.written.as_str() {
        KIMI => KIMI.to_owned(),
        _ => at.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    let (target, drafter) = (name(&what.target), name(&what.drafter));
    let graphs = if what.cuda.graphs { "CUDA graphs" } else { "eager" };
    let shapes = format!("{layers} layers, rank {} of {}", what.rank, what.ranks);
    let trace = &what.trace.written;
    let mut notes = vec![
        format!(
            "synthetic weights: times are those of one rank's shapes without communication, acceptance is that of {trace}"
        ),
        format!("routing is forced: a share of {} of a row's experts repeats the row before", what.expert_overlap),
    ];
    notes.push(match what.prompt {
        Some(prompt) => {
            format!("responses begin behind {prompt} positions that were filled with numbers, not computed")
        }
        None => "prompts have the lengths that the trace tells, and were computed".to_owned(),
    });
    if what.cuda.emulated {
        notes.push("the kernels ran on the host: no time is given".to_owned());
    }
    let needed = |r: &TraceRequest| u64::from(r.prompt_tokens) + u64::from(r.emitted);
    let requests = &recorded.trace().requests;
    let short = requests.iter().filter(|r| needed(r) > u64::from(what.context) + 1).count();
    let warning = RunWarning::ContextShort { prompts: short, context: what.context };
    Facts {
        backend: "cuda",
        hardware: Some(info.name.clone()),
        gpu: (!what.cuda.emulated).then(|| (info.name.clone(), info.driver.clone())),
        deployment: Some(format!(
            "{target} on synthetic weights ({shapes}) with a DFlash drafter of {drafter}'s shapes, {graphs}"
        )),
        acceptance: format!("replay of {trace}, plain decoding with a block drafter, forced"),
        workload: trace.clone(),
        context: what.context,
        ranks: what.ranks,
        width: what.width,
        depth: depth.min(meta.depth),
        temperatures: vec![decimal(meta.temperature)],
        clock: !what.cuda.emulated,
        tokens: false,
        knows_truth: true,
        tau: "replayed",
        tier: if what.cuda.emulated { "none" } else { "measured" },
        identity: json!({
            "treeline": env!("CARGO_PKG_VERSION"),
            "backend": "cuda",
            "synthetic": [target, drafter],
            "layers": layers,
            "rank": [what.rank, what.ranks],
            "trace": digest,
            "context": what.context,
            "width": what.width,
            "prefill_chunk": what.prefill_chunk,
            "prompt": what.prompt,
            "expert_overlap": what.expert_overlap,
            "graphs": what.cuda.graphs,
            "emulated": what.cuda.emulated,
        }),
        manifest: json!({
            "synthetic_weights": true,
            "target": target,
            "drafter": drafter,
            "trace": { "file": trace, "sha256": digest, "meta": meta },
        }),
        notes,
        warnings: if short > 0 { vec![warning] } else { Vec::new() },
    }
}

impl Source for SyntheticSource {
    type Engine = CudaEngine;

    fn engine(&self, slots: u32, _budget: u32) -> anyhow::Result<CudaEngine> {
        engine(&self.pair, &self.what, slots, self.nodes)
    }

    fn requests(&self, _temperature: f64) -> Vec<Request> {
        self.recorded.requests()
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        Law::Forced(&*self.recorded)
    }

    fn domain(&self, index: usize) -> &str {
        self.recorded.trace().requests.get(index).map_or("", |r| &r.domain)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn one_at_a_time(&self) -> bool {
        true
    }

    fn joules(&self) -> Option<f64> {
        self.meter.and_then(|m| m.joules().ok())
    }

    fn warm_id(&self) -> u64 {
        self.recorded.trace().requests.first().map_or(u64::MAX, |r| r.id)
    }

    fn truth(&self, request: u64, start: u32) -> Option<&[Option<u32>]> {
        self.recorded.truth(request, start)
    }
}
