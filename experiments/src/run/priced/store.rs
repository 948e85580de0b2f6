//! Files of a priced run: one per group, so that a run which is killed goes on where it stopped.

use super::plan::Group;
use crate::results::{Answer, CellDetail, PricedAcceptance};
use crate::run::files;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// `cells/<key>.json` of a priced run: all cells of one acceptance, context and concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupFile {
    /// The group's key.
    pub group: String,
    /// Its source.
    pub acceptance: PricedAcceptance,
    /// Which policy pays.
    pub answer: Option<Answer>,
    /// The cells, in file order.
    pub cells: Vec<CellDetail>,
}

fn path(dir: &Path, key: &str) -> PathBuf {
    dir.join("cells").join(format!("{key}.json"))
}

/// Writes a group; it counts as finished from then on. One line: thousands of cells are read by programs.
///
/// # Errors
/// The file system.
pub(super) fn store(dir: &Path, file: &GroupFile) -> anyhow::Result<()> {
    let path = path(dir, &file.group);
    let named = || path.display().to_string();
    let mut text = serde_json::to_vec(file).with_context(named)?;
    text.push(b'\n');
    files::write_atomic(&path, &text).with_context(named)
}

/// A group that an earlier run finished.
pub(super) fn load(dir: &Path, group: &Group) -> Option<GroupFile> {
    let file: GroupFile = serde_json::from_slice(&std::fs::read(path(dir, &group.key)).ok()?).ok()?;
    (file.group == group.key && file.cells.len() == group.runs.len()).then_some(file)
}
