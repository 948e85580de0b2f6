//! What runs of real models share, whatever backend computes them: prompts, end tokens, and what results say of both models.

use super::source::Facts;
use super::workload::{self, Prompts};
use super::{RunWarning, plan};
use crate::config::{Drafter, Experiment, Live, Location};
use serde_json::{Value, json};
use std::path::Path;
use treeline_checkpoint::{TargetConfig, Thoroughness, Tokenizer, digest};
use treeline_core::{Law, Request};

/// Checkpoints beyond this size are told apart by their headers: hashing hundreds of gigabytes takes longer than a run.
const HASH_MAX: u64 = 8 << 30;

/// The workload of a run, ready to be served.
pub(super) struct Served {
    pub live: Live,
    seed: u64,
    prompts: Prompts,
    eos: Vec<u32>,
}

/// What a backend adds to the facts.
pub(super) struct Backing {
    /// sim, cpu or cuda.
    pub backend: &'static str,
    /// Machine, in words.
    pub hardware: String,
    /// Name and driver of the GPU.
    pub gpu: Option<(String, String)>,
    /// What the drafter says of itself.
    pub drafter: String,
    /// Number type, graphs: how the backend computes.
    pub manner: String,
    /// What of it must agree for two runs to be the same.
    pub identity: Value,
    /// Levels that the drafter reaches.
    pub depth: u32,
    /// Whether its times mean something.
    pub clock: bool,
    /// Remarks of every cell.
    pub notes: Vec<String>,
}

impl Served {
    /// Reads the prompts with the target's tokenizer.
    ///
    /// # Errors
    /// What the tokenizer or the prompt files refuse.
    pub fn load(experiment: &Experiment, live: &Live, target: &TargetConfig) -> anyhow::Result<Self> {
        let tokenizer = Tokenizer::open(&live.target.path)?;
        tokenizer.check_model(target)?;
        let prompts = workload::load(live, &tokenizer)?;
        let eos = if live.workload.ignore_eos { Vec::new() } else { tokenizer.eos().to_vec() };
        if eos.is_empty() && !live.workload.ignore_eos {
            anyhow::bail!(
                "{}: names no token that ends a response: set `ignore_eos = true` in [workload]",
                live.target.path.display()
            );
        }
        Ok(Self { live: live.clone(), seed: experiment.seed, prompts, eos })
    }

    /// The requests at one temperature, in workload order.
    pub fn requests(&self, temperature: f64) -> Vec<Request> {
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

    /// The law of every cell.
    pub fn law(&self) -> Law<'static> {
        self.live.sampling.law.law(self.seed)
    }

    /// Domain of the request with this index.
    pub fn domain(&self, index: usize) -> &str {
        self.prompts.list.get(index).map_or("", |p| &p.domain)
    }

    /// What holds for all cells.
    ///
    /// # Errors
    /// A checkpoint that cannot be read.
    pub fn facts(&self, backing: Backing) -> anyhow::Result<Facts> {
        let (live, prompts) = (&self.live, &self.prompts);
        let target = fingerprint(&live.target)?;
        let draft = live.drafter.checkpoint().map(fingerprint).transpose()?;
        let folder = |l: &Location| l.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let drafter = live.drafter.checkpoint().map_or_else(|| live.drafter.kind().to_owned(), folder);
        let w = &live.workload;
        let ids: Vec<&[u32]> = prompts.list.iter().map(|p| p.ids.as_slice()).collect();
        let mut identity = json!({
            "treeline": env!("CARGO_PKG_VERSION"),
            "backend": backing.backend,
            "seed": self.seed,
            "target": target["sha256"],
            "drafter": {
                "kind": live.drafter.kind(),
                "checkpoint": draft.as_ref().map(|d| d["sha256"].clone()),
                "width": live.drafter.width(),
                "depth": live.drafter.depth(),
                "all": format!("{:?}", numbers(&live.drafter)),
            },
            "prompts": plan::sha256(&serde_json::to_vec(&ids)?),
            "max_new": w.max_new,
            "ignore_eos": w.ignore_eos,
            "context": live.context,
            "prefill_chunk": live.prefill_chunk,
            "law": format!("{:?}", live.sampling.law),
            "top_k": live.sampling.top_k,
            "top_p": live.sampling.top_p,
        });
        if !backing.identity.is_null() {
            identity["manner"] = backing.identity;
        }
        let short = ids.iter().filter(|p| p.len() as u64 + u64::from(w.max_new) > u64::from(live.context) + 1).count();
        let warning = RunWarning::ContextShort { prompts: short, context: live.context };
        let (name, says, manner) = (folder(&live.target), backing.drafter, backing.manner);
        Ok(Facts {
            backend: backing.backend,
            hardware: Some(backing.hardware),
            gpu: backing.gpu,
            deployment: Some(format!("{name} with {drafter} ({says}), {manner}")),
            acceptance: "measured".to_owned(),
            workload: format!("{} ({} tokens each)", prompts.name, w.max_new),
            context: live.context,
            ranks: 1,
            width: live.drafter.width(),
            depth: live.drafter.depth().map_or(backing.depth, |d| d.min(backing.depth)),
            temperatures: live.sampling.temperature.clone(),
            clock: backing.clock,
            tokens: true,
            knows_truth: false,
            tau: "measured",
            tier: if backing.clock { "measured" } else { "none" },
            identity,
            manifest: json!({ "target": target, "drafter": draft, "prompts": prompts.manifest }),
            notes: backing.notes,
            warnings: if short > 0 { vec![warning] } else { Vec::new() },
        })
    }
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
