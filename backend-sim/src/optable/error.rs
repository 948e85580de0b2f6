//! What can go wrong with a table: a file that cannot be read as one, or a cell that does not exist.

use std::path::PathBuf;

/// A table that cannot be read, or that is not there.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A file of the tables cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: crate::text::TextError,
    },
    /// The header is not the one this kind of table has.
    #[error("{file}, line {line}: the header must start with `{expected}`, found `{found}`")]
    Header {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The key columns in order.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A line that cannot be used.
    #[error("{file}, line {line}: {what}")]
    Row {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// No table for the key.
    #[error("no {op} table for {wanted}{}; nearest: {}", note.as_ref().map(|n| format!(" ({n})")).unwrap_or_default(), list(exists))]
    Missing {
        /// The operation.
        op: &'static str,
        /// The key, as `name value` pairs.
        wanted: String,
        /// Why it was left out of the shipped slice, if it was.
        note: Option<&'static str>,
        /// The nearest keys that exist, best first.
        exists: Vec<String>,
    },
    /// Several tables for the key: it must say more.
    #[error("several {op} tables for {wanted}: name one of {}", list(exists))]
    Ambiguous {
        /// The operation.
        op: &'static str,
        /// The key, as `name value` pairs.
        wanted: String,
        /// The keys that match.
        exists: Vec<String>,
    },
}

fn list(keys: &[String]) -> String {
    if keys.is_empty() { "none at all".into() } else { keys.join(" | ") }
}
