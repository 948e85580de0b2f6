//! The real GPU: its primary context and one stream.

mod choices;
mod cubin;
mod gemm;
mod handles;

pub use cubin::{Cubin, Resources, cache_folder, cubin};

use super::backend::{Arch, Backend, DeviceInfo, RawEvent, RawGraph, RawKernel};
use super::{Define, Gemm, Launch};
use crate::error::{CudaError, Result};
use crate::ffi::context::Context;
use crate::ffi::driver::{self, Device};
use crate::ffi::module::{Module, Shape};
use crate::ffi::stream::Stream;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gemm::Blas;
use handles::{CudaEvent, CudaGraph, CudaKernel, State};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What `DeviceInfo::arch` follows from.
fn arch(capability: (i32, i32)) -> Option<Arch> {
    match capability {
        (9, 0) => Some(Arch::Sm90a),
        (10, 0) => Some(Arch::Sm100a),
        (10, 3) => Some(Arch::Sm103a),
        _ => None,
    }
}

/// What a GPU is; it need not be one that kernels exist for.
pub(crate) fn info(device: Device) -> Result<(DeviceInfo, (i32, i32))> {
    let capability = device.capability()?;
    let number = |a| device.attribute(a).map(|v| u32::try_from(v).unwrap_or(0));
    let info = DeviceInfo {
        name: device.name()?,
        arch: arch(capability).unwrap_or(Arch::Host),
        sms: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory: device.memory()?,
        shared: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver: driver::release().map_or_else(driver::cuda_version, Ok)?,
    };
    Ok((info, capability))
}

pub(super) fn open(ordinal: usize) -> Result<Arc<dyn Backend>> {
    driver::init()?;
    let device = Device::get(ordinal)?;
    let (info, (major, minor)) = info(device)?;
    if arch((major, minor)).is_none() {
        return Err(CudaError::Capability { ordinal, name: info.name, major, minor });
    }
    let context = Arc::new(Context::new(device)?);
    let stream = Arc::new(Stream::new(context.clone())?);
    let blas = Mutex::new(Blas::new(stream.clone(), &info.name)?);
    let patient = std::env::var_os("TREELINE_SYNC").is_some_and(|v| v == "1");
    let state = Arc::new(State { capturing: AtomicBool::new(false), last: Mutex::new("the first operation") });
    let (modules, waiting) = (Mutex::default(), Mutex::default());
    Ok(Arc::new(Cuda { blas, modules, waiting, patient, state, info, stream, context }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Modules = HashMap<(&'static str, Vec<Define>), Arc<Module>>;

/// A GPU. Fields are dropped in this order: products first, the context last.
#[derive(Debug)]
struct Cuda {
    blas: Mutex<Blas>,
    modules: Mutex<Modules>,
    /// Memory dropped during a capture, in which nothing may be freed.
    waiting: Mutex<Vec<u64>>,
    /// Whether to wait after each operation, to find the one that fails.
    patient: bool,
    state: Arc<State>,
    info: DeviceInfo,
    stream: Arc<Stream>,
    context: Arc<Context>,
}

impl Cuda {
    fn queued(&self, what: &'static str) -> Result<()> {
        *lock(&self.state.last) = what;
        if self.patient && !self.state.capturing() { self.stream.wait(&format!("`{what}`")) } else { Ok(()) }
    }

    fn launch_one(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, early: bool, args: &[u8]) -> Result<()> {
        let Some(CudaKernel(function)) = kernel.any().downcast_ref() else {
            return Err(CudaError::Kernel {
                kernel: format!("{kernel:?}"),
                why: "it belongs to another device".into(),
            });
        };
        let shape = Shape { grid: launch.grid, block: launch.block, shared: launch.shared };
        function.launch(&self.stream, shape, early, args)?;
        self.queued(function.name)
    }

    fn not_in_capture(&self, what: &str) -> Result<()> {
        if !self.state.capturing() {
            return Ok(());
        }
        let why = format!("{what} cannot happen while a graph is recorded");
        Err(CudaError::Call { call: "recording a graph".into(), why })
    }
}

impl Backend for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_bytes(&self) -> Result<usize> {
        self.context.free_bytes()
    }

    fn alloc(&self, what: &str, bytes: usize) -> Result<u64> {
        self.not_in_capture(&format!("taking memory for {what}"))?;
        self.context.alloc(what, bytes)
    }

    fn release(&self, at: u64, _bytes: usize) {
        if self.state.capturing() {
            lock(&self.waiting).push(at);
        } else {
            self.context.free(at);
        }
    }

    fn copy_in(&self, to: u64, data: &[u8]) -> Result<()> {
        self.not_in_capture("a copy that waits")?;
        if data.is_empty() {
            return Ok(());
        }
        // SAFETY: `data` is borrowed until the copy has run.
        unsafe { self.stream.copy_in(to, data.as_ptr(), data.len())? };
        self.sync()
    }

    fn copy_out(&self, out: &mut [u8], from: u64) -> Result<()> {
        self.not_in_capture("a copy that waits")?;
        if out.is_empty() {
            return self.sync();
        }
        // SAFETY: `out` is borrowed until the copy has run.
        unsafe { self.stream.copy_out(out.as_mut_ptr(), from, out.len())? };
        self.sync()
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8> {
        self.not_in_capture("taking page-locked memory")?;
        self.context.alloc_host(bytes)
    }

    fn release_pinned(&self, at: *mut u8, _bytes: usize) {
        // Queued copies may still use it.
        if !self.state.capturing() {
            let _ = self.sync();
        }
        self.context.free_host(at);
    }

    fn push(&self, to: u64, from: (*const u8, usize)) -> Result<()> {
        if from.1 == 0 {
            return Ok(());
        }
        // SAFETY: page-locked memory that stays valid: by the contract of `Gpu::push`, and `release_pinned` waits.
        unsafe { self.stream.copy_in(to, from.0, from.1) }
    }

    fn pull(&self, to: (*const u8, usize), from: u64) -> Result<()> {
        if to.1 == 0 {
            return Ok(());
        }
        // SAFETY: as in `push`; the host reads it after it has waited.
        unsafe { self.stream.copy_out(to.0.cast_mut(), from, to.1) }
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 { Ok(()) } else { self.stream.copy(to, from, bytes) }
    }

    fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()> {
        if bytes == 0 { Ok(()) } else { self.stream.fill(at, byte, bytes) }
    }

    fn load(&self, file: &'static str, name: &'static str, defines: &[Define]) -> Result<Arc<dyn RawKernel>> {
        self.not_in_capture(&format!("loading kernel `{name}`"))?;
        let key = (file, defines.to_vec());
        let mut modules = lock(&self.modules);
        let module = match modules.get(&key) {
            Some(module) => module.clone(),
            None => {
                let cubin = cubin::cubin(file, defines, self.info.arch)?;
                let module = Arc::new(Module::load(self.context.clone(), &cubin.image, file)?);
                modules.insert(key, module.clone());
                module
            }
        };
        Ok(Arc::new(CudaKernel(module.function(name, self.info.shared)?)))
    }

    fn launch(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, args: &[u8]) -> Result<()> {
        self.launch_one(kernel, launch, false, args)
    }

    fn launch_early(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, args: &[u8]) -> Result<()> {
        self.launch_one(kernel, launch, true, args)
    }

    fn gemm(&self, gemm: &Gemm) -> Result<()> {
        lock(&self.blas).run(gemm, self.state.capturing())?;
        self.queued("matrix product")
    }

    fn sync(&self) -> Result<()> {
        self.not_in_capture("waiting")?;
        self.stream.wait(&self.state.after())
    }

    fn begin_capture(&self) -> Result<()> {
        self.not_in_capture("beginning another recording")?;
        self.stream.begin_capture()?;
        self.state.capturing.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn RawGraph>> {
        let graph = self.stream.end_capture();
        self.state.capturing.store(false, Ordering::Relaxed);
        lock(&self.waiting).drain(..).for_each(|at| self.context.free(at));
        Ok(Box::new(CudaGraph { graph: graph?, state: self.state.clone() }))
    }

    fn event(&self) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(CudaEvent { event: self.stream.event()?, state: self.state.clone() }))
    }
}
