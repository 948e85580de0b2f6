//! Files of the run folder: written to a temporary name, then renamed, so that a reader never meets half a file.

use super::Options;
use anyhow::Context as _;
use std::fs::TryLockError;
use std::io::{Read as _, Write as _};
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

/// Checks, before hours are spent on it, that a result can be left at `path`: a new file, or one in place of a trace.
///
/// # Errors
/// A folder, a file that is no trace (an experiment typed in its place would be lost), or a place that cannot be written.
pub(super) fn replaceable(path: &Path) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    if path.exists() {
        anyhow::ensure!(path.is_file(), "{}: is there already, and no file", named());
        let mut head = Vec::new();
        std::fs::File::open(path).and_then(|f| f.take(4).read_to_end(&mut head)).with_context(named)?;
        anyhow::ensure!(head == *b"PAR1", "{}: is there already, and no trace: it is not replaced", named());
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(named)?;
    }
    let probe = beside(path);
    std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).with_context(named)
}

/// Takes a run folder for this process until the file is dropped, or the process ends, however it ends.
///
/// # Errors
/// Another run holds it.
pub(super) fn lock(dir: &Path) -> anyhow::Result<std::fs::File> {
    let path = dir.join("cells").join(".lock");
    let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => anyhow::bail!("{}: another run is writing to this folder", dir.display()),
        // A file system without locks: as before there were any.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// A name in the same folder, so that the rename stays within one file system; one per process and path.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

/// A new folder under `runs`, named by experiment and time. A replay takes less than a second, and so may the next: whoever
/// finds the name taken waits for the next one.
fn fresh(runs: &Path, name: &str) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(runs)?;
    let mut tries = 0;
    loop {
        let dir = runs.join(format!("{name}-{}", super::execute::stamp()));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            // Many may wait for the same second, one gets it; a clock that stands still is no reason to wait for ever.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && tries < 400 => tries += 1,
            Err(e) => return Err(e),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The folder of this run, made if need be: the one of the options, or a new one under `runs` named by experiment and time.
/// The options hear of it.
///
/// # Errors
/// A folder that is no run's, or that holds a run which is not to be resumed.
pub(super) fn run_folder(options: &Options, name: &str) -> anyhow::Result<PathBuf> {
    let resume = options.resume;
    let dir = match options.out.as_deref() {
        Some(dir) => dir.to_owned(),
        None => fresh(Path::new(RUNS), name).with_context(|| RUNS.to_owned())?,
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
    // Two runs with the same options: the first one's folder was told.
    let _ = options.folder.set(dir.clone());
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::fresh;

    #[test]
    fn runs_of_one_second_have_folders_of_their_own() {
        let runs = tempfile::tempdir().unwrap();
        let runs = runs.path().join("runs");
        let dirs: std::collections::BTreeSet<_> = (0..3).map(|_| fresh(&runs, "a").unwrap()).collect();
        assert_eq!(dirs.len(), 3);
    }
}
