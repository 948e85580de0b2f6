//! The package: a wheel, an unpacked wheel or an installed folder.

use super::ImportError;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// Its name.
pub const PACKAGE: &str = "aiconfigurator-core";
/// The version whose layout and figures the slice is made from.
pub const VERSION: &str = "0.12.0";

/// Where the tables lie inside the wheel.
const DATA: &str = "aiconfigurator_core/systems/data";
/// The largest file that is read; the largest of 0.12.0 has 2 MB.
const LARGEST: u64 = 32 << 20;

/// An opened package.
#[derive(Debug)]
pub struct Package(Place);

#[derive(Debug)]
enum Place {
    /// The folder that holds `h200_sxm` and the others.
    Folder(PathBuf),
    Wheel(PathBuf, Box<ZipArchive<File>>),
}

impl Package {
    /// Opens a wheel, or a folder: what the wheel unpacks to, `site-packages`, `aiconfigurator_core` itself, or its `systems/data`.
    ///
    /// # Errors
    /// [`ImportError::NoPackage`] if it is none of them, or of another version where it says so.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let none = |what: String| ImportError::NoPackage { path: path.into(), what };
        let about = std::fs::metadata(path).map_err(|source| ImportError::Io { path: path.into(), source })?;
        if about.is_dir() {
            let data = [DATA, "systems/data", "."]
                .map(|inner| path.join(inner))
                .into_iter()
                .find(|d| d.join("h200_sxm").is_dir());
            let data = data.ok_or_else(|| none(format!("holds no {DATA}")))?;
            let entries = std::fs::read_dir(path).map_err(|source| ImportError::Io { path: path.into(), source })?;
            let names = entries.filter_map(Result::ok).filter_map(|e| e.file_name().into_string().ok());
            check_version(names).map_err(none)?;
            return Ok(Self(Place::Folder(data)));
        }
        if !about.is_file() {
            return Err(none("is neither a wheel nor a folder".into()));
        }
        let file = File::open(path).map_err(|source| ImportError::Io { path: path.into(), source })?;
        let wheel = ZipArchive::new(file).map_err(|e| none(format!("is no wheel: {e}")))?;
        let names: Vec<String> = wheel.file_names().filter_map(Result::ok).map(|name| name.into_owned()).collect();
        check_version(names.iter().filter_map(|name| name.split('/').next()).map(String::from)).map_err(none)?;
        if !names.iter().any(|name| name.starts_with(DATA)) {
            return Err(none(format!("holds no {DATA}")));
        }
        Ok(Self(Place::Wheel(path.into(), Box::new(wheel))))
    }

    /// The bytes of `file`, a path under `systems/data`.
    ///
    /// # Errors
    /// A file that is missing, too large or damaged.
    pub fn read(&mut self, file: &str) -> Result<Vec<u8>, ImportError> {
        match &mut self.0 {
            Place::Folder(data) => {
                let path = data.join(file);
                let io = |source| ImportError::Io { path: path.clone(), source };
                limited(File::open(&path).map_err(io)?).map_err(io)
            }
            Place::Wheel(path, wheel) => {
                let inside = format!("{DATA}/{file}");
                let entry = wheel.by_name(&inside).map_err(|e| ImportError::content(&inside, e.to_string()))?;
                limited(entry).map_err(|source| ImportError::Io { path: path.join(&inside), source })
            }
        }
    }
}

fn limited(from: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(std::io::Error::other(format!("is larger than {} MB", LARGEST >> 20)));
    }
    Ok(bytes)
}

/// Another version's `dist-info` is an error; none (a bare folder) is not.
fn check_version(mut names: impl Iterator<Item = String>) -> Result<(), String> {
    let other = names.find_map(|name| {
        let version = name.strip_prefix("aiconfigurator_core-")?.strip_suffix(".dist-info")?;
        (version != VERSION).then(|| version.to_owned())
    });
    other.map_or(Ok(()), |version| Err(format!("is version {version}, the slice is made from {VERSION}")))
}
