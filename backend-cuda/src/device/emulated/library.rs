//! Loaded kernels and their launches.

use super::memory::Range;
use super::{MOST_SHARED, compile};
use crate::device::backend::RawKernel;
use crate::device::{Define, Launch};
use crate::error::{CudaError, Result};
use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes of a thread's stack. Not a power of two: the tops of all stacks would share their place in the processor's cache.
const STACK: usize = (64 << 10) + 17 * 64;

/// Most threads of a block.
const MOST_THREADS: u32 = 1024;

/// One launch, as `emulate_host.cuh` takes it.
#[repr(C)]
struct RawLaunch {
    args: *const u8,
    stacks: *mut u8,
    ranges: *const Range,
    range_count: u64,
    error: *mut u8,
    error_bytes: u64,
    stack_bytes: u64,
    grid: [u32; 3],
    block: u32,
    shared: u32,
    backward: u32,
}

type Find = unsafe extern "C" fn(*const c_char, *mut *const c_void, *mut u64, *mut u32) -> bool;
type Run = unsafe extern "C" fn(*const c_void, *const RawLaunch);

/// A loaded file. It stays loaded to the end of the process, since its signal handlers do.
#[derive(Debug)]
struct Library {
    find: Find,
    /// The state of a launch (threads, shared memory) is global in the library: one launch at a time.
    run: Mutex<Run>,
}

/// A kernel of a loaded file.
#[derive(Debug, Clone)]
pub(super) struct EmulatedKernel {
    name: &'static str,
    library: &'static Library,
    /// Address of the library's own record.
    entry: usize,
    args_bytes: usize,
    threads: u32,
}

impl RawKernel for EmulatedKernel {
    fn any(&self) -> &dyn Any {
        self
    }
}

type Slot = Arc<OnceLock<&'static Library>>;

/// Loads `name` of `file`, compiled once in this process and once in the cache.
pub(super) fn kernel(file: &'static str, name: &'static str, defines: &[Define]) -> Result<EmulatedKernel> {
    static LOADED: OnceLock<Mutex<HashMap<String, Slot>>> = OnceLock::new();
    let unit = compile::unit(file, defines)?;
    let slot = {
        let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        loaded.entry(unit.name.clone()).or_default().clone()
    };
    let library = match slot.get() {
        Some(library) => library,
        None => {
            let library = open(&unit.library()?.path)?;
            // Another thread may have been first: the loader may give both the same library, and all must share one lock.
            slot.get_or_init(|| library)
        }
    };
    let problem = |why: &str| CudaError::Kernel { kernel: name.into(), why: why.into() };
    let c_name = CString::new(name).map_err(|_| problem("its name has a NUL byte"))?;
    let (mut entry, mut args_bytes, mut threads) = (std::ptr::null(), 0u64, 0u32);
    // SAFETY: `find` reads the name and writes the three places, all of which outlive the call.
    if !unsafe { (library.find)(c_name.as_ptr(), &raw mut entry, &raw mut args_bytes, &raw mut threads) } {
        return Err(problem(&format!("{file} has no kernel of this name")));
    }
    Ok(EmulatedKernel { name, library, entry: entry as usize, args_bytes: args_bytes as usize, threads })
}

fn open(path: &std::path::Path) -> Result<&'static Library> {
    let problem = |e: libloading::Error| CudaError::Call {
        call: format!("loading {}", path.display()),
        why: e.source().map_or_else(|| e.to_string(), |reason| reason.to_string()),
    };
    // SAFETY: the file was compiled from this crate's own sources; its start-up code only links records together.
    let library = Box::leak(Box::new(unsafe { libloading::Library::new(path) }.map_err(problem)?));
    // SAFETY: both symbols have these types in `emulate_launch.cuh`, and the library is never unloaded.
    let (find, run) = unsafe {
        let find: Find = *library.get(b"tl_find\0").map_err(problem)?;
        let run: Run = *library.get(b"tl_launch\0").map_err(problem)?;
        (find, run)
    };
    Ok(Box::leak(Box::new(Library { find, run: Mutex::new(run) })))
}

/// Stacks for the threads of a block, kept by each host thread for its next launch. Pages are touched only when used.
struct Stacks {
    at: *mut u8,
    count: usize,
}

impl Stacks {
    fn layout(count: usize) -> Option<Layout> {
        Layout::from_size_align(count * STACK, 4096).ok()
    }

    /// Stacks for at least `count` threads, or null.
    fn hold(&mut self, count: usize) -> *mut u8 {
        if count > self.count {
            self.release();
            if let Some(layout) = Self::layout(count) {
                // SAFETY: the layout's size is not 0, since `count` is not.
                self.at = unsafe { alloc(layout) };
                self.count = if self.at.is_null() { 0 } else { count };
            }
        }
        self.at
    }

    fn release(&mut self) {
        if let (false, Some(layout)) = (self.at.is_null(), Self::layout(self.count)) {
            // SAFETY: `hold` allocated this address with this layout.
            unsafe { dealloc(self.at, layout) };
        }
        (self.at, self.count) = (std::ptr::null_mut(), 0);
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        self.release();
    }
}

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks { at: std::ptr::null_mut(), count: 0 }) };
}

impl EmulatedKernel {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    fn problem(&self, why: String) -> CudaError {
        CudaError::Kernel { kernel: self.name.into(), why }
    }

    /// Whether a launch of this shape with these arguments can run.
    pub(super) fn check(&self, launch: Launch, args: &[u8]) -> Result<()> {
        if args.len() != self.args_bytes {
            let why = format!("its arguments have {} bytes, {} were given", self.args_bytes, args.len());
            return Err(self.problem(why));
        }
        if launch.block > self.threads.min(MOST_THREADS) {
            return Err(self.problem(format!("{} threads a block, it is built for {}", launch.block, self.threads)));
        }
        if launch.shared > MOST_SHARED {
            return Err(self.problem(format!("{} bytes of shared memory, a block has {MOST_SHARED}", launch.shared)));
        }
        if launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > i32::MAX as u32 {
            return Err(self.problem(format!("a grid of {:?} blocks, more than a device takes", launch.grid)));
        }
        Ok(())
    }

    /// Runs it; `ranges` is the memory that it may use.
    pub(super) fn run(&self, launch: Launch, args: &[u8], ranges: &[Range], backward: bool) -> Result<()> {
        // The kernel reads its arguments where they lie: as aligned as its struct can ask for.
        let mut aligned = vec![0u128; args.len().div_ceil(16).max(1)];
        bytemuck::cast_slice_mut(&mut aligned)[..args.len()].copy_from_slice(args);
        let mut error = [0u8; 2048];
        STACKS.with_borrow_mut(|stacks| {
            let at = stacks.hold(launch.block as usize);
            if at.is_null() {
                return Err(self.problem(format!("no memory for {} stacks", launch.block)));
            }
            let raw = RawLaunch {
                args: aligned.as_ptr().cast(),
                stacks: at,
                ranges: ranges.as_ptr(),
                range_count: ranges.len() as u64,
                error: error.as_mut_ptr(),
                error_bytes: error.len() as u64,
                stack_bytes: STACK as u64,
                grid: launch.grid,
                block: launch.block,
                shared: launch.shared,
                backward: u32::from(backward),
            };
            let run = self.library.run.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the struct is laid out as the library's, everything it points to outlives the call, the lock makes this
            // the library's only launch, and the kernel's memory accesses are what the emulator is there to check.
            unsafe { run(self.entry as *const c_void, &raw const raw) };
            Ok(())
        })?;
        let said = error.split(|b| *b == 0).next().unwrap_or_default();
        if said.is_empty() { Ok(()) } else { Err(self.problem(String::from_utf8_lossy(said).into_owned())) }
    }
}
