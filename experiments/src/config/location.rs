//! A path of an experiment file: as written, and as it is opened.

use std::path::{Component, Path, PathBuf};

/// A path as it stands in the file, and where that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// As written: the form that result files carry.
    pub written: String,
    /// What to open.
    pub path: PathBuf,
}

impl Location {
    /// `written`, relative to `folder` unless it is absolute.
    #[must_use]
    pub fn new(written: &str, folder: &Path) -> Self {
        Self { written: written.to_owned(), path: folder.join(written) }
    }
}

/// The way from folder `from` to `to`, both absolute and without links; `to` itself where they have nothing in common.
#[must_use]
pub fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    if common == 0 {
        return to.iter().collect();
    }
    let mut way: PathBuf = from[common..].iter().map(|_| Component::ParentDir).collect();
    way.extend(&to[common..]);
    if way.as_os_str().is_empty() { PathBuf::from(".") } else { way }
}

/// `path` without `.` and `name/..`, by its letters alone: the folder need not exist.
#[must_use]
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            // There is nothing above the root.
            Component::ParentDir if out.has_root() => {}
            part => out.push(part),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_leads_there() {
        let check = |from: &str, to: &str, expect: &str| {
            let way = relative(Path::new(from), Path::new(to));
            assert_eq!(way, Path::new(expect), "{from} → {to}");
            assert_eq!(tidy(&Path::new(from).join(&way)), Path::new(to));
        };
        check("/a/runs/x", "/a/experiments", "../../experiments");
        check("/a", "/a", ".");
        check("/a", "/a/b", "b");
        check("/a/b", "/", "../..");
    }

    #[test]
    fn tidy_keeps_leading_parents() {
        assert_eq!(tidy(Path::new("../a/./b/..")), Path::new("../a"));
        assert_eq!(tidy(Path::new("/..")), Path::new("/"));
        assert_eq!(tidy(Path::new("a/..")), Path::new("."));
    }
}
