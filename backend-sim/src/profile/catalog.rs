//! The profiles that ship, and the way from a name to a profile.

use std::path::{Path, PathBuf};

use super::{Deployment, Drafter, Hardware, Model, ProfileError};

/// No profile or config comes near this size.
const LIMIT: u64 = 1 << 20;

/// Name and text of a shipped profile.
type Entry = (&'static str, &'static str);

macro_rules! shipped {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../profiles/", $folder, "/", $name, ".toml")))),*]
    };
}

// Sorted by name.
const HARDWARE: &[Entry] = shipped!("hardware": "b200-sxm", "b300-sxm6", "h200-sxm");
const MODELS: &[Entry] = shipped!("models": "kimi-k2.5", "kimi-k2.6", "qwen3-30b-a3b", "qwen3-8b");
const DRAFTERS: &[Entry] = shipped!("drafters": "kimi-k2.5-dflash", "kimi-k2.5-eagle3", "kimi-k2.6-dflash", "qwen3-8b-dflash-b16", "qwen3-8b-eagle3");
const DEPLOYMENTS: &[Entry] = shipped!("deployments": "sglang-0.5.14-b300-tp8", "sglang-0.5.14-b300-tp8-eager", "sglang-0.5.14-b300-tp8-nvls", "sglang-0.5.14-h200-tp8", "treeline-0.1-h200-rank-of-8", "treeline-0.1-h200-tp1", "vllm-0.16-h200-tp8", "vllm-0.24-b200-tp8", "vllm-0.24-b300-tp8", "vllm-0.24-b300-tp8-eager", "vllm-0.24-h200-tp1", "vllm-0.24-h200-tp8");

/// Names of the profiles that ship, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipped {
    /// Hardware.
    pub hardware: Vec<&'static str>,
    /// Models.
    pub models: Vec<&'static str>,
    /// Drafters.
    pub drafters: Vec<&'static str>,
    /// Deployments.
    pub deployments: Vec<&'static str>,
}

/// Names of the profiles that ship.
#[must_use]
pub fn shipped() -> Shipped {
    let names = |entries: &[Entry]| entries.iter().map(|e| e.0).collect();
    Shipped {
        hardware: names(HARDWARE),
        models: names(MODELS),
        drafters: names(DRAFTERS),
        deployments: names(DEPLOYMENTS),
    }
}

/// A shipped text, or the path of a file of the user's.
enum Found {
    Shipped(&'static str, String),
    File(PathBuf),
}

fn find(kind: &'static str, entries: &[Entry], name: &str, folder: &Path) -> Result<Found, ProfileError> {
    if let Some((name, text)) = entries.iter().find(|e| e.0 == name) {
        return Ok(Found::Shipped(text, format!("shipped {kind} {name}")));
    }
    if is_path(name) {
        return Ok(Found::File(folder.join(name)));
    }
    Err(ProfileError::Unknown {
        kind,
        name: name.to_owned(),
        known: entries.iter().map(|e| e.0.to_owned()).collect(),
        hint: format!("for a file of your own write its path, `./{name}.toml`; docs/profiles.md says what it holds"),
    })
}

/// Whether a name of a profile or process is a path: it has a `/`, or an ending.
#[must_use]
pub fn is_path(name: &str) -> bool {
    name.contains(['/', '\\']) || name.ends_with(".toml") || name.ends_with(".json")
}

/// Reads a file of bounded size.
pub(crate) fn read_text(path: &Path) -> Result<String, ProfileError> {
    crate::text::read(path, LIMIT).map_err(|source| ProfileError::Read { path: path.to_owned(), source })
}

fn toml<T>(
    kind: &'static str,
    entries: &[Entry],
    name: &str,
    folder: &Path,
    read: impl Fn(&str, &str) -> Result<T, ProfileError>,
) -> Result<T, ProfileError> {
    match find(kind, entries, name, folder)? {
        Found::Shipped(text, file) => read(text, &file),
        Found::File(path) => read(&read_text(&path)?, &path.display().to_string()),
    }
}

/// A hardware profile by shipped name, or by path relative to `folder`.
///
/// # Errors
/// No such profile, an unreadable file, a wrong key.
pub fn hardware(name: &str, folder: &Path) -> Result<Hardware, ProfileError> {
    toml("hardware", HARDWARE, name, folder, Hardware::from_toml)
}

/// A deployment by shipped name, or by path relative to `folder`.
///
/// # Errors
/// No such profile, an unreadable file, a wrong key.
pub fn deployment(name: &str, folder: &Path) -> Result<Deployment, ProfileError> {
    toml("deployment", DEPLOYMENTS, name, folder, Deployment::from_toml)
}

/// A model by shipped name, or by path relative to `folder`: a profile, a checkpoint's folder, or its `config.json`.
///
/// # Errors
/// No such profile, an unreadable file, a wrong key or config.
pub fn model(name: &str, folder: &Path) -> Result<Model, ProfileError> {
    match find("model", MODELS, name, folder)? {
        Found::File(path) if !name.ends_with(".toml") => Model::from_checkpoint(&path),
        Found::File(path) => Model::from_toml(&read_text(&path)?, &path.display().to_string()),
        Found::Shipped(text, file) => Model::from_toml(text, &file),
    }
}

/// A drafter by shipped name, or by path relative to `folder`: a profile, a DFlash checkpoint's folder, or its `config.json`.
///
/// # Errors
/// No such profile, an unreadable file, a wrong key or config.
pub fn drafter(name: &str, folder: &Path) -> Result<Drafter, ProfileError> {
    match find("drafter", DRAFTERS, name, folder)? {
        Found::File(path) if !name.ends_with(".toml") => Drafter::from_checkpoint(&path),
        Found::File(path) => Drafter::from_toml(&read_text(&path)?, &path.display().to_string()),
        Found::Shipped(text, file) => Drafter::from_toml(text, &file),
    }
}
