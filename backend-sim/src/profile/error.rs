//! Why a profile is refused: the file, the line, the key, and what to change.

use std::path::PathBuf;

/// A key in front of what is wrong with it; nothing where there is none.
fn quoted(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("`{key}`: ") }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a shipped profile nor a file.
    #[error("no {kind} profile `{name}` ships; {} do\nhelp: {hint}", .known.join(", "))]
    Unknown {
        /// `hardware`, `model`, `drafter` or `deployment`.
        kind: &'static str,
        /// As it was asked for.
        name: String,
        /// What ships, sorted.
        known: Vec<String>,
        /// What to do.
        hint: String,
    },
    /// The file cannot be read.
    #[error("cannot read profile {}: {source}\nhelp: relative paths start from the folder of the file that names it", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: crate::text::TextError,
    },
    /// Something in the file is wrong.
    #[error("{file}:{line}: {}{problem}", quoted(.key))]
    At {
        /// The file, or the name of a shipped profile.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Dotted key; empty where the file has none there.
        key: String,
        /// What is wrong and what to change.
        problem: String,
    },
    /// Two profiles that do not belong together.
    #[error("{problem}\nhelp: {hint}")]
    Mismatch {
        /// Both profiles and the fields that contradict.
        problem: String,
        /// What to change.
        hint: String,
    },
    /// A model's `config.json` that is not understood.
    #[error(transparent)]
    Config(#[from] treeline_checkpoint::Error),
}
