//! Driver, devices and the CUDA libraries, looked for by name in the folders that the loader searches.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// What there is of a GPU.
#[derive(Debug, Serialize)]
pub(super) struct Gpu {
    /// Version of the kernel driver; `null` without one.
    pub driver: Option<String>,
    /// NVIDIA devices.
    pub devices: usize,
    /// Libraries of the CUDA engine.
    pub libraries: Vec<Library>,
}

/// One library.
#[derive(Debug, Serialize)]
pub(super) struct Library {
    /// What it is.
    pub what: &'static str,
    /// File names that will do, best first.
    pub names: Vec<String>,
    /// The first one found.
    pub found: Option<PathBuf>,
    /// What to know about it.
    pub note: Option<String>,
}

impl Gpu {
    /// What the CUDA engine would lack, in words.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.driver.is_none() {
            missing.push("no NVIDIA driver".to_owned());
        }
        if self.devices == 0 {
            missing.push("no NVIDIA device".to_owned());
        }
        missing.extend(self.libraries.iter().filter(|l| l.found.is_none()).map(|l| format!("no {}", l.what)));
        missing
    }
}

/// Looks.
pub(super) fn look() -> Gpu {
    let folders = folders();
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let devices = std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    let libraries = [
        ("CUDA driver library", vec!["libcuda.so.1", "libcuda.so"]),
        ("NVRTC", vec!["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]),
        ("cuBLAS", vec!["libcublas.so.13", "libcublas.so.12", "libcublas.so"]),
        ("NCCL", vec!["libnccl.so", "libnccl.so.2"]),
    ];
    let libraries = libraries.into_iter().map(|(what, names)| library(what, &names, &folders)).collect();
    Gpu { driver: version.as_deref().and_then(driver), devices, libraries }
}

/// The version in the first line of the driver's version file: its first word of numbers and dots.
fn driver(text: &str) -> Option<String> {
    let word = |w: &&str| w.contains('.') && w.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.lines().next()?.split_whitespace().find(word).map(str::to_owned)
}

fn library(what: &'static str, names: &[&str], folders: &[PathBuf]) -> Library {
    let found = names.iter().find_map(|name| folders.iter().map(|f| f.join(name)).find(|p| p.is_file()));
    // Loaders ask for the plain name, which some installations of NCCL do not have.
    let numbered = found.as_ref().is_some_and(|p| p.ends_with("libnccl.so.2"));
    let note = numbered.then(|| {
        "only the numbered name is there: put a link `libnccl.so` to it into a folder of LD_LIBRARY_PATH".to_owned()
    });
    Library { what, names: names.iter().map(|n| (*n).to_owned()).collect(), found, note }
}

/// Folders that the loader searches, in its order.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths).collect();
    configured(Path::new("/etc/ld.so.conf"), &mut folders);
    if let Ok(entries) = std::fs::read_dir("/etc/ld.so.conf.d") {
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        files.sort();
        files.iter().for_each(|f| configured(f, &mut folders));
    }
    let usual = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/cuda/lib64"];
    folders.extend(usual.iter().map(PathBuf::from));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    folders.extend([Path::new("/lib").join(&multiarch), Path::new("/usr/lib").join(&multiarch)]);
    folders.retain(|f| !f.as_os_str().is_empty());
    folders
}

/// Adds the folders that a loader configuration names. Its `include` lines name a folder that is read anyway.
fn configured(file: &Path, folders: &mut Vec<PathBuf>) {
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_version_is_found() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 12.3\n";
        assert_eq!(driver(text).as_deref(), Some("580.95.05"));
        assert_eq!(driver(""), None);
        assert_eq!(driver("nothing here"), None);
    }

    #[test]
    fn libraries_are_found_by_name_and_the_numbered_nccl_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let nccl = || library("NCCL", &["libnccl.so", "libnccl.so.2"], &folders);
        assert!(nccl().found.is_none() && nccl().note.is_none());
        std::fs::write(folder.path().join("libnccl.so.2"), b"").unwrap();
        assert!(nccl().found.is_some() && nccl().note.is_some());
        std::fs::write(folder.path().join("libnccl.so"), b"").unwrap();
        assert!(nccl().found.unwrap().ends_with("libnccl.so") && nccl().note.is_none());
    }
}
