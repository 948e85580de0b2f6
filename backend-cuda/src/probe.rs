//! What this machine has of what the engine needs, and how to get the rest; and a GPU's power and clocks.

use crate::device::{Arch, DeviceInfo, cache_folder, describe};
use crate::error::Result;
use crate::ffi::driver::{self, Device};
use crate::ffi::find::{self, BLAS, DRIVER, Library, NCCL, NVRTC};
use crate::ffi::nvml::{Managed, NVML};
use std::path::PathBuf;

/// What there is.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Release of the driver; `None` without one.
    pub driver: Option<String>,
    /// CUDA version that the driver serves.
    pub cuda: Option<String>,
    /// GPUs, by number.
    pub gpus: Vec<ProbedGpu>,
    /// Libraries: driver, NVRTC, cuBLASLt, NCCL, NVML.
    pub libraries: Vec<ProbedLibrary>,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
    /// What keeps the engine from running on one GPU, each with what to do; empty when it can.
    pub missing: Vec<String>,
}

/// One GPU.
#[derive(Debug, Clone)]
pub struct ProbedGpu {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Free bytes of memory, where NVML tells.
    pub free: Option<u64>,
    /// Compute capability.
    pub capability: (i32, i32),
    /// The machine code that it runs; `None` when there are no kernels for it.
    pub arch: Option<&'static str>,
}

/// One library.
#[derive(Debug, Clone)]
pub struct ProbedLibrary {
    /// What it is.
    pub what: &'static str,
    /// File names that will do, best first.
    pub names: &'static [&'static str],
    /// The file found.
    pub found: Option<PathBuf>,
    /// Whether one GPU cannot do without.
    pub needed: bool,
    /// How to get it.
    pub advice: &'static str,
}

/// Looks. Libraries are looked for; only the driver's is loaded, to ask for GPUs.
#[must_use]
pub fn probe() -> Probe {
    let library = |l: &Library, needed| ProbedLibrary {
        what: l.what,
        names: l.files,
        found: find::locate(l),
        needed,
        advice: l.advice,
    };
    let libraries = vec![
        library(&DRIVER, true),
        library(&NVRTC, true),
        library(&BLAS, true),
        library(&NCCL, false),
        library(&NVML, false),
    ];
    let mut missing = Vec::new();
    let (mut gpus, mut cuda) = (Vec::new(), None);
    match driver::init().and_then(|()| Device::count()) {
        Err(e) => missing.push(e.to_string()),
        Ok(count) => {
            cuda = driver::cuda_version().ok();
            for ordinal in 0..count {
                match gpu(ordinal) {
                    Ok(gpu) => gpus.push(gpu),
                    Err(e) => missing.push(format!("GPU {ordinal}: {e}")),
                }
            }
            if !gpus.iter().any(|g| g.arch.is_some()) {
                missing.push("no GPU of compute capability 9.0, 10.0 or 10.3 (H100, H200, B200, B300)".into());
            }
        }
    }
    // The driver's absence is told above.
    let absent = libraries.iter().skip(1).filter(|l| l.needed && l.found.is_none());
    missing.extend(absent.map(|l| format!("no {}: {}", l.what, l.advice)));
    Probe { driver: driver::release(), cuda, gpus, libraries, cache: cache_folder(), missing }
}

fn gpu(ordinal: usize) -> Result<ProbedGpu> {
    let device = Device::get(ordinal)?;
    let (DeviceInfo { name, arch, memory, .. }, capability) = describe(device)?;
    let free = device.bus().and_then(|bus| Managed::at(&bus)).and_then(Managed::free).ok();
    let arch = (arch != Arch::Host).then(|| arch.name());
    Ok(ProbedGpu { ordinal, name, memory, free, capability, arch })
}

/// Power, energy and clocks of one GPU.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    managed: Managed,
}

impl Meter {
    /// The meter of GPU number `ordinal`.
    ///
    /// # Errors
    /// [`crate::CudaError::Missing`] without driver or NVML, [`crate::CudaError::NoGpu`], or the library's.
    pub fn open(ordinal: usize) -> Result<Self> {
        driver::init()?;
        Ok(Self { managed: Managed::at(&Device::get(ordinal)?.bus()?)? })
    }

    /// Watts drawn, averaged by the GPU over about a second.
    ///
    /// # Errors
    /// The library's.
    pub fn watts(&self) -> Result<f64> {
        Ok(f64::from(self.managed.milliwatts()?) / 1e3)
    }

    /// Joules since the driver was loaded: the difference of two readings is the energy in between, to about a tenth of a second.
    ///
    /// # Errors
    /// The library's.
    pub fn joules(&self) -> Result<f64> {
        Ok(self.managed.millijoules()? as f64 / 1e3)
    }

    /// MHz of the multiprocessors and of the memory, now.
    ///
    /// # Errors
    /// The library's.
    pub fn clocks_mhz(&self) -> Result<(u32, u32)> {
        self.managed.clocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_advice() {
        let probe = probe();
        assert_eq!(probe.libraries.len(), 5);
        assert!(probe.libraries.iter().all(|l| !l.names.is_empty() && !l.advice.is_empty()));
        assert_eq!(probe.missing.is_empty(), crate::device::Gpu::open(0).is_ok(), "{probe:?}");
        if probe.driver.is_none() && probe.gpus.is_empty() {
            assert!(probe.missing[0].contains("driver"), "{probe:?}");
            assert!(Meter::open(0).is_err());
        }
    }
}
