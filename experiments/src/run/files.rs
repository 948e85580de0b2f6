//! Files of the run folder: written to a temporary name, then renamed, so that a reader never meets half a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path` through a temporary file beside it. Folders are made as needed.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let temporary = beside(path);
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        // The first failure is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

/// A name in the same folder, so that the rename stays within one file system; one per process and path.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
