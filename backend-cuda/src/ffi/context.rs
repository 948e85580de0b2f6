//! A GPU's primary context, and its memory.

use super::driver::{self, Device, check};
use crate::error::{CudaError, Result};
use cudarc::driver::sys::{self, CUresult};

/// The primary context of a GPU, held until dropped. Streams, modules, events and graphs hold it in turn.
#[derive(Debug)]
pub(crate) struct Context {
    handle: sys::CUcontext,
    pub device: Device,
}

// SAFETY: the driver's functions may be called from any thread; a context is made current in the calling thread first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Holds the primary context of a GPU.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: Device) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; released when dropped.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut handle, device.handle) }, "opening the GPU's context")?;
        Ok(Self { handle, device })
    }

    /// Makes it the context of the calling thread; cheap when it is already.
    ///
    /// # Errors
    /// The driver's.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the handle is valid while `self` lives.
        check(unsafe { sys::cuCtxSetCurrent(self.handle) }, "entering the GPU's context")
    }

    /// Bytes of memory that are free.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<usize> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        check(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }, "asking for free memory")?;
        Ok(free)
    }

    /// Device memory; plain memory, which other GPUs can be given access to.
    ///
    /// # Errors
    /// [`CudaError::Memory`] in the words of `what`, or the driver's.
    pub fn alloc(&self, what: &str, bytes: usize) -> Result<u64> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&raw mut at, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(CudaError::Memory {
                what: what.into(),
                bytes,
                free: self.free_bytes().unwrap_or(0),
                advice: "lower `context`, `concurrency` or `budget`, or free the GPU of other programs",
            }),
            code => check(code, &format!("taking {bytes} bytes of GPU memory for {what}")).map(|()| at),
        }
    }

    /// Frees what [`Context::alloc`] gave. An error is not reported: it belongs to work that was queued before.
    pub fn free(&self, at: u64) {
        if self.enter().is_ok() {
            // SAFETY: `at` came from `alloc` and is freed once. The call waits for work that uses the memory.
            let _ = unsafe { sys::cuMemFree_v2(at) };
        }
    }

    /// Page-locked host memory, zeroed, cached for reads.
    ///
    /// # Errors
    /// The driver's.
    pub fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        self.enter()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: writes one address. Flags 0: not write-combined.
        let code = unsafe { sys::cuMemHostAlloc(&raw mut at, bytes, 0) };
        if code != CUresult::CUDA_SUCCESS {
            let call = format!("taking {bytes} bytes of page-locked host memory");
            return Err(CudaError::Call { call, why: driver::words(code) });
        }
        // SAFETY: the memory is `bytes` long.
        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
        Ok(at.cast())
    }

    /// Frees what [`Context::alloc_host`] gave.
    pub fn free_host(&self, at: *mut u8) {
        if self.enter().is_ok() {
            // SAFETY: `at` came from `alloc_host` and is freed once.
            let _ = unsafe { sys::cuMemFreeHost(at.cast()) };
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`; whatever lives in the context holds `self`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device.handle) };
    }
}
