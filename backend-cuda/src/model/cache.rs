//! The key/value cache of one model: flat rows of every layer, as [`crate::ops::rows`] explains.

use super::advise;
use super::source::Fill;
use crate::device::{Buffer, Dtype, Gpu, Ptr};
use crate::error::Result;

/// Keys and values of all layers.
///
/// Latent attention has one array a layer, \[rows\]\[latent + rope\]; grouped-query attention two, keys then values,
/// \[rows\]\[heads\]\[head_dim\] each. All arrays have rows of the same size.
#[derive(Debug)]
pub struct Cache {
    memory: Buffer<u8>,
    bases: Buffer<u64>,
    rows: usize,
    row_bytes: usize,
    parts: usize,
    /// Arrays of one layer.
    each: usize,
}

/// Arrays begin at multiples of this, so that 16-byte accesses and bulk copies are aligned.
const ALIGN: usize = 256;

impl Cache {
    pub(crate) fn new(gpu: &Gpu, layers: usize, each: usize, row_bytes: usize, rows: usize) -> Result<Self> {
        let part = (rows * row_bytes).next_multiple_of(ALIGN);
        let parts = layers * each;
        let what = format!("the key/value cache ({rows} rows of {} bytes over {layers} layers)", parts * row_bytes);
        let memory = advise(gpu.alloc(&what, part * parts), "lower `slots` or `context`")?;
        // The sink row and rows that a mask hides may be read before they are written: zeros keep NaN out of products with 0.
        gpu.fill(&memory, 0)?;
        let at: Vec<u64> = (0..parts).map(|i| memory.at(i * part).0).collect();
        Ok(Self { bases: gpu.upload("cache table", &at)?, memory, rows, row_bytes, parts, each })
    }

    /// Fills all rows of a bf16 cache with numbers of variance 1, for contexts without meaning.
    pub(crate) fn fill(&self, gpu: &Gpu, seed: u64) -> Result<()> {
        let count = self.memory.len() / Dtype::Bf16.bytes();
        Fill::new(gpu, seed)?.uniform(gpu, Dtype::Bf16, self.memory.ptr(), count, 3f32.sqrt())
    }

    /// Rows of every array, the sink included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of arrays.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Address of every array, u64 \[parts\] on the device.
    #[must_use]
    pub fn bases(&self) -> Ptr {
        self.bases.ptr()
    }

    /// Bytes of one row of one array.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// One array.
    #[must_use]
    pub fn part(&self, index: usize) -> Ptr {
        self.memory.at(index * (self.rows * self.row_bytes).next_multiple_of(ALIGN))
    }

    /// First and last array of a layer (the same under latent attention).
    pub(crate) fn layer(&self, layer: usize) -> (Ptr, Ptr) {
        (self.part(layer * self.each), self.part(layer * self.each + self.each - 1))
    }
}
