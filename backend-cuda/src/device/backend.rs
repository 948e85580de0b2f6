//! What a device must do, by raw addresses. [`super::Gpu`] is the typed face of it.

use super::{Define, Gemm, Launch};
use crate::error::Result;
use std::fmt::Debug;
use std::sync::Arc;

/// Which machine code a device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Hopper (H100, H200).
    Sm90a,
    /// Blackwell (B200).
    Sm100a,
    /// Blackwell (B300).
    Sm103a,
    /// The emulator.
    Host,
}

impl Arch {
    /// The three GPU architectures that every kernel is compiled for.
    pub const GPUS: [Self; 3] = [Self::Sm90a, Self::Sm100a, Self::Sm103a];

    /// As the compiler names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
            Self::Sm100a => "sm_100a",
            Self::Sm103a => "sm_103a",
            Self::Host => "host",
        }
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name as the driver gives it.
    pub name: String,
    /// Machine code.
    pub arch: Arch,
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of memory.
    pub memory: usize,
    /// Most bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// Driver version, as `major.minor`; empty for the emulator.
    pub driver: String,
}

/// A loaded kernel.
pub(crate) trait RawKernel: Debug + Send + Sync {
    /// The backend's own type.
    fn any(&self) -> &dyn std::any::Any;
}

/// A recorded sequence of work.
pub(crate) trait RawGraph: Debug {
    /// Queues it.
    fn launch(&self) -> Result<()>;
    /// Number of recorded operations.
    fn nodes(&self) -> usize;
}

/// A mark in the stream.
pub(crate) trait RawEvent: Debug {
    /// Marks the end of what is queued so far.
    fn record(&self) -> Result<()>;
    /// Waits until the mark is reached.
    fn wait(&self) -> Result<()>;
    /// Milliseconds from this mark to `later`, both reached.
    fn elapsed_ms(&self, later: &dyn RawEvent) -> Result<f32>;
    /// The backend's own type.
    fn any(&self) -> &dyn std::any::Any;
}

/// One device and its stream. Addresses and sizes are in bytes.
pub(crate) trait Backend: Debug + Send + Sync {
    fn info(&self) -> &DeviceInfo;
    fn free_bytes(&self) -> Result<usize>;
    /// `what` names the memory in [`crate::CudaError::Memory`]; `bytes` is not 0.
    fn alloc(&self, what: &str, bytes: usize) -> Result<u64>;
    fn release(&self, at: u64, bytes: usize);
    fn copy_in(&self, to: u64, data: &[u8]) -> Result<()>;
    fn copy_out(&self, out: &mut [u8], from: u64) -> Result<()>;
    /// Host memory for [`Backend::push`] and [`Backend::pull`], zeroed; cached for host reads (not write-combined).
    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8>;
    fn release_pinned(&self, at: *mut u8, bytes: usize);
    /// The memory of `from` stays valid until the copy has run.
    fn push(&self, to: u64, from: (*const u8, usize)) -> Result<()>;
    fn pull(&self, to: (*const u8, usize), from: u64) -> Result<()>;
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()>;
    fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()>;
    fn load(&self, file: &'static str, name: &'static str, defines: &[Define]) -> Result<Arc<dyn RawKernel>>;
    fn launch(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, args: &[u8]) -> Result<()>;
    /// As [`Backend::launch`], where a device can overlap the start with the end of the kernel before.
    fn launch_early(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, args: &[u8]) -> Result<()> {
        self.launch(kernel, launch, args)
    }
    fn gemm(&self, gemm: &Gemm) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn begin_capture(&self) -> Result<()>;
    /// Called also after a failed body, to leave capture mode.
    fn end_capture(&self) -> Result<Box<dyn RawGraph>>;
    fn event(&self) -> Result<Box<dyn RawEvent>>;
}
