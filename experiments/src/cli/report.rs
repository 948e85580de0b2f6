//! `treeline report DIR`: the page of a run that is finished, drawn again, and its figures for other pages.

use super::Usage;
use super::folder::{Folder, RESOLVED, go_on};
use super::out::Out;
use crate::config::Overrides;
use crate::report::{self, Context};
use crate::run::write_atomic;
use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use treeline_policies::Registry;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The folder of a finished run.
    dir: PathBuf,
    /// Print tables of τ by domain, policy and temperature, and of experts by rows, as Markdown.
    #[arg(long)]
    markdown: bool,
    /// Write τ against budget and where tokens are lost as one SVG, legible on light and dark pages.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

/// Writes `report.html` anew and prints the answer, or the tables.
pub(super) fn run(args: &ReportArgs, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let dir = &args.dir;
    if !dir.join("summary.json").is_file() {
        let what = match (dir.is_dir(), dir.join(RESOLVED).is_file()) {
            (false, _) => "no such folder".to_owned(),
            (true, false) => "holds no summary.json: no run that finished".to_owned(),
            (true, true) => format!("holds no summary.json: no run that finished; {}", go_on(dir)),
        };
        return Err(Usage(format!("{}: {what}", dir.display())).into());
    }
    if let Some(file) = &args.picture
        && file.extension().is_none_or(|e| e != "svg")
    {
        return Err(Usage(format!("{}: a picture's name ends in .svg", file.display())).into());
    }
    // A folder that is damaged or not whole is the user's input, as a wrong file is.
    let Folder { summary, details, priced, manifest, resolved } =
        Folder::read(dir).map_err(|e| Usage(format!("{e:#}: the run folder is damaged; {}", go_on(dir))))?;
    let experts = experts(dir, registry).unwrap_or_else(|e| {
        // A run folder can be read where its models are not.
        out.note(&format!("no curve of independent rows: the target of this run cannot be read: {e:#}"));
        None
    });
    let context = Context {
        resolved_toml: resolved,
        seed: manifest["seeds"]["run"].as_u64(),
        failed: failed(&manifest),
        command: format!("treeline run {RESOLVED}"),
        experts,
        manifest,
        priced,
    };
    let write =
        |path: &Path, text: &str| write_atomic(path, text.as_bytes()).with_context(|| path.display().to_string());
    let page = dir.join("report.html");
    write(&page, &report::html(&summary, &details, &context))?;
    out.note(&format!("report: {}", page.display()));
    if let Some(file) = &args.picture {
        let picture = report::picture(&summary, &details, context.priced.as_ref())
            .ok_or_else(|| Usage(format!("{}: no cell has a τ to draw", dir.display())))?;
        write(file, &picture)?;
        out.note(&format!("picture: {}", file.display()));
    }
    if args.markdown {
        return out.data(&report::markdown(&summary, &details, context.priced.as_ref(), experts));
    }
    let answer = report::answer(&summary, &details, context.priced.as_ref());
    out.data(&format!(
        "{answer}\n\n{}",
        report::table(&summary, &details, context.priced.as_ref(), out.colour, out.width)
    ))
}

/// The router of the run's target, where the models are at hand.
fn experts(dir: &Path, registry: &Registry) -> anyhow::Result<Option<report::RoutedExperts>> {
    let experiment = super::load(&dir.join(RESOLVED), registry, &Overrides::default())?;
    super::run::experts(&experiment.backend)
}

/// Cells that failed, as the manifest has them.
fn failed(manifest: &Value) -> Vec<(String, String)> {
    let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    manifest["failed"].as_array().into_iter().flatten().map(|f| (word(&f["cell"]), word(&f["why"]))).collect()
}
