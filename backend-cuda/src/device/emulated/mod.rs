//! The emulator: the kernels compiled for the host and run thread by thread, everything in order and at once.
//!
//! What a GPU would do silently ends here with an error: a kernel that hangs, an access outside a buffer, a copy or an
//! allocation inside a capture that a graph cannot hold. See `docs/emulator.md`.

mod compile;
mod gemm;
mod library;
mod memory;
mod stream;

use super::backend::{Arch, Backend, DeviceInfo, RawEvent, RawGraph, RawKernel};
use super::{Define, Gemm, Launch};
use crate::error::{CudaError, Result};
use library::EmulatedKernel;
use memory::Memory;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use stream::{Mark, Operation};

/// Most dynamic shared memory of a block, as on the GPUs that kernels are written for.
const MOST_SHARED: u32 = 227 * 1024;

pub(super) fn open() -> Result<Arc<dyn Backend>> {
    compile::compiler()?;
    let info = DeviceInfo {
        name: "emulator".into(),
        arch: Arch::Host,
        // Few, so that a grid of one block a multiprocessor runs fast.
        sms: 16,
        memory: memory::CAPACITY,
        shared: MOST_SHARED,
        driver: String::new(),
    };
    let order = match std::env::var("TREELINE_EMULATOR_ORDER").as_deref() {
        Ok("forward") => Order::Forward,
        Ok("backward") => Order::Backward,
        _ => Order::Both,
    };
    let state = State { memory: Mutex::default(), recording: Mutex::default(), launches: AtomicU64::new(0), order };
    Ok(Arc::new(Emulated { info, state: Arc::new(state) }))
}

/// In which order the lanes and warps of a block come to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Backward,
    /// In turn, launch by launch: a kernel whose result leans on the order does not get away with it.
    Both,
}

#[derive(Debug)]
struct Emulated {
    info: DeviceInfo,
    state: Arc<State>,
}

/// What graphs and events share with the device.
#[derive(Debug)]
struct State {
    memory: Mutex<Memory>,
    recording: Mutex<Option<Vec<Operation>>>,
    launches: AtomicU64,
    order: Order,
}

impl State {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recording(&self) -> MutexGuard<'_, Option<Vec<Operation>>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `operation`, or records it inside a capture.
    fn queue(&self, operation: Operation) -> Result<()> {
        if let Some(recorded) = self.recording().as_mut() {
            recorded.push(operation);
            return Ok(());
        }
        operation.run(self)
    }

    fn backward(&self) -> bool {
        let odd = self.launches.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match self.order {
            Order::Forward => false,
            Order::Backward => true,
            Order::Both => odd,
        }
    }

    fn not_recording(&self, call: &str) -> Result<()> {
        if self.recording().is_some() {
            return Err(failed(call, "not allowed inside a capture"));
        }
        Ok(())
    }
}

fn failed(call: &str, why: impl Into<String>) -> CudaError {
    CudaError::Call { call: call.into(), why: why.into() }
}

impl Backend for Emulated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_bytes(&self) -> Result<usize> {
        Ok(self.state.memory().free())
    }

    fn alloc(&self, what: &str, bytes: usize) -> Result<u64> {
        self.state.not_recording("alloc")?;
        self.state.memory().alloc(what, bytes, memory::Kind::Device)
    }

    fn release(&self, at: u64, _bytes: usize) {
        self.state.memory().release(at);
    }

    fn copy_in(&self, to: u64, data: &[u8]) -> Result<()> {
        self.state.not_recording("copy to the device")?;
        self.state.memory().check("copy to the device", to, data.len())?;
        // SAFETY: the bytes at `to` lie in one live allocation; `data` is host memory that it cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, data.len()) };
        Ok(())
    }

    fn copy_out(&self, out: &mut [u8], from: u64) -> Result<()> {
        self.state.not_recording("copy from the device")?;
        self.state.memory().check("copy from the device", from, out.len())?;
        // SAFETY: as in `copy_in`, with the directions swapped.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, out.as_mut_ptr(), out.len()) };
        self.state.memory().check_guards("copy from the device")
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<*mut u8> {
        self.state.not_recording("alloc of pinned memory")?;
        Ok(self.state.memory().alloc("pinned memory", bytes, memory::Kind::Pinned)? as *mut u8)
    }

    fn release_pinned(&self, at: *mut u8, _bytes: usize) {
        self.state.memory().release(at as u64);
    }

    fn push(&self, to: u64, from: (*const u8, usize)) -> Result<()> {
        self.state.queue(Operation::Copy { to, from: from.0 as u64, bytes: from.1 })
    }

    fn pull(&self, to: (*const u8, usize), from: u64) -> Result<()> {
        self.state.queue(Operation::Copy { to: to.0 as u64, from, bytes: to.1 })
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.state.queue(Operation::Copy { to, from, bytes })
    }

    fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()> {
        self.state.queue(Operation::Fill { at, byte, bytes })
    }

    fn load(&self, file: &'static str, name: &'static str, defines: &[Define]) -> Result<Arc<dyn RawKernel>> {
        Ok(Arc::new(library::kernel(file, name, defines)?))
    }

    fn launch(&self, kernel: &Arc<dyn RawKernel>, launch: Launch, args: &[u8]) -> Result<()> {
        let Some(kernel) = kernel.any().downcast_ref::<EmulatedKernel>() else {
            return Err(failed("launch", "the kernel was loaded on another kind of device"));
        };
        kernel.check(launch, args)?;
        self.state.queue(Operation::Kernel { kernel: kernel.clone(), launch, args: args.to_vec() })
    }

    fn gemm(&self, gemm: &Gemm) -> Result<()> {
        self.state.queue(Operation::Gemm(*gemm))
    }

    fn sync(&self) -> Result<()> {
        self.state.not_recording("sync")?;
        self.state.memory().check_guards("sync")
    }

    fn begin_capture(&self) -> Result<()> {
        self.state.not_recording("begin of a capture")?;
        *self.state.recording() = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn RawGraph>> {
        let recorded = self.state.recording().take();
        let operations = recorded.ok_or_else(|| failed("end of a capture", "none was begun"))?;
        Ok(Box::new(EmulatedGraph { operations, state: self.state.clone() }))
    }

    fn event(&self) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(EmulatedEvent { mark: Mark::default(), state: self.state.clone() }))
    }
}

#[derive(Debug)]
struct EmulatedGraph {
    operations: Vec<Operation>,
    state: Arc<State>,
}

impl RawGraph for EmulatedGraph {
    fn launch(&self) -> Result<()> {
        self.state.not_recording("launch of a graph")?;
        self.operations.iter().try_for_each(|o| o.run(&self.state))
    }

    fn nodes(&self) -> usize {
        self.operations.len()
    }
}

#[derive(Debug)]
struct EmulatedEvent {
    mark: Mark,
    state: Arc<State>,
}

impl EmulatedEvent {
    fn time(&self) -> Result<Instant> {
        self.mark.time().ok_or_else(|| failed("event", "it was never recorded"))
    }
}

impl RawEvent for EmulatedEvent {
    fn record(&self) -> Result<()> {
        self.state.queue(Operation::Mark(self.mark.clone()))
    }

    fn wait(&self) -> Result<()> {
        self.state.memory().check_guards("event")
    }

    fn elapsed_ms(&self, later: &dyn RawEvent) -> Result<f32> {
        let Some(later) = later.any().downcast_ref::<Self>() else {
            return Err(failed("elapsed time", "the two events are of different devices"));
        };
        Ok(later.time()?.saturating_duration_since(self.time()?).as_secs_f32() * 1e3)
    }

    fn any(&self) -> &dyn Any {
        self
    }
}
