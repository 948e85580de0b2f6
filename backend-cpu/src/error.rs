//! What can go wrong before a run.

use std::path::PathBuf;
use thiserror::Error;

/// Why a model, or a pair of models, was not loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The checkpoint was refused; the message names file and field or tensor.
    #[error(transparent)]
    Checkpoint(#[from] treeline_checkpoint::Error),
    /// The drafter does not fit the target.
    #[error("{}: {problem}", .path.display())]
    Pair {
        /// The drafter's folder or file.
        path: PathBuf,
        /// What does not fit and what to change.
        problem: String,
    },
    /// An engine setting that cannot work.
    #[error("engine setting `{key}`: {problem}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// Result of loading.
pub type Result<T> = std::result::Result<T, CpuError>;
