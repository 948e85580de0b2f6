//! Why a trace file cannot be read or written.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// A trace file that is no use; always names the file.
#[derive(Debug, Error)]
pub enum TraceFileError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The content is damaged, of another kind, or contradicts itself.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl TraceFileError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(super) fn content(path: &Path, why: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), why: why.into() }
    }
}
