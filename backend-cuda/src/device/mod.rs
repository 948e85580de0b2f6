//! A device: memory, kernels, matrix products, graphs, events. One [`Gpu`] is one rank: one device and one stream.
//!
//! Two backends stand behind it: a real GPU (`cuda`), and an emulator (`emulated`) that compiles the very same kernel sources
//! for the host and runs them thread by thread, so that everything but speed can be tested without a GPU.

mod backend;
mod buffer;
mod cuda;
mod emulated;
mod gemm;
mod graph;

pub use backend::{Arch, DeviceInfo};
pub use buffer::{Buffer, Pinned, Ptr};
pub(crate) use cuda::info as describe;
pub use cuda::{Cubin, Resources, cache_folder, cubin};
pub use gemm::{Dtype, Gemm, Matrix};
pub use graph::{Event, Graph};

use crate::error::{CudaError, Result};
use backend::{Backend, RawKernel};
use bytemuck::Pod;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Name and value of a preprocessor symbol that specialises a kernel.
pub type Define = (&'static str, i64);

/// The arguments of one kernel: a `#[repr(C)]` struct without padding, the same as the kernel's `struct` in C++.
pub trait KernelArgs: Pod {}

/// A kernel, compiled and loaded.
#[derive(Debug, Clone)]
pub struct Kernel {
    name: &'static str,
    raw: Arc<dyn RawKernel>,
}

/// Shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Launch {
    /// `blocks` × `threads`, no dynamic shared memory.
    #[must_use]
    pub fn flat(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: threads, shared: 0 }
    }
}

type KernelKey = (&'static str, &'static str, Vec<Define>);

/// One device with one stream. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Gpu {
    backend: Arc<dyn Backend>,
    kernels: Arc<Mutex<HashMap<KernelKey, Kernel>>>,
    allocations: Arc<AtomicU64>,
}

impl Gpu {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// A missing driver or library, no such GPU, or one that no kernel exists for.
    pub fn open(ordinal: usize) -> Result<Self> {
        Ok(Self::new(cuda::open(ordinal)?))
    }

    /// The emulator: the same kernels on the host. Needs a C++ compiler (`CXX`, else `c++`) at run time.
    ///
    /// # Errors
    /// [`CudaError::Missing`] when there is no compiler.
    pub fn emulated() -> Result<Self> {
        Ok(Self::new(emulated::open()?))
    }

    fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, kernels: Arc::default(), allocations: Arc::default() }
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.backend.info()
    }

    /// Pieces of device and page-locked memory that were taken so far, and graphs that were captured: what a round in
    /// steady state must not add to.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of device memory that are free.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<usize> {
        self.backend.free_bytes()
    }

    /// Memory for `len` elements, its content undefined (the emulator poisons it with 0xFF). `what` names it in errors.
    ///
    /// # Errors
    /// [`CudaError::Memory`] when it does not fit.
    pub fn alloc<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        self.count();
        Buffer::new(self.backend.clone(), what, len)
    }

    /// The same, filled with zero bytes.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    pub fn zeroed<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        let buffer = self.alloc(what, len)?;
        self.fill(&buffer, 0)?;
        Ok(buffer)
    }

    /// A copy of `data` on the device.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    pub fn upload<T: Pod>(&self, what: &str, data: &[T]) -> Result<Buffer<T>> {
        let buffer = self.alloc(what, data.len())?;
        self.copy_in(buffer.ptr(), data)?;
        Ok(buffer)
    }

    /// Copies `data` to `to`, in stream order; returns when `data` may be reused. Not for use inside a capture.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_in<T: Pod>(&self, to: Ptr, data: &[T]) -> Result<()> {
        self.backend.copy_in(to.0, bytemuck::cast_slice(data))
    }

    /// Waits for the stream and returns `len` elements from `from`.
    ///
    /// # Errors
    /// The driver's, those of earlier launches included.
    pub fn read<T: Pod>(&self, from: Ptr, len: usize) -> Result<Vec<T>> {
        let mut out = vec![T::zeroed(); len];
        self.backend.copy_out(bytemuck::cast_slice_mut(&mut out), from.0)?;
        Ok(out)
    }

    /// All of a buffer, as [`Gpu::read`].
    ///
    /// # Errors
    /// As [`Gpu::read`].
    pub fn read_all<T: Pod>(&self, from: &Buffer<T>) -> Result<Vec<T>> {
        self.read(from.ptr(), from.len())
    }

    /// Page-locked host memory for copies that do not wait.
    ///
    /// # Errors
    /// The driver's.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        self.count();
        Pinned::new(self.backend.clone(), len)
    }

    /// Queues a copy of `len` elements from pinned memory, allowed inside a capture. The host must not write `from` before
    /// the copy has run.
    ///
    /// # Errors
    /// The driver's; a length beyond `from`.
    pub fn push<T: Pod>(&self, to: Ptr, from: &Pinned<T>, len: usize) -> Result<()> {
        self.backend.push(to.0, from.bytes(len)?)
    }

    /// Queues a copy of `len` elements into pinned memory, allowed inside a capture; read it after [`Gpu::sync`] or an event.
    ///
    /// # Errors
    /// The driver's; a length beyond `to`.
    pub fn pull<T: Pod>(&self, to: &Pinned<T>, from: Ptr, len: usize) -> Result<()> {
        self.backend.pull(to.bytes(len)?, from.0)
    }

    /// Queues a copy on the device, allowed inside a capture.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy(&self, to: Ptr, from: Ptr, bytes: usize) -> Result<()> {
        self.backend.copy(to.0, from.0, bytes)
    }

    /// Queues a fill of a whole buffer with one byte, allowed inside a capture.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill<T: Pod>(&self, buffer: &Buffer<T>, byte: u8) -> Result<()> {
        self.backend.fill(buffer.ptr().0, byte, buffer.bytes())
    }

    /// A kernel of `file` (a name in `kernels/`) under these defines; compiled once, then taken from the cache.
    ///
    /// # Errors
    /// [`CudaError::Compile`], or what the driver says of the module.
    pub fn kernel(&self, file: &'static str, name: &'static str, defines: &[Define]) -> Result<Kernel> {
        let key = (file, name, defines.to_vec());
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Kernel { name, raw: self.backend.load(file, name, defines)? };
        kernels.insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Queues a kernel.
    ///
    /// # Errors
    /// Arguments of another size than the kernel's, or the driver's.
    pub fn launch<A: KernelArgs>(&self, kernel: &Kernel, launch: Launch, args: &A) -> Result<()> {
        not_empty(kernel, launch)?;
        self.backend.launch(&kernel.raw, launch, bytemuck::bytes_of(args))
    }

    /// Queues a kernel whose blocks may start while the kernel queued before it still runs. It must wait by itself
    /// (`griddepcontrol.wait`, in `ptx.cuh`) before it reads what any earlier kernel wrote, or writes what one reads.
    ///
    /// # Errors
    /// As [`Gpu::launch`].
    pub fn launch_early<A: KernelArgs>(&self, kernel: &Kernel, launch: Launch, args: &A) -> Result<()> {
        not_empty(kernel, launch)?;
        self.backend.launch_early(&kernel.raw, launch, bytemuck::bytes_of(args))
    }

    /// Queues a matrix product. The algorithm for a shape is chosen at its first use, outside captures.
    ///
    /// # Errors
    /// The library's.
    pub fn gemm(&self, gemm: &Gemm) -> Result<()> {
        self.backend.gemm(gemm)
    }

    /// Waits for everything that was queued.
    ///
    /// # Errors
    /// What a queued kernel did wrong.
    pub fn sync(&self) -> Result<()> {
        self.backend.sync()
    }

    /// Records what `body` queues without running it.
    ///
    /// # Errors
    /// Those of `body`, and of the capture.
    pub fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.count();
        graph::capture(&self.backend, body)
    }

    /// A mark in the stream with a time.
    ///
    /// # Errors
    /// The driver's.
    pub fn event(&self) -> Result<Event> {
        graph::event(&self.backend)
    }
}

fn not_empty(kernel: &Kernel, launch: Launch) -> Result<()> {
    if launch.grid.contains(&0) || launch.block == 0 {
        return Err(CudaError::Kernel { kernel: kernel.name.into(), why: format!("empty launch {launch:?}") });
    }
    Ok(())
}
