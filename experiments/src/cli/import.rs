//! `treeline import`: what other engines count, as acceptance processes and cost curves.

use super::out::Out;
use crate::import::{self, Counters};
use anyhow::Context;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use treeline_sim::accept::{self, Drafts, Process};

/// Kinds of input.
#[derive(Debug, Subcommand)]
pub(super) enum ImportVerb {
    /// vLLM: Prometheus text of /metrics, `SpecDecoding metrics` log lines, or JSON with per-request metrics.
    Vllm {
        /// The file.
        file: PathBuf,
        /// An earlier scrape of the same server: import what was counted since.
        #[arg(long, value_name = "FILE")]
        before: Option<PathBuf>,
        /// The model, where the server counts several: its label `model_name`.
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        #[command(flatten)]
        to: Target,
    },
    /// SGLang: JSON of responses (`meta_info`) or of the server, Prometheus text, or `accept len` log lines.
    Sglang {
        /// The file.
        file: PathBuf,
        /// Rows of a verify step as SGLang counts them, root included; needed where only an acceptance length was counted.
        #[arg(long, value_name = "ROWS")]
        draft_tokens: Option<u32>,
        /// The model, where the file counts several.
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        #[command(flatten)]
        to: Target,
    },
    /// A published curve of acceptance length against drafted tokens: CSV with the header `k,tau`.
    Curve {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        to: Target,
    },
    /// Fit every parameter to a rank trace of a block drafter.
    Trace {
        /// The trace.
        file: PathBuf,
        /// Name of the process.
        #[arg(long)]
        name: String,
        /// Where to write it; stdout unless given.
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Step times as the [cost] section of an experiment: CSV with `ms` and one of rows, num_draft_tokens, budget,
    /// num_speculative_tokens; `requests` where the rows are of each.
    Steps {
        /// The file.
        file: PathBuf,
    },
}

impl ImportVerb {
    /// Refuses to write over what is read.
    fn spare_inputs(&self) -> anyhow::Result<()> {
        let (read, target): (Vec<&Path>, _) = match self {
            Self::Vllm { file, before, to, .. } => {
                let read = [file.as_path(), Path::new(&to.like)];
                (read.into_iter().chain(before.as_deref()).collect(), to.out.as_deref())
            }
            Self::Sglang { file, to, .. } | Self::Curve { file, to } => {
                (vec![file, Path::new(&to.like)], to.out.as_deref())
            }
            Self::Trace { file, out, .. } => (vec![file], out.as_deref()),
            Self::Steps { .. } => return Ok(()),
        };
        target.map_or(Ok(()), |target| super::target::writable(target, read))
    }
}

/// What becomes of counted rates.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// The process whose spreads, ranks and independence error are taken over: counters do not show them. A shipped name or
    /// a file.
    #[arg(long, value_name = "PROCESS")]
    like: String,
    /// Name of the new process.
    #[arg(long)]
    name: String,
    /// Where to write it; stdout unless given.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Target {
    fn base(&self) -> anyhow::Result<Process> {
        Ok(accept::process(&self.like, Path::new(""))?)
    }

    fn counted(&self, counters: &Counters, rows: Option<u32>, file: &Path, out: &Out) -> anyhow::Result<()> {
        let process = import::to_process(counters, &self.name, &self.base()?, rows, file)?;
        write(&process, self.out.as_deref(), out)
    }
}

/// Runs one kind.
pub(super) fn run(verb: &ImportVerb, out: &Out) -> anyhow::Result<()> {
    verb.spare_inputs()?;
    match verb {
        ImportVerb::Vllm { file, before, model, to } => {
            to.counted(&import::vllm(file, before.as_deref(), model.as_deref())?, None, file, out)
        }
        ImportVerb::Sglang { file, draft_tokens, model, to } => {
            to.counted(&import::sglang(file, model.as_deref())?, *draft_tokens, file, out)
        }
        ImportVerb::Curve { file, to } => write(&import::curve(file, &to.name, &to.base()?)?, to.out.as_deref(), out),
        ImportVerb::Trace { file, name, out: target } => {
            let trace = crate::trace::read(file)?;
            let fit = accept::fit::from_trace(&trace, name).with_context(|| file.display().to_string())?;
            out.note(&format!("{} roots of {} requests, chain τ {:.3}", fit.roots, fit.requests, fit.chain_tau));
            write(&fit.process, target.as_deref(), out)
        }
        ImportVerb::Steps { file } => {
            let curve = import::step_curve(file)?;
            let name = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            let source = toml::Value::from(format!("step times of {name}"));
            out.data(&format!("[cost.curve]\nrows = {:?}\nms = {:?}\nsource = {source}", curve.rows(), curve.ms()))
        }
    }
}

fn write(process: &Process, target: Option<&Path>, out: &Out) -> anyhow::Result<()> {
    let text = process.to_toml()?;
    let (depth, drafts) = (process.depth(), if process.drafter == Drafts::Block { "a block" } else { "steps" });
    out.note(&format!(
        "{}: chain τ {:.3} at depth {depth}, of a drafter of {drafts}",
        process.name,
        process.tau(depth)
    ));
    match target {
        None => out.data(text.trim_end()),
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            out.data(&path.display().to_string())
        }
    }
}
