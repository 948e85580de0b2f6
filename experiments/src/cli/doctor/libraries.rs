//! Driver, GPUs and the CUDA libraries, as the CUDA engine looks for them.

use serde::Serialize;
use std::path::PathBuf;
use treeline_cuda::probe::{Probe, probe};

/// What there is of GPUs.
#[derive(Debug, Serialize)]
pub(super) struct Gpu {
    /// Release of the driver; `null` without one.
    pub driver: Option<String>,
    /// CUDA version that the driver serves; `null` without one.
    pub cuda: Option<String>,
    /// GPUs, by number.
    pub devices: Vec<Device>,
    /// Libraries of the CUDA engine.
    pub libraries: Vec<Library>,
    /// Where compiled kernels are kept; `null` where there is no home folder.
    pub kernel_cache: Option<PathBuf>,
    /// What keeps the CUDA engine from running, each with what to do.
    pub missing: Vec<String>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Free bytes of memory; `null` where the driver does not tell.
    pub free_bytes: Option<u64>,
    /// Compute capability.
    pub capability: String,
    /// The machine code that it runs; `null` when no kernel is written for it.
    pub arch: Option<&'static str>,
}

/// One library.
#[derive(Debug, Serialize)]
pub(super) struct Library {
    /// What it is.
    pub what: &'static str,
    /// File names that will do, best first.
    pub names: &'static [&'static str],
    /// The first one found.
    pub found: Option<PathBuf>,
    /// Whether one GPU cannot do without.
    pub needed: bool,
    /// What to know about it, or how to get it.
    pub note: Option<String>,
}

/// Looks.
pub(super) fn look() -> Gpu {
    findings(probe())
}

fn findings(probe: Probe) -> Gpu {
    let devices = probe.gpus.into_iter().map(|g| Device {
        name: g.name,
        memory_bytes: g.memory,
        free_bytes: g.free,
        capability: format!("{}.{}", g.capability.0, g.capability.1),
        arch: g.arch,
    });
    let libraries = probe.libraries.into_iter().map(|l| {
        // Loaders ask for the plain name, which some installations of NCCL do not have.
        let numbered = l.found.as_ref().is_some_and(|p| p.ends_with("libnccl.so.2"));
        let note = match l.found {
            None => Some(l.advice.to_owned()),
            Some(_) if numbered => Some(
                "only the numbered name is there: put a link `libnccl.so` to it into a folder of LD_LIBRARY_PATH"
                    .into(),
            ),
            Some(_) => None,
        };
        Library { what: l.what, names: l.names, found: l.found, needed: l.needed, note }
    });
    Gpu {
        driver: probe.driver,
        cuda: probe.cuda,
        devices: devices.collect(),
        libraries: libraries.collect(),
        kernel_cache: probe.cache,
        missing: probe.missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treeline_cuda::probe::ProbedLibrary;

    #[test]
    fn the_numbered_nccl_is_explained_and_what_is_absent_comes_with_advice() {
        let nccl = |found: Option<&str>| {
            let found = found.map(PathBuf::from);
            let library =
                ProbedLibrary { what: "NCCL", names: &["libnccl.so"], found, needed: false, advice: "get it" };
            let probe = Probe {
                driver: None,
                cuda: None,
                gpus: Vec::new(),
                libraries: vec![library],
                cache: None,
                missing: Vec::new(),
            };
            findings(probe).libraries.remove(0).note
        };
        assert_eq!(nccl(None).as_deref(), Some("get it"));
        assert!(nccl(Some("/x/libnccl.so.2")).unwrap().contains("link"));
        assert_eq!(nccl(Some("/x/libnccl.so")), None);
    }
}
