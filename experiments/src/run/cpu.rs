//! Real models on the CPU as a source of rounds.

use super::source::{Facts, Source};
use super::workload::{self, Prompts};
use super::{RunWarning, machine};
use crate::config::{Drafter, Experiment, Live, Location};
use serde_json::{Value, json};
use std::path::Path;
use treeline_checkpoint::{Thoroughness, Tokenizer, digest};
use treeline_core::{Engine as _, Law, Request};
use treeline_cpu::{CpuEngine, CpuPair, DrafterSource, EngineSettings};

/// Checkpoints beyond this size are told apart by their headers: hashing hundreds of gigabytes takes longer than a run.
const HASH_MAX: u64 = 8 << 30;

/// A target and a drafter with their prompts. Cells share the weights.
pub(super) struct CpuSource {
    pair: CpuPair,
    live: Live,
    seed: u64,
    prompts: Prompts,
    eos: Vec<u32>,
    facts: Facts,
}

impl CpuSource {
    /// Loads models and prompts.
    ///
    /// # Errors
    /// What the checkpoints, the tokenizer or the prompt files refuse.
    pub fn load(experiment: &Experiment, live: &Live) -> anyhow::Result<Self> {
        let pair = CpuPair::load(&live.target.path, &drafter(&live.drafter)?)?;
        let tokenizer = Tokenizer::open(&live.target.path)?;
        tokenizer.check_model(pair.target().config())?;
        let prompts = workload::load(live, &tokenizer)?;
        let eos = if live.workload.ignore_eos { Vec::new() } else { tokenizer.eos().to_vec() };
        if eos.is_empty() && !live.workload.ignore_eos {
            anyhow::bail!(
                "{}: names no token that ends a response: set `ignore_eos = true` in [workload]",
                live.target.path.display()
            );
        }
        let info = engine(&pair, live, 1)?.info();
        let facts = facts(&pair, experiment, live, &prompts, info.depth)?;
        Ok(Self { pair, live: live.clone(), seed: experiment.seed, prompts, eos, facts })
    }
}

/// The drafter in the engine's terms.
fn drafter(drafter: &Drafter) -> anyhow::Result<DrafterSource> {
    Ok(match drafter {
        Drafter::Dflash { checkpoint, .. } => DrafterSource::Dflash { dir: checkpoint.path.clone() },
        Drafter::Autoregressive { checkpoint, depth, .. } => {
            DrafterSource::Autoregressive { dir: checkpoint.path.clone(), depth: *depth }
        }
        Drafter::Ngram { depth, order, .. } => DrafterSource::NGram { order: *order, depth: *depth },
    })
}

fn engine(pair: &CpuPair, live: &Live, slots: u32) -> anyhow::Result<CpuEngine> {
    Ok(pair.engine(EngineSettings { slots, context: live.context, chunk: live.prefill_chunk })?)
}

fn facts(pair: &CpuPair, e: &Experiment, live: &Live, prompts: &Prompts, depth: u32) -> anyhow::Result<Facts> {
    let target = fingerprint(&live.target)?;
    let draft = live.drafter.checkpoint().map(fingerprint).transpose()?;
    let folder = |l: &Location| l.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let drafter = live.drafter.checkpoint().map_or_else(|| live.drafter.kind().to_owned(), folder);
    let w = &live.workload;
    let ids: Vec<&[u32]> = prompts.list.iter().map(|p| p.ids.as_slice()).collect();
    let identity = json!({
        "treeline": env!("CARGO_PKG_VERSION"),
        "backend": "cpu",
        "seed": e.seed,
        "target": target["sha256"],
        "drafter": {
            "kind": live.drafter.kind(),
            "checkpoint": draft.as_ref().map(|d| d["sha256"].clone()),
            "width": live.drafter.width(),
            "depth": live.drafter.depth(),
            "all": format!("{:?}", numbers(&live.drafter)),
        },
        "prompts": super::plan::sha256(&serde_json::to_vec(&ids)?),
        "max_new": w.max_new,
        "ignore_eos": w.ignore_eos,
        "context": live.context,
        "prefill_chunk": live.prefill_chunk,
        "law": format!("{:?}", live.sampling.law),
        "top_k": live.sampling.top_k,
        "top_p": live.sampling.top_p,
    });
    let short = ids.iter().filter(|p| p.len() as u64 + u64::from(w.max_new) > u64::from(live.context) + 1).count();
    let warning = RunWarning::ContextShort { prompts: short, context: live.context };
    Ok(Facts {
        backend: "cpu",
        hardware: Some(machine::line()),
        deployment: Some(format!("{} with {drafter} ({}), f32", folder(&live.target), pair.describe_drafter())),
        acceptance: "measured".to_owned(),
        workload: format!("{} ({} tokens each)", prompts.name, w.max_new),
        context: live.context,
        width: live.drafter.width(),
        depth: live.drafter.depth().map_or(depth, |d| d.min(depth)),
        temperatures: live.sampling.temperature.clone(),
        clock: true,
        tokens: true,
        knows_truth: false,
        tau: "measured",
        tier: "measured",
        identity,
        manifest: json!({ "target": target, "drafter": draft, "prompts": prompts.manifest }),
        notes: Vec::new(),
        warnings: if short > 0 { vec![warning] } else { Vec::new() },
    })
}

/// The numbers of a drafter that have no digest of their own.
fn numbers(drafter: &Drafter) -> Vec<u32> {
    match drafter {
        Drafter::Dflash { width, depth, .. } => vec![*width, depth.unwrap_or(0)],
        Drafter::Autoregressive { width, depth, .. } => vec![*width, *depth],
        Drafter::Ngram { width, depth, order, .. } => vec![*width, *depth, *order],
    }
}

/// Digest of a checkpoint folder, for the manifest.
fn fingerprint(at: &Location) -> anyhow::Result<Value> {
    let how = if folder_bytes(&at.path) > HASH_MAX { Thoroughness::Headers } else { Thoroughness::Full };
    let digest = digest(&at.path, how)?;
    Ok(json!({ "checkpoint": at.written, "digest": how, "sha256": digest.sha256 }))
}

fn folder_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| std::fs::metadata(e.path()).ok()).map(|m| m.len()).sum()
}

impl Source for CpuSource {
    type Engine = CpuEngine;

    fn engine(&self, slots: u32) -> anyhow::Result<CpuEngine> {
        engine(&self.pair, &self.live, slots)
    }

    fn requests(&self, temperature: f64) -> Vec<Request> {
        let sampling = self.live.sampling.at(temperature);
        let request = |(id, p): (usize, &workload::Tokens)| Request {
            id: id as u64,
            prompt: p.ids.clone(),
            max_new: self.live.workload.max_new,
            eos: self.eos.clone(),
            sampling,
        };
        self.prompts.list.iter().enumerate().map(request).collect()
    }

    fn law(&self, _temperature: f64) -> Law<'static> {
        self.live.sampling.law.law(self.seed)
    }

    fn domain(&self, index: usize) -> &str {
        self.prompts.list.get(index).map_or("", |p| &p.domain)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
