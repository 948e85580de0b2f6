//! Recorded work, and marks in the stream.

use super::backend::{Backend, RawEvent, RawGraph};
use crate::error::Result;
use std::sync::Arc;

/// Recorded work that can be queued as one.
#[derive(Debug)]
pub struct Graph {
    raw: Box<dyn RawGraph>,
}

impl Graph {
    /// Queues it.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self) -> Result<()> {
        self.raw.launch()
    }

    /// Number of recorded operations.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.raw.nodes()
    }
}

pub(super) fn capture(backend: &Arc<dyn Backend>, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
    backend.begin_capture()?;
    let outcome = body();
    let raw = backend.end_capture();
    outcome?;
    Ok(Graph { raw: raw? })
}

/// A mark in the stream.
#[derive(Debug)]
pub struct Event {
    raw: Box<dyn RawEvent>,
}

impl Event {
    /// Marks the end of what is queued so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self) -> Result<()> {
        self.raw.record()
    }

    /// Waits until the mark is reached.
    ///
    /// # Errors
    /// What the work before it did wrong.
    pub fn wait(&self) -> Result<()> {
        self.raw.wait()
    }

    /// Milliseconds from this mark to `later`; waits for both.
    ///
    /// # Errors
    /// The driver's; a mark that was never recorded.
    pub fn elapsed_ms(&self, later: &Self) -> Result<f32> {
        later.raw.wait()?;
        self.raw.elapsed_ms(&*later.raw)
    }
}

pub(super) fn event(backend: &Arc<dyn Backend>) -> Result<Event> {
    Ok(Event { raw: backend.event()? })
}
