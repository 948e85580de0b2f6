//! A run folder, read again.

use crate::results::{Cell, CellDetail, PRICED_VERSION, Priced, SCHEMA_VERSION, Summary};
use crate::run::{GroupFile, PRICED_FILE};
use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The experiment of a run folder, every value in force.
pub(super) const RESOLVED: &str = "experiment.resolved.toml";

/// What a page is drawn from.
pub(super) struct Folder {
    pub summary: Summary,
    pub details: Vec<CellDetail>,
    pub priced: Option<Priced>,
    pub manifest: Value,
    pub resolved: String,
}

/// How a folder's run is made whole.
pub(super) fn go_on(dir: &Path) -> String {
    let dir = dir.display();
    format!("`treeline run {dir}/{RESOLVED} --resume {dir}` keeps the cells that are whole and makes the rest again")
}

impl Folder {
    /// Reads a folder whose run finished.
    ///
    /// # Errors
    /// A file that is missing, cut short, or of another version, by its name; a position where it is no JSON.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let summary: Summary = versioned(&dir.join("summary.json"), SCHEMA_VERSION)?;
        let resolved = text(&dir.join(RESOLVED))?;
        let path = dir.join(PRICED_FILE);
        let priced = match path.is_file() {
            true => Some(versioned(&path, PRICED_VERSION)?),
            // Its cells alone would be drawn as if sources, contexts and concurrencies were one.
            false if is_priced(&resolved) => {
                anyhow::bail!("{}: missing, though the run is priced (it has a [deployment])", path.display())
            }
            false => None,
        };
        let details = details(&dir.join("cells"), &summary)?;
        let manifest = json(&dir.join("manifest.json"))?;
        Ok(Self { summary, details, priced, manifest, resolved })
    }
}

/// Whether an experiment has a deployment. One that cannot be read is not known to have one.
fn is_priced(resolved: &str) -> bool {
    resolved.parse::<toml::Table>().is_ok_and(|t| t.contains_key("deployment"))
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    serde_json::from_str(&text(path)?).with_context(|| path.display().to_string())
}

/// A file whose `schema_version` must be `wanted`.
fn versioned<T: serde::de::DeserializeOwned>(path: &Path, wanted: u32) -> anyhow::Result<T> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: Option<u64>,
    }
    let text = text(path)?;
    let named = || path.display().to_string();
    let Version { schema_version } = serde_json::from_str(&text).with_context(named)?;
    match schema_version {
        Some(v) if v == u64::from(wanted) => serde_json::from_str(&text).with_context(named),
        Some(v) => anyhow::bail!("{}: has schema_version {v}, this treeline reads {wanted}", path.display()),
        None => anyhow::bail!("{}: has no schema_version", path.display()),
    }
}

/// The cells of a file, a group's or one.
fn cells_of(path: &Path) -> anyhow::Result<Vec<CellDetail>> {
    #[derive(Deserialize)]
    struct Probe {
        group: Option<serde::de::IgnoredAny>,
    }
    // Told apart first: an error of either form then has its line and column.
    let Probe { group } = json(path)?;
    Ok(if group.is_some() { json::<GroupFile>(path)?.cells } else { vec![json(path)?] })
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
        for detail in cells_of(path)? {
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
