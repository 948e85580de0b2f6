//! What a GPU hands out: kernels, recorded work and marks, and the state that these share with it.

use super::lock;
use crate::device::backend::{RawEvent, RawGraph, RawKernel};
use crate::error::{CudaError, Result};
use crate::ffi::module::Function;
use crate::ffi::stream::{Event, GraphExec};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What marks and the device share.
#[derive(Debug)]
pub(super) struct State {
    pub capturing: AtomicBool,
    /// The kernel queued last, to be named when an error shows up later.
    pub last: Mutex<&'static str>,
}

impl State {
    pub fn capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    pub fn after(&self) -> String {
        format!("work up to `{}` (TREELINE_SYNC=1 finds the one)", lock(&self.last))
    }
}

#[derive(Debug)]
pub(super) struct CudaKernel(pub Function);

impl RawKernel for CudaKernel {
    fn any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
pub(super) struct CudaGraph {
    pub graph: GraphExec,
    pub state: Arc<State>,
}

impl RawGraph for CudaGraph {
    fn launch(&self) -> Result<()> {
        self.graph.launch()?;
        *lock(&self.state.last) = "graph";
        Ok(())
    }

    fn nodes(&self) -> usize {
        self.graph.nodes()
    }
}

#[derive(Debug)]
pub(super) struct CudaEvent {
    pub event: Event,
    pub state: Arc<State>,
}

impl RawEvent for CudaEvent {
    fn record(&self) -> Result<()> {
        self.event.record(self.state.capturing())
    }

    fn wait(&self) -> Result<()> {
        self.event.wait(&self.state.after())
    }

    fn elapsed_ms(&self, later: &dyn RawEvent) -> Result<f32> {
        let Some(later) = later.any().downcast_ref::<Self>() else {
            let why = "the events belong to different devices".into();
            return Err(CudaError::Call { call: "timing between events".into(), why });
        };
        self.event.elapsed_ms(&later.event)
    }

    fn any(&self) -> &dyn Any {
        self
    }
}
