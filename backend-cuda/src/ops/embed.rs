//! Embedding: x\[r\] = table\[token\[r\]\].

use super::rows::RowsPtr;
use super::vector::{blocks, defines, threads, widest};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Looks up the rows of a pass in an embedding table.
#[derive(Debug)]
pub struct Embed {
    kernel: Kernel,
    threads: usize,
    columns: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct EmbedArgs {
    table: Ptr,
    token: Ptr,
    seq: Ptr,
    x: Ptr,
    vocab: u32,
    unused: u32,
}

impl KernelArgs for EmbedArgs {}

impl Embed {
    /// For a table of activations of this type, `hidden` wide.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, hidden: usize) -> Result<Self> {
        let vec = widest(dtype, &[hidden]);
        let threads = threads(hidden / vec, 256);
        let shapes = [("HIDDEN", hidden as i64), ("VEC", vec as i64), ("THREADS", threads as i64)];
        let kernel = gpu.kernel("embed.cu", "embed", &defines(dtype, &shapes))?;
        Ok(Self { kernel, threads, columns: blocks(hidden / vec, threads) })
    }

    /// x f32 \[rows, hidden\] = rows of `table` (act \[vocab, hidden\]) by token; padding becomes zero, and a token that does
    /// not exist NaN.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, count: u32, rows: &RowsPtr, table: Ptr, vocab: u32, x: Ptr) -> Result<()> {
        let args = EmbedArgs { table, token: rows.token, seq: rows.seq, x, vocab, unused: 0 };
        let launch = Launch { grid: [count, self.columns, 1], block: self.threads as u32, shared: 0 };
        gpu.launch_early(&self.kernel, launch, &args)
    }
}
