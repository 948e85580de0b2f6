//! The experiment file: TOML in, an [`Experiment`] with every value in force out.
//!
//! Three steps, so that every error has a caret: the text becomes a table of spanned values ([`diagnostic`]), serde turns
//! that into the file as written, whose types check themselves, and `build` joins what belongs together: keys that no
//! backend, law or policy of the file reads are refused there. [`resolved_toml`] writes an experiment back.

mod build;
mod cuda;
pub mod diagnostic;
mod file;
mod live;
mod location;
mod policy;
mod priced;
mod resolve;
mod schema;
pub mod suggest;
mod synthetic;
mod text;
mod types;
mod value;

pub use diagnostic::{ConfigError, Diagnostic};
pub use location::{Location, relative};
pub use priced::{
    AcceptanceKind, AcceptanceSpec, Anchor, ArrivalsSpec, DeploymentSpec, PrefillName, PricedRun, TierName,
};
pub use resolve::resolved_toml;
pub use schema::{schema, schema_text};
pub use types::{
    Backend, Chat, Cost, Cuda, Drafter, Experiment, LawKind, Live, PolicySpec, Precision, PromptFile, Record, Replay,
    Sampling, Synthetic, Workload,
};

use std::path::{Path, PathBuf};
use treeline_policies::Registry;

/// The most bytes of an experiment file.
const FILE_MAX: u64 = 1 << 20;

/// What the command line changes about a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// In place of `backend.kind`: cpu, sim or cuda.
    pub backend: Option<String>,
    /// In place of `backend.trace`, relative to the working folder.
    pub trace: Option<PathBuf>,
    /// Whether a missing `[cost]` is forgiven: the run is about to measure it, or runs no policy.
    pub without_cost: bool,
}

/// Reads an experiment and checks that the files it names exist.
///
/// # Errors
/// [`ConfigError`]: what is wrong, where, with a caret.
pub fn load(path: &Path, registry: &Registry) -> Result<Experiment, ConfigError> {
    load_with(path, registry, &Overrides::default())
}

/// [`load`], with what the command line changes.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, registry: &Registry, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    let read_error = |why: String| ConfigError::Read { path: path.to_owned(), why };
    let text = treeline_sim::text::read(path, FILE_MAX).map_err(|e| read_error(e.to_string()))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = parent.canonicalize().map_err(|e| read_error(e.to_string()))?;
    load_text(&text, &path.display().to_string(), &folder, registry, overrides)
}

/// As [`load_with`], from the text of an experiment; `folder` is where relative paths start.
///
/// # Errors
/// As [`load`].
pub fn load_text(
    text: &str,
    name: &str,
    folder: &Path,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Experiment, ConfigError> {
    let doc = diagnostic::Doc::parse(text, name)?;
    let experiment = build::experiment(&doc, folder, registry, overrides)?;
    build::check_files(&doc, &experiment, overrides)?;
    priced::check(&doc, &experiment)?;
    Ok(experiment)
}

/// Parses the text of an experiment; nothing is read from disk. `name` names it in errors, `folder` is where relative
/// paths start.
///
/// # Errors
/// [`ConfigError::At`].
pub fn parse(
    text: &str,
    name: &str,
    folder: &Path,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Experiment, ConfigError> {
    let doc = diagnostic::Doc::parse(text, name)?;
    build::experiment(&doc, folder, registry, overrides)
}

#[cfg(test)]
mod tests;
