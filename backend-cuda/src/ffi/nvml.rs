//! The management library that comes with the driver: power, energy, clocks.

use super::find::{self, Library as Wanted};
use crate::error::{CudaError, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::OnceLock;

/// Part of the driver.
pub(crate) const NVML: Wanted = Wanted {
    what: "NVML",
    files: &["libnvidia-ml.so.1", "libnvidia-ml.so"],
    beside: None,
    advice: "it comes with NVIDIA's driver (package nvidia-utils or libnvidia-compute in some distributions)",
};

type Handle = *mut c_void;

/// The functions used, looked up once.
struct Functions {
    error: unsafe extern "C" fn(c_uint) -> *const c_char,
    by_bus: unsafe extern "C" fn(*const c_char, *mut Handle) -> c_uint,
    power: unsafe extern "C" fn(Handle, *mut c_uint) -> c_uint,
    energy: unsafe extern "C" fn(Handle, *mut u64) -> c_uint,
    clock: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_uint,
    memory: unsafe extern "C" fn(Handle, *mut [u64; 3]) -> c_uint,
    // Last: the functions above are valid while it is loaded.
    _library: Library,
}

fn functions() -> Result<&'static Functions> {
    static LOADED: OnceLock<Option<Functions>> = OnceLock::new();
    let missing =
        || CudaError::Missing { what: NVML.what, looked_for: NVML.files.join(", "), advice: NVML.advice.into() };
    LOADED.get_or_init(load).as_ref().ok_or_else(missing)
}

fn load() -> Option<Functions> {
    // SAFETY: the vendor's library, whose initialisers are made to run at any time.
    let open = |name: &std::ffi::OsStr| unsafe { Library::new(name) }.ok();
    let named = NVML.files.iter().find_map(|n| open(n.as_ref()));
    let library = named.or_else(|| find::locate(&NVML).and_then(|p| open(p.as_os_str())))?;
    // SAFETY: names and types are those of `nvml.h`.
    unsafe {
        let start = *library.get::<unsafe extern "C" fn() -> c_uint>(b"nvmlInit_v2\0").ok()?;
        let functions = Functions {
            error: *library.get(b"nvmlErrorString\0").ok()?,
            by_bus: *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?,
            power: *library.get(b"nvmlDeviceGetPowerUsage\0").ok()?,
            energy: *library.get(b"nvmlDeviceGetTotalEnergyConsumption\0").ok()?,
            clock: *library.get(b"nvmlDeviceGetClockInfo\0").ok()?,
            memory: *library.get(b"nvmlDeviceGetMemoryInfo\0").ok()?,
            _library: library,
        };
        (start() == 0).then_some(functions)
    }
}

fn check(code: c_uint, call: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let functions = functions()?;
    // SAFETY: gives a constant, terminated string for any code.
    let words = unsafe { CStr::from_ptr((functions.error)(code)) };
    Err(CudaError::Call { call: format!("NVML, {call},"), why: words.to_string_lossy().into_owned() })
}

/// A GPU as the management library knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Managed(Handle);

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Managed {}
// SAFETY: as above.
unsafe impl Sync for Managed {}

impl Managed {
    /// The GPU at a bus address.
    ///
    /// # Errors
    /// [`CudaError::Missing`], or the library's.
    pub fn at(bus: &str) -> Result<Self> {
        let functions = functions()?;
        let bus = CString::new(bus).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a terminated string; writes one handle.
        check(unsafe { (functions.by_bus)(bus.as_ptr(), &raw mut handle) }, "finding the GPU")?;
        Ok(Self(handle))
    }

    /// Milliwatts drawn now (the average of about the last second).
    pub fn milliwatts(self) -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer.
        check(unsafe { (functions()?.power)(self.0, &raw mut value) }, "reading the power")?;
        Ok(value)
    }

    /// Millijoules since the driver was loaded.
    pub fn millijoules(self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: writes one integer.
        check(unsafe { (functions()?.energy)(self.0, &raw mut value) }, "reading the energy")?;
        Ok(value)
    }

    /// MHz of the multiprocessors and of the memory.
    pub fn clocks(self) -> Result<(u32, u32)> {
        let clock = |kind: c_uint| -> Result<u32> {
            let mut value = 0;
            // SAFETY: writes one integer.
            check(unsafe { (functions()?.clock)(self.0, kind, &raw mut value) }, "reading a clock")?;
            Ok(value)
        };
        Ok((clock(1)?, clock(2)?))
    }

    /// Free bytes of memory.
    pub fn free(self) -> Result<u64> {
        let mut values = [0; 3];
        // SAFETY: writes total, free and used.
        check(unsafe { (functions()?.memory)(self.0, &raw mut values) }, "reading the memory")?;
        Ok(values[1])
    }
}
