//! The one error type of this crate: every variant names the file, and the field or tensor in it.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a checkpoint was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, read or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is larger than a file of its kind can sensibly be; it was not read.
    #[error("{}: {bytes} bytes, but a file of this kind may have at most {limit}", .path.display())]
    TooLarge {
        /// File.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// The file is not JSON of the expected shape.
    #[error("{}: not valid JSON: {source}", .path.display())]
    Json {
        /// File.
        path: PathBuf,
        /// Parser's message, with line and column.
        source: serde_json::Error,
    },
    /// A field is missing, of the wrong type, out of range, unknown, or asks for something that is not implemented.
    #[error("{}: `{field}`: {problem}", .path.display())]
    Field {
        /// File.
        path: PathBuf,
        /// Dotted path of the field inside the file.
        field: String,
        /// What is wrong and what to change.
        problem: String,
    },
    /// A safetensors file whose header is damaged.
    #[error("{}: damaged safetensors file: {problem}", .path.display())]
    Header {
        /// Shard.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A tensor is missing, truncated, surplus, or of another shape or type than the model needs.
    #[error("{}: tensor `{tensor}`: {problem}", .path.display())]
    Tensor {
        /// Shard, or the folder where no shard has the tensor.
        path: PathBuf,
        /// Name in the checkpoint.
        tensor: String,
        /// What is wrong and what to change.
        problem: String,
    },
    /// Memory of the caller that is not as large as what it is to hold.
    #[error("{problem}")]
    Size {
        /// Both sizes.
        problem: String,
    },
    /// The tokenizer could not be built or used.
    #[error("{}: tokenizer: {problem}", .path.display())]
    Tokenizer {
        /// File.
        path: PathBuf,
        /// What is wrong and what to change.
        problem: String,
    },
    /// The chat template could not be found, compiled or rendered.
    #[error("{}: chat template: {problem}", .path.display())]
    Template {
        /// File.
        path: PathBuf,
        /// What is wrong and what to change.
        problem: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn field(path: &Path, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Field { path: path.to_owned(), field: field.into(), problem: problem.into() }
    }

    pub(crate) fn header(path: &Path, problem: impl Into<String>) -> Self {
        Error::Header { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, problem: impl Into<String>) -> Self {
        Error::Tensor { path: path.to_owned(), tensor: tensor.to_owned(), problem: problem.into() }
    }
}
