//! Where the vendor's libraries are. The loader's own search comes first; then come the folders where `pip` and CUDA's installers
//! put them, so that `pip install nvidia-cuda-nvrtc` is enough and no path has to be set.

use crate::error::{CudaError, Result};
use std::path::{Path, PathBuf};

/// A library of the vendor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    /// What it is.
    pub what: &'static str,
    /// File names that will do, best first.
    pub files: &'static [&'static str],
    /// Beginning of the name of a file that it opens by itself and that must lie beside it.
    pub beside: Option<&'static str>,
    /// How to get it.
    pub advice: &'static str,
}

/// The driver's own library.
pub(crate) const DRIVER: Library = Library {
    what: "the NVIDIA driver",
    files: &["libcuda.so.1", "libcuda.so"],
    beside: None,
    advice: "install NVIDIA's driver, release 580 or newer (`nvidia-smi` must list the GPU)",
};

/// The run-time compiler.
pub(crate) const NVRTC: Library = Library {
    what: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so"],
    beside: Some("libnvrtc-builtins.so"),
    advice: "`pip install 'nvidia-cuda-nvrtc==13.*'`, or put the folder of an installed CUDA 13 into LD_LIBRARY_PATH",
};

/// Dense matrix products.
pub(crate) const BLAS: Library = Library {
    what: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so"],
    beside: None,
    advice: "`pip install 'nvidia-cublas==13.*'`, or put the folder of an installed CUDA 13 into LD_LIBRARY_PATH",
};

/// Collectives between GPUs; one GPU does without.
pub(crate) const NCCL: Library = Library {
    what: "NCCL",
    files: &["libnccl.so", "libnccl.so.2"],
    beside: None,
    advice: "`pip install nvidia-nccl-cu13` (needed for more than one GPU only)",
};

/// Makes the loader find `library`: `present` asks it. Where it does not by itself, the file is loaded by its path, after which
/// the loader knows its name.
///
/// # Errors
/// [`CudaError::Missing`].
pub(crate) fn ensure(library: &Library, present: impl Fn() -> bool) -> Result<()> {
    if present() {
        return Ok(());
    }
    let folders = folders();
    for folder in &folders {
        for file in library.files.iter().map(|f| folder.join(f)).filter(|f| f.is_file()) {
            library.beside.iter().flat_map(|b| begins_with(folder, b)).for_each(|f| preload(&f));
            preload(&file);
            if present() {
                return Ok(());
            }
        }
    }
    let mut places: Vec<String> = folders.iter().filter(|f| f.is_dir()).map(|f| f.display().to_string()).collect();
    places.insert(0, "the loader's folders".into());
    Err(CudaError::Missing {
        what: library.what,
        looked_for: format!("{} in {}", library.files.join(", "), places.join(", ")),
        advice: library.advice.into(),
    })
}

/// The file that [`ensure`] would load, without loading it.
pub(crate) fn locate(library: &Library) -> Option<PathBuf> {
    let all: Vec<PathBuf> = loader_folders().into_iter().chain(folders()).collect();
    all.iter().flat_map(|folder| library.files.iter().map(|f| folder.join(f))).find(|f| f.is_file())
}

fn begins_with(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start)));
    files.sort();
    files
}

#[cfg(unix)]
fn preload(file: &Path) {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: these are the vendor's libraries, whose initialisers are made to run at any time. The handle is never closed.
    if let Ok(library) = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) } {
        std::mem::forget(library);
    }
}

#[cfg(not(unix))]
fn preload(_file: &Path) {}

/// Folders beyond the loader's: the active Python's packages, the user's, and CUDA's, newest first.
fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut bases: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|v| variable(v)).collect();
    // `python3` lies in PREFIX/bin, its packages in PREFIX/lib; a link in bin is not followed, or a venv would be left.
    let path = std::env::var_os("PATH").unwrap_or_default();
    bases.extend(
        std::env::split_paths(&path)
            .filter(|p| p.join("python3").exists())
            .filter_map(|p| p.parent().map(Path::to_owned)),
    );
    bases.extend(variable("HOME").map(|h| h.join(".local")));
    let mut found = Vec::new();
    for base in bases {
        let lib = base.join("lib");
        for python in begins_with(&lib, "python3").into_iter().rev() {
            for packages in ["site-packages", "dist-packages"] {
                let vendor = python.join(packages).join("nvidia");
                found.extend(begins_with(&vendor, "").into_iter().map(|p| p.join("lib")));
            }
        }
        found.push(lib);
    }
    let toolkits = begins_with(Path::new("/usr/local"), "cuda").into_iter().rev();
    let roots = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|v| variable(v)).chain(toolkits);
    found.extend(roots.flat_map(|r| [r.join("lib64"), r.join("targets/x86_64-linux/lib")]));
    found.extend(["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib"].map(PathBuf::from));
    let mut seen = Vec::new();
    found.retain(|f| {
        f.is_dir() && !seen.contains(f) && {
            seen.push(f.clone());
            true
        }
    });
    found
}

/// Folders that the loader searches, in its order.
fn loader_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths).collect();
    let configurations = begins_with(Path::new("/etc/ld.so.conf.d"), "");
    for file in std::iter::once(PathBuf::from("/etc/ld.so.conf")).chain(configurations) {
        // An `include` line names a folder that is read anyway.
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            folders.extend(line.starts_with('/').then(|| PathBuf::from(line)));
        }
    }
    folders.extend(["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    folders.extend([Path::new("/lib").join(&multiarch), Path::new("/usr/lib").join(&multiarch)]);
    folders.retain(|f| !f.as_os_str().is_empty());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_nowhere_is_named_with_advice() {
        let nowhere = Library { what: "Nothing", files: &["libtreeline-nothing.so"], beside: None, advice: "no way" };
        let error = ensure(&nowhere, || false).unwrap_err().to_string();
        assert!(
            error.contains("Nothing") && error.contains("libtreeline-nothing.so") && error.contains("no way"),
            "{error}"
        );
        assert_eq!(locate(&nowhere), None);
        assert!(ensure(&nowhere, || true).is_ok());
    }
}
