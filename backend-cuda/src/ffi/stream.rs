//! The stream of a GPU, marks in it, and recorded work.

use super::context::Context;
use super::driver::check;
use crate::error::{CudaError, Result};
use cudarc::driver::sys;
use std::sync::Arc;

/// A stream. The addresses given to its functions must be valid until the queued work has run.
#[derive(Debug)]
pub(crate) struct Stream {
    handle: sys::CUstream,
    pub context: Arc<Context>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: Arc<Context>) -> Result<Self> {
        context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle; destroyed when dropped.
        check(unsafe { sys::cuStreamCreate(&raw mut handle, flags) }, "making a stream")?;
        Ok(Self { handle, context })
    }

    /// For calls that take a stream.
    pub fn raw(&self) -> sys::CUstream {
        self.handle
    }

    /// Queues a copy from host memory.
    ///
    /// # Safety
    /// `from` is readable for `bytes` until the copy has run, `to` is device memory of that size.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the caller's.
        check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.handle) }, "copying to the GPU")
    }

    /// Queues a copy to host memory.
    ///
    /// # Safety
    /// `to` is writable for `bytes` until the copy has run, `from` is device memory of that size.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the caller's.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.handle) }, "copying from the GPU")
    }

    /// Queues a copy on the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.context.enter()?;
        // SAFETY: device addresses; a bad one is an error of the device, not of this process.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle) }, "copying on the GPU")
    }

    /// Queues a fill.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<()> {
        self.context.enter()?;
        // SAFETY: device addresses, as above.
        check(unsafe { sys::cuMemsetD8Async(at, byte, bytes, self.handle) }, "filling GPU memory")
    }

    /// Waits for everything queued.
    ///
    /// # Errors
    /// What queued work did wrong; `after` names it.
    pub fn wait(&self, after: &str) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the handle is valid.
        check(unsafe { sys::cuStreamSynchronize(self.handle) }, after)
    }

    /// Begins recording in the calling thread.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin_capture(&self) -> Result<()> {
        self.context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is valid.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.handle, mode) }, "beginning to record a graph")
    }

    /// Ends recording; the graph is made ready to be launched.
    ///
    /// # Errors
    /// The driver's; something that cannot be recorded was called in between.
    pub fn end_capture(self: &Arc<Self>) -> Result<GraphExec> {
        self.context.enter()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: writes one handle, or null.
        let code = unsafe { sys::cuStreamEndCapture(self.handle, &raw mut graph) };
        check(code, "recording a graph")?;
        if graph.is_null() {
            let why = "something that cannot be recorded was called".into();
            return Err(CudaError::Call { call: "recording a graph".into(), why });
        }
        let exec = self.instantiate(graph);
        // SAFETY: made above; the instance does not need it.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        exec
    }

    fn instantiate(self: &Arc<Self>, graph: sys::CUgraph) -> Result<GraphExec> {
        let (mut nodes, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: with no array only the count is written.
        let code = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut nodes) };
        check(code, "counting a graph's nodes")?;
        // SAFETY: writes one handle; destroyed when dropped.
        check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut handle, graph, 0) }, "making a graph ready")?;
        let exec = GraphExec { handle, nodes, stream: self.clone() };
        // SAFETY: both handles are valid. Without it the first launch pays for the upload.
        check(unsafe { sys::cuGraphUpload(exec.handle, self.handle) }, "uploading a graph")?;
        Ok(exec)
    }

    /// A mark.
    ///
    /// # Errors
    /// The driver's.
    pub fn event(self: &Arc<Self>) -> Result<Event> {
        self.context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; destroyed when dropped.
        check(unsafe { sys::cuEventCreate(&raw mut handle, 0) }, "making an event")?;
        Ok(Event { handle, stream: self.clone() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: the handle is valid and dropped once; work that is queued still runs.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

/// Recorded work.
#[derive(Debug)]
pub(crate) struct GraphExec {
    handle: sys::CUgraphExec,
    nodes: usize,
    stream: Arc<Stream>,
}

impl GraphExec {
    /// Queues it.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self) -> Result<()> {
        self.stream.context.enter()?;
        // SAFETY: both handles are valid.
        check(unsafe { sys::cuGraphLaunch(self.handle, self.stream.raw()) }, "launching a graph")
    }

    /// Number of recorded operations.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if self.stream.context.enter().is_ok() {
            // SAFETY: the handle is valid and dropped once; a launch that runs still ends.
            let _ = unsafe { sys::cuGraphExecDestroy(self.handle) };
        }
    }
}

/// A mark in a stream, with a time.
#[derive(Debug)]
pub(crate) struct Event {
    handle: sys::CUevent,
    stream: Arc<Stream>,
}

impl Event {
    /// Marks the end of what is queued. Inside a capture the mark becomes an operation of the graph, so that every launch of it
    /// sets the mark anew and phases inside a graph can be timed.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self, capturing: bool) -> Result<()> {
        self.stream.context.enter()?;
        let external = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        let flags = if capturing { external } else { 0 };
        // SAFETY: both handles are valid.
        check(unsafe { sys::cuEventRecordWithFlags(self.handle, self.stream.raw(), flags) }, "marking an event")
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// What queued work did wrong; `after` names it.
    pub fn wait(&self, after: &str) -> Result<()> {
        self.stream.context.enter()?;
        // SAFETY: the handle is valid.
        check(unsafe { sys::cuEventSynchronize(self.handle) }, after)
    }

    /// Milliseconds from this mark to `later`.
    ///
    /// # Errors
    /// The driver's; a mark that was never recorded.
    pub fn elapsed_ms(&self, later: &Self) -> Result<f32> {
        self.stream.context.enter()?;
        let mut ms = 0.0;
        // SAFETY: writes one number.
        check(unsafe { sys::cuEventElapsedTime_v2(&raw mut ms, self.handle, later.handle) }, "timing between events")?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.stream.context.enter().is_ok() {
            // SAFETY: the handle is valid and dropped once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
