//! Where a pass stands: what every layer needs to queue its steps.

use super::{Part, Probe};
use crate::device::Gpu;
use crate::error::Result;
use crate::ops::rows::{Bucket, RowsPtr};

/// One pass through a model.
pub(super) struct Pass<'a> {
    pub gpu: &'a Gpu,
    pub bucket: Bucket,
    pub rows: RowsPtr,
    /// Number of the layer that is being queued.
    pub layer: usize,
    /// Sliding window of this layer; 0 = none.
    pub window: u32,
    probe: Probe<'a>,
}

impl<'a> Pass<'a> {
    pub fn new(gpu: &'a Gpu, bucket: Bucket, rows: RowsPtr, probe: Probe<'a>) -> Self {
        Self { gpu, bucket, rows, layer: 0, window: 0, probe }
    }

    /// Padded rows.
    pub fn len(&self) -> usize {
        self.bucket.rows as usize
    }

    /// Queues one step, unless the probe leaves it out.
    pub fn step(&mut self, part: Part, run: impl FnOnce(&Gpu) -> Result<()>) -> Result<()> {
        if (self.probe)(part, self.layer)? {
            run(self.gpu)?;
        }
        Ok(())
    }
}
