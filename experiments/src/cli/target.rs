//! A file that a verb is told to write.

use super::Usage;
use std::path::Path;

/// Checks before any work that `target` may be written: it is none of `inputs`, no folder, and its folder is there.
///
/// # Errors
/// [`Usage`] with what to change.
pub(super) fn writable<'p>(target: &Path, inputs: impl IntoIterator<Item = &'p Path>) -> anyhow::Result<()> {
    let wrong = |why: &str| Err(Usage(format!("cannot write {}: {why}", target.display())).into());
    if target.is_dir() {
        return wrong("it is a folder; name a file");
    }
    let whole = |path: &Path| path.canonicalize().ok();
    let own = whole(target);
    if own.is_some() && inputs.into_iter().any(|input| whole(input) == own) {
        return wrong("it is a file that is read here; name another");
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => wrong("its folder does not exist; make it first"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in.toml");
        std::fs::write(&file, "x").unwrap();
        let said = |target: &Path| writable(target, [file.as_path()]).unwrap_err().to_string();
        assert!(said(&dir.path().join(".").join("in.toml")).contains("is read here"));
        assert!(said(dir.path()).contains("a folder"));
        assert!(said(&dir.path().join("none/out.json")).contains("make it first"));
        assert!(writable(&dir.path().join("out.json"), [file.as_path()]).is_ok());
        assert!(writable(Path::new("out.json"), [Path::new("kimi-k2.6-dspark")]).is_ok());
    }
}
