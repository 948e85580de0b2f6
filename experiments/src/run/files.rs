//! Files of the run folder: written to a temporary name, then renamed, so that a reader never meets half a file.

use anyhow::Context as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Folder of all runs, unless one is named.
const RUNS: &str = "runs";

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

/// The folder of this run, made if need be: `out`, or a new one under `runs` named by experiment and time.
///
/// # Errors
/// A folder that is no run's, or that holds a run which is not to be resumed.
pub(super) fn run_folder(out: Option<&Path>, name: &str, resume: bool) -> anyhow::Result<PathBuf> {
    let dir = match out {
        Some(dir) => dir.to_owned(),
        None => Path::new(RUNS).join(format!("{name}-{}", super::execute::stamp())),
    };
    let holds_run = dir.join("manifest.json").exists() || dir.join("cells").exists();
    let empty = std::fs::read_dir(&dir).map_or(true, |mut entries| entries.next().is_none());
    if holds_run && !resume {
        anyhow::bail!("{}: holds a run already: go on with `--resume`, or name another folder", dir.display());
    }
    if !holds_run && !empty {
        anyhow::bail!("{}: is neither empty nor a run's folder", dir.display());
    }
    std::fs::create_dir_all(dir.join("cells")).with_context(|| dir.display().to_string())?;
    Ok(dir)
}
