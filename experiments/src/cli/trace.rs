//! `treeline trace record` and `treeline trace info`.

use super::Usage;
use super::out::Out;
use crate::config::{LawKind, Overrides};
use crate::run::{RecordOptions, record_trace};
use clap::Args;
use std::path::{Path, PathBuf};
use treeline_policies::Registry;
use treeline_sim::Frontier;

/// What to record.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// The experiment whose models and prompts are recorded; its policies are not run.
    file: PathBuf,
    /// Where to write the trace.
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Which of the experiment's temperatures, if it has several.
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Keep no token ids: such a trace can be shared.
    #[arg(long)]
    ranks_only: bool,
    /// Keep fewer ranks per row than the experiment.
    #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    width: Option<u32>,
    /// Conditional drafters: nodes expanded per level; 1 = the best path alone.
    #[arg(long, value_name = "NODES", default_value_t = Frontier::default().beam,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    beam: u32,
    /// Conditional drafters: nodes expanded per position.
    #[arg(long, value_name = "NODES", default_value_t = Frontier::default().expansions,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    expansions: u32,
    /// No progress on stderr.
    #[arg(long, short)]
    quiet: bool,
}

/// Records a trace of plain decoding; its path goes to stdout, what is in it to stderr.
pub(super) fn record(args: &RecordArgs, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let experiment = super::load(&args.file, registry, &Overrides { without_cost: true, ..Overrides::default() })?;
    let usage = |why: String| Err(Usage(format!("{}: {why}", args.file.display())).into());
    let Some(live) = experiment.backend.live() else {
        return usage("it replays a trace: only real models can be recorded".into());
    };
    if !matches!(live.sampling.law, LawKind::Greedy | LawKind::SampleMatch) {
        return usage(format!(
            "under law `{}` there is no trajectory to record: use `sample-match`",
            live.sampling.law.name()
        ));
    }
    let all = &live.sampling.temperature;
    match args.temperature {
        Some(t) if !all.contains(&t) => return usage(format!("temperature {t} is not among {all:?}")),
        None if all.len() > 1 => {
            return usage(format!("a trace has one temperature: choose with --temperature, of {all:?}"));
        }
        _ => {}
    }
    if args.width.is_some_and(|w| w > live.drafter.width()) {
        return usage(format!("the experiment keeps {} ranks per row", live.drafter.width()));
    }
    let options = RecordOptions {
        out: args.out.clone(),
        ranks_only: args.ranks_only,
        width: args.width,
        temperature: args.temperature,
        frontier: Frontier { beam: args.beam, expansions: args.expansions },
        quiet: args.quiet,
    };
    let info = record_trace(&experiment, &options)?;
    out.note(&info.to_string());
    out.data(&args.out.display().to_string())
}

/// Sums up a trace.
pub(super) fn info(file: &Path, json: bool, out: &Out) -> anyhow::Result<()> {
    let info = crate::trace::info(file)?;
    if json { out.json(&info) } else { out.data(&info.to_string()) }
}
