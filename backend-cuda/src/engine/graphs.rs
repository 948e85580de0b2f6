//! Captured graphs by what they run, and the eager form of the same work.

use crate::device::{Gpu, Graph};
use crate::error::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The graphs of one kind of work, by key. The buffers that they read and write are the engine's, sized once for the
/// largest key, so a graph stays valid whatever ran in between.
#[derive(Debug)]
pub(crate) struct Graphs<K> {
    on: bool,
    captured: HashMap<K, Graph>,
    spent: Duration,
}

impl<K> Default for Graphs<K> {
    fn default() -> Self {
        Self { on: false, captured: HashMap::new(), spent: Duration::ZERO }
    }
}

impl<K: Copy + Eq + Hash + Debug> Graphs<K> {
    /// None captured. With `on` false everything runs eagerly.
    pub fn new(on: bool) -> Self {
        Self { on, captured: HashMap::new(), spent: Duration::ZERO }
    }

    /// Queues `work`, from its graph where graphs are on: captured at the first use of `key`, after the work has run once
    /// eagerly (libraries choose their algorithms then, outside of the capture). So `work` must be such that running it
    /// twice in a row is the same as once. Returns whether a graph ran.
    pub fn run(&mut self, gpu: &Gpu, key: K, work: impl Fn() -> Result<()>) -> Result<bool> {
        if self.on && !self.captured.contains_key(&key) {
            // What was queued before belongs to the round.
            gpu.sync()?;
            let begin = Instant::now();
            work()?;
            gpu.sync()?;
            self.spent += begin.elapsed();
        }
        self.run_once(gpu, key, work)
    }

    /// The same for work that may not run twice, and that no library has a choice in.
    pub fn run_once(&mut self, gpu: &Gpu, key: K, work: impl Fn() -> Result<()>) -> Result<bool> {
        if !self.on {
            work()?;
            return Ok(false);
        }
        let graph = match self.captured.entry(key) {
            Entry::Occupied(graph) => graph.into_mut(),
            Entry::Vacant(place) => {
                let begin = Instant::now();
                let graph = place.insert(gpu.capture(&work)?);
                self.spent += begin.elapsed();
                graph
            }
        };
        graph.launch()?;
        Ok(true)
    }

    /// Time that captures have taken since the last call: spent once, so it belongs to no phase of a round.
    pub fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// Drops every captured graph; the next use captures anew.
    pub fn forget(&mut self) {
        self.captured.clear();
    }

    /// Number of captured graphs.
    pub fn len(&self) -> usize {
        self.captured.len()
    }
}
