//! Finds the repository's files.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    // At run time first: a test binary may have been carried to a machine with a GPU.
    std::env::var("CARGO_MANIFEST_DIR")
        .map_or_else(|_| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
        .join("..")
}

/// Every file below the crate folders whose name ends in one of `endings`, build output left out, sorted.
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                let output = dir == root() && ["target", "runs"].contains(&name.as_str());
                if !output && !name.starts_with('.') && !["models", "fixtures", "__pycache__"].contains(&name.as_str())
                {
                    todo.push(path);
                }
            } else if endings.iter().any(|e| name.ends_with(e)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A file's text.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
