//! The driver's library: whether it is there, what it says of errors and of GPUs.

use super::find;
use crate::error::{CudaError, Result};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

/// CUDA version that the libraries' functions belong to; as the driver counts it.
const NEEDED: i32 = 13000;

/// Loads and initialises the driver once. Every other function of `ffi` that calls the driver comes after this.
///
/// # Errors
/// [`CudaError::Missing`] when there is no driver, or one older than CUDA 13.
pub(crate) fn init() -> Result<()> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: only loads the vendor's library.
    let present = || unsafe { sys::is_culib_present() };
    if !*FOUND.get_or_init(|| find::ensure(&find::DRIVER, present).is_ok()) {
        return find::ensure(&find::DRIVER, present);
    }
    let mut version = 0;
    // SAFETY: writes one integer; allowed before `cuInit`.
    check(unsafe { sys::cuDriverGetVersion(&raw mut version) }, "asking for the driver's version")?;
    if version < NEEDED {
        return Err(CudaError::Missing {
            what: "a driver for CUDA 13",
            looked_for: format!("its version; it serves CUDA {}", version_text(version)),
            advice: find::DRIVER.advice.into(),
        });
    }
    // SAFETY: no arguments beyond the flags, which must be 0.
    check(unsafe { sys::cuInit(0) }, "starting the driver")
}

/// CUDA version that the driver serves, as `13.0`.
///
/// # Errors
/// The driver's.
pub(crate) fn cuda_version() -> Result<String> {
    let mut version = 0;
    // SAFETY: writes one integer.
    check(unsafe { sys::cuDriverGetVersion(&raw mut version) }, "asking for the driver's version")?;
    Ok(version_text(version))
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Turns a result code into an error with the driver's own words.
pub(crate) fn check(code: CUresult, call: &str) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::Call { call: call.into(), why: words(code) }) }
}

/// Name and description of an error.
pub(crate) fn words(code: CUresult) -> String {
    type Ask = unsafe fn(CUresult, *mut *const c_char) -> CUresult;
    let text = |ask: Ask| {
        let mut at: *const c_char = std::ptr::null();
        // SAFETY: the function writes the address of a constant string, or null.
        let code = unsafe { ask(code, &raw mut at) };
        if code != CUresult::CUDA_SUCCESS || at.is_null() {
            return String::new();
        }
        // SAFETY: a constant, terminated string of the library.
        unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
    };
    let (name, description) = (text(sys::cuGetErrorName), text(sys::cuGetErrorString));
    if name.is_empty() { format!("{code:?}") } else { format!("{name}, {description}") }
}

/// A GPU by its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    pub handle: sys::CUdevice,
}

impl Device {
    /// How many there are.
    ///
    /// # Errors
    /// The driver's.
    pub fn count() -> Result<usize> {
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { sys::cuDeviceGetCount(&raw mut count) }, "counting the GPUs")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// GPU number `ordinal`.
    ///
    /// # Errors
    /// [`CudaError::NoGpu`], or the driver's.
    pub fn get(ordinal: usize) -> Result<Self> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(CudaError::NoGpu { ordinal, count });
        }
        let mut handle = 0;
        // SAFETY: writes one integer.
        check(unsafe { sys::cuDeviceGet(&raw mut handle, ordinal as i32) }, "opening the GPU")?;
        Ok(Self { handle })
    }

    /// Its name.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(self) -> Result<String> {
        let mut bytes = [0u8; 128];
        // SAFETY: writes at most the given number of bytes, terminated.
        let code = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), bytes.len() as i32, self.handle) };
        check(code, "asking for the GPU's name")?;
        Ok(CStr::from_bytes_until_nul(&bytes).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Bytes of memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(self) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: writes one integer.
        check(unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, self.handle) }, "asking for the GPU's memory")?;
        Ok(bytes)
    }

    /// One of its attributes.
    ///
    /// # Errors
    /// The driver's.
    pub fn attribute(self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.handle) };
        check(code, "asking for a property of the GPU")?;
        Ok(value)
    }

    /// Its address on the bus, by which other libraries know it.
    ///
    /// # Errors
    /// The driver's.
    pub fn bus(self) -> Result<String> {
        let mut bytes = [0u8; 32];
        // SAFETY: writes at most the given number of bytes, terminated.
        let code = unsafe { sys::cuDeviceGetPCIBusId(bytes.as_mut_ptr().cast(), bytes.len() as i32, self.handle) };
        check(code, "asking for the GPU's address")?;
        Ok(CStr::from_bytes_until_nul(&bytes).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Its compute capability.
    ///
    /// # Errors
    /// The driver's.
    pub fn capability(self) -> Result<(i32, i32)> {
        use sys::CUdevice_attribute as A;
        let major = self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }
}

/// Release of the kernel driver, as `580.95.05`, where the system tells.
pub(crate) fn release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    release_in(&text)
}

/// The first word of numbers and dots in the first line.
fn release_in(text: &str) -> Option<String> {
    let word = |w: &&str| w.contains('.') && w.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.lines().next()?.split_whitespace().find(word).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_found_in_the_version_file() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 12.3\n";
        assert_eq!(release_in(text).as_deref(), Some("580.95.05"));
        assert_eq!(release_in(""), None);
        assert_eq!(release_in("nothing here"), None);
    }

    #[test]
    fn versions_are_written_as_people_write_them() {
        assert_eq!(version_text(13000), "13.0");
        assert_eq!(version_text(12090), "12.9");
    }
}
