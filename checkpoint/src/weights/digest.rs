//! A digest of a checkpoint folder, so that a result can say which weights it came from.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// How much of each safetensors file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thoroughness {
    /// Every byte.
    Full,
    /// Only length, header and the first MiB of each safetensors file: for checkpoints of hundreds of gigabytes.
    Headers,
}

/// SHA-256 of a checkpoint folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How much was read.
    pub thoroughness: Thoroughness,
    /// Over names, lengths and digests of the files below, in lower-case hexadecimal.
    pub sha256: String,
    /// Every file that a loader can read, ascending by name.
    pub files: Vec<FileDigest>,
}

/// One file of a [`Digest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Name in the folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of what was read of it, in lower-case hexadecimal.
    pub sha256: String,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.thoroughness {
            Thoroughness::Full => "sha256",
            Thoroughness::Headers => "headers-sha256",
        };
        write!(f, "{what}:{}", self.sha256)
    }
}

/// Digest of the `.json`, `.jinja` and `.safetensors` files in `dir`: what the engines read. A model card may change without
/// changing the digest.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn digest(dir: &Path, thoroughness: Thoroughness) -> Result<Digest> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Error::io(dir, e))? {
        let path = entry.map_err(|e| Error::io(dir, e))?.path();
        let wanted = path.extension().is_some_and(|e| e == "json" || e == "jinja" || e == "safetensors");
        // `is_file` follows links: hubs keep their caches as links to blobs.
        if let Some(name) = path.file_name().and_then(|n| n.to_str())
            && wanted
            && !name.starts_with('.')
            && path.is_file()
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    let mut whole = Sha256::new();
    let mut files = Vec::new();
    for name in names {
        let (bytes, sha256) = file_digest(&dir.join(&name), thoroughness)?;
        // Lengths first, so that no two folders give the same stream.
        whole.update((name.len() as u64).to_le_bytes());
        whole.update(name.as_bytes());
        whole.update(bytes.to_le_bytes());
        whole.update(sha256.as_bytes());
        files.push(FileDigest { name, bytes, sha256 });
    }
    Ok(Digest { thoroughness, sha256: hex(&whole.finalize()), files })
}

fn file_digest(path: &Path, thoroughness: Thoroughness) -> Result<(u64, String)> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let bytes = file.metadata().map_err(|e| Error::io(path, e))?.len();
    let partial = thoroughness == Thoroughness::Headers && path.extension().is_some_and(|e| e == "safetensors");
    let mut left = if partial { head_length(path, &mut file)? } else { u64::MAX };
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut buffer[..want]).map_err(|e| Error::io(path, e))?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        left -= read as u64;
    }
    Ok((bytes, hex(&hash.finalize())))
}

/// Bytes of the length field, the header and the MiB after it; the file is back at its start.
fn head_length(path: &Path, file: &mut File) -> Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut length = [0; 8];
    let read = file.read(&mut length).map_err(|e| Error::io(path, e))?;
    file.seek(SeekFrom::Start(0)).map_err(|e| Error::io(path, e))?;
    let header = if read == 8 { u64::from_le_bytes(length) } else { 0 };
    Ok(header.saturating_add(8 + (1 << 20)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
        // Writing to a String cannot fail.
        let _ = write!(s, "{b:02x}");
        s
    })
}
