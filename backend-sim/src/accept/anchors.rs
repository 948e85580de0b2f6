//! What ships: processes and anchors, by name. There is no default among them.

use super::process::{Process, ProcessError};
use crate::profile::is_path;
use crate::text;
use serde::{Deserialize, Serialize};
use std::path::Path;

const PROCESSES: [(&str, &str); 3] = [
    ("kimi-k2.6-dspark", include_str!("../../processes/kimi-k2.6-dspark.toml")),
    ("kimi-k2.5-eagle3-thinking", include_str!("../../processes/kimi-k2.5-eagle3-thinking.toml")),
    ("mini-pair", include_str!("../../processes/mini-pair.toml")),
];

/// No process comes near this size.
const FILE_MAX: u64 = 1 << 20;

const ANCHORS: &str = include_str!("../../processes/anchors.toml");

/// What tree an anchor's acceptance length was had with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnchorTree {
    /// The drafter's best path.
    Chain,
    /// The most probable prefixes.
    BestFirst,
}

/// A published acceptance length of a pair: a named point of the map over acceptance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Name in experiment files.
    pub key: String,
    /// Short name for tables.
    pub label: String,
    /// The pair it was measured on.
    pub pair: String,
    /// Process whose shape it takes.
    pub base: String,
    /// What was run.
    pub tree: AnchorTree,
    /// Nodes of it, the root not counted.
    pub nodes: u32,
    /// Acceptance length, bonus included.
    pub tau: f64,
    /// For trees: the acceptance length of the chain of the process's whole depth that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_tau: Option<f64>,
    /// Who published it, and what was assumed.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anchors {
    anchor: Vec<Anchor>,
}

/// Names of the shipped processes and anchors, processes first.
#[must_use]
pub fn shipped() -> Vec<String> {
    let anchors = anchors().unwrap_or_default();
    PROCESSES.iter().map(|p| p.0.to_owned()).chain(anchors.into_iter().map(|a| a.key)).collect()
}

/// The shipped anchors.
///
/// # Errors
/// [`ProcessError::Parse`] if the shipped file is not what this build reads.
pub fn anchors() -> Result<Vec<Anchor>, ProcessError> {
    let read: Anchors = toml::from_str(ANCHORS)
        .map_err(|e| ProcessError::Parse { file: "processes/anchors.toml".into(), why: e.to_string() })?;
    Ok(read.anchor)
}

/// The process called `name`: a shipped one, an anchor, or a TOML file (a name with a `/` or an ending), relative to `folder`.
///
/// # Errors
/// [`ProcessError::Unknown`] with the list of names; a file that cannot be read or is no process.
pub fn process(name: &str, folder: &Path) -> Result<Process, ProcessError> {
    if let Some((name, text)) = PROCESSES.iter().find(|p| p.0 == name) {
        return Process::from_toml(text, name);
    }
    if let Some(anchor) = anchors()?.iter().find(|a| a.key == name) {
        return anchor.process();
    }
    if !is_path(name) {
        return Err(ProcessError::Unknown { name: name.to_owned(), known: shipped().join(", ") });
    }
    let path = folder.join(name);
    let file = path.display().to_string();
    let text = text::read(&path, FILE_MAX);
    let text = text.map_err(|e| ProcessError::Read { file: file.clone(), why: e.to_string() })?;
    Process::from_toml(&text, &file)
}

impl Anchor {
    /// The process of this anchor.
    ///
    /// # Errors
    /// When its base is no shipped process, or no shift gives its acceptance length.
    pub fn process(&self) -> Result<Process, ProcessError> {
        let Some((base, text)) = PROCESSES.iter().find(|p| p.0 == self.base) else {
            return Err(ProcessError::Unknown { name: self.base.clone(), known: shipped().join(", ") });
        };
        let base = Process::from_toml(text, base)?;
        let mut process = match (self.tree, self.chain_tau) {
            (AnchorTree::Chain, _) => base.to_tau(self.tau, self.nodes)?,
            (AnchorTree::BestFirst, Some(chain)) => base.to_tau(chain, base.depth())?,
            (AnchorTree::BestFirst, None) => {
                return Err(base.value(
                    "chain_tau",
                    &format!("anchor `{}`: a tree needs the chain's acceptance length", self.key),
                ));
            }
        };
        process.name.clone_from(&self.key);
        process.about = format!("{}: {}", self.pair, self.source);
        Ok(process)
    }
}
