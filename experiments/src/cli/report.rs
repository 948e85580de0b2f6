//! `treeline report DIR`: the page of a run that is finished, drawn again, and its figures for other pages.

use super::Usage;
use super::out::Out;
use crate::config::Overrides;
use crate::report::{self, Context};
use crate::results::{Cell, CellDetail, Priced, Summary};
use crate::run::{CellFile, PRICED_FILE, write_atomic};
use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use treeline_policies::Registry;

/// The experiment of a run folder, every value in force.
const RESOLVED: &str = "experiment.resolved.toml";

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
        let what = if dir.is_dir() { "holds no summary.json: no run that finished" } else { "no such folder" };
        return Err(Usage(format!("{}: {what}", dir.display())).into());
    }
    if let Some(file) = &args.picture
        && file.extension().is_none_or(|e| e != "svg")
    {
        return Err(Usage(format!("{}: a picture's name ends in .svg", file.display())).into());
    }
    // A folder that is damaged or not whole is the user's input, as a wrong file is.
    let Folder { summary, details, priced, manifest, resolved } =
        Folder::read(dir).map_err(|e| Usage(format!("{e:#}: the run folder is damaged; run the experiment again")))?;
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

/// What a page is drawn from.
struct Folder {
    summary: Summary,
    details: Vec<CellDetail>,
    priced: Option<Priced>,
    manifest: Value,
    resolved: String,
}

impl Folder {
    fn read(dir: &Path) -> anyhow::Result<Self> {
        let summary: Summary = json(&dir.join("summary.json"))?;
        let details = details(&dir.join("cells"), &summary)?;
        let manifest = json(&dir.join("manifest.json"))?;
        let priced = dir.join(PRICED_FILE);
        let priced = if priced.is_file() { Some(json(&priced)?) } else { None };
        Ok(Self { summary, details, priced, manifest, resolved: text(&dir.join(RESOLVED))? })
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    serde_json::from_str(&text(path)?).with_context(|| path.display().to_string())
}

/// The detail of every cell of the summary, in its order. A folder may hold cells of an earlier experiment too.
fn details(cells: &Path, summary: &Summary) -> anyhow::Result<Vec<CellDetail>> {
    let entries = std::fs::read_dir(cells).with_context(|| cells.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    // Times that a policy saw lie beside the cells.
    let is_cell = |name: &str| name.ends_with(".json") && !name.ends_with(".observations.json");
    paths.retain(|p| p.file_name().is_some_and(|name| is_cell(&name.to_string_lossy())));
    paths.sort();
    // By what is cheap to compare: a priced run has thousands of cells.
    let place = |c: &Cell| (c.policy.clone(), c.budget, c.concurrency, c.context);
    let mut found: BTreeMap<_, Vec<CellDetail>> = BTreeMap::new();
    for path in &paths {
        for detail in json::<CellFile>(path)?.details() {
            found.entry(place(&detail.cell)).or_default().push(detail);
        }
    }
    let of = |cell: &Cell| {
        let same = found.get(&place(cell)).into_iter().flatten().find(|d| d.cell == *cell);
        same.cloned().with_context(|| {
            let Cell { policy, budget, temperature, .. } = cell;
            format!("{}: no file has the figures of {policy} {budget} at T {temperature}", cells.display())
        })
    };
    summary.cells.iter().map(of).collect()
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
