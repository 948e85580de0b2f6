//! Commit: the accepted path of each sequence made dense, in the caches of all layers and among the features.

use super::vector::{blocks, defines, widest};
use crate::device::{Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Moves cache rows `start + path[i]` to `start + i`, on every layer and for every sequence, in one launch.
#[derive(Debug)]
pub struct GatherKv {
    kernel: Kernel,
    columns: usize,
}

/// Operands of [`GatherKv::run`].
#[derive(Debug, Clone, Copy)]
pub struct GatherKvCall {
    /// First byte of each layer's cache, u64 \[layers\] in device memory.
    pub bases: Ptr,
    /// Caches in `bases` (keys and values count apart).
    pub layers: u32,
    /// Cache row of position 0, u32 \[seqs\].
    pub seq_kv: Ptr,
    /// Length of the past before the pass, u32 \[seqs\].
    pub seq_start: Ptr,
    /// Accepted rows of the pass, ascending, the first is 0; u32 \[seqs, max_path\].
    pub path: Ptr,
    /// Accepted rows, u32 \[seqs\]; 0 = padding.
    pub path_len: Ptr,
    /// Most accepted rows.
    pub max_path: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GatherKvArgs {
    bases: Ptr,
    seq_kv: Ptr,
    seq_start: Ptr,
    path: Ptr,
    path_len: Ptr,
    max_path: u32,
    unused: u32,
}

impl KernelArgs for GatherKvArgs {}

impl GatherKv {
    /// For caches with rows of this many bytes (an even number).
    ///
    /// # Errors
    /// An odd number of bytes, the compiler's or the driver's.
    pub fn new(gpu: &Gpu, row_bytes: usize) -> Result<Self> {
        let Some(unit) = [16, 8, 4, 2].into_iter().find(|unit| row_bytes.is_multiple_of(*unit)) else {
            let why = format!("rows of {row_bytes} bytes");
            return Err(CudaError::Kernel { kernel: "gather_kv".into(), why });
        };
        let columns = row_bytes / unit;
        // The features' shapes are not used by this kernel of the file.
        let shapes = [("UNIT", unit as i64), ("COLUMNS", columns as i64), ("WIDTH", 1), ("VEC", 1)];
        Ok(Self { kernel: gpu.kernel("gather.cu", "gather_kv", &shapes)?, columns })
    }

    /// Moves the rows of `seqs` sequences.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, seqs: u32, call: &GatherKvCall) -> Result<()> {
        let GatherKvCall { bases, layers, seq_kv, seq_start, path, path_len, max_path } = *call;
        let args = GatherKvArgs { bases, seq_kv, seq_start, path, path_len, max_path, unused: 0 };
        let launch = Launch { grid: [blocks(self.columns, 128), layers, seqs], block: 128, shared: 0 };
        gpu.launch_early(&self.kernel, launch, &args)
    }
}

/// Copies the features of accepted rows next to each other, and says where a drafter's cache takes them.
#[derive(Debug)]
pub struct GatherRows {
    kernel: Kernel,
    columns: u32,
}

/// Operands of [`GatherRows::run`].
#[derive(Debug, Clone, Copy)]
pub struct GatherRowsCall {
    /// Features of the rows of the pass, act \[rows, width\].
    pub src: Ptr,
    /// First row of each sequence, u32 \[seqs\].
    pub seq_begin: Ptr,
    /// Accepted rows, u32 \[seqs, max_path\].
    pub path: Ptr,
    /// Accepted rows, u32 \[seqs\].
    pub path_len: Ptr,
    /// Most accepted rows.
    pub max_path: u32,
    /// Result, act \[seqs · max_path, width\]; zeros behind a path's end.
    pub dst: Ptr,
    /// Length of the past before the pass, u32 \[seqs\]; [`Ptr::NULL`] leaves out `position` and `kv_row`.
    pub seq_start: Ptr,
    /// Row of the *drafter's* cache of position 0, u32 \[seqs\].
    pub seq_kv: Ptr,
    /// Position of each gathered row, u32 \[seqs · max_path\]; 0 behind a path's end.
    pub position: Ptr,
    /// Row of the drafter's cache for each gathered row, u32 \[seqs · max_path\]; `sink` behind a path's end.
    pub kv_row: Ptr,
    /// Where padding writes.
    pub sink: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GatherRowsArgs {
    src: Ptr,
    seq_begin: Ptr,
    path: Ptr,
    path_len: Ptr,
    seq_start: Ptr,
    seq_kv: Ptr,
    dst: Ptr,
    position: Ptr,
    kv_row: Ptr,
    max_path: u32,
    sink: u32,
}

impl KernelArgs for GatherRowsArgs {}

impl GatherRows {
    /// For rows of `width` features.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu, dtype: Dtype, width: usize) -> Result<Self> {
        let vec = widest(dtype, &[width]);
        let shapes = [("UNIT", 16), ("COLUMNS", 1), ("WIDTH", width as i64), ("VEC", vec as i64)];
        let kernel = gpu.kernel("gather.cu", "gather_rows", &defines(dtype, &shapes))?;
        Ok(Self { kernel, columns: blocks(width / vec, 256) })
    }

    /// Copies the rows of `seqs` sequences.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, seqs: u32, call: &GatherRowsCall) -> Result<()> {
        let c = *call;
        let args = GatherRowsArgs {
            src: c.src,
            seq_begin: c.seq_begin,
            path: c.path,
            path_len: c.path_len,
            seq_start: c.seq_start,
            seq_kv: c.seq_kv,
            dst: c.dst,
            position: c.position,
            kv_row: c.kv_row,
            max_path: c.max_path,
            sink: c.sink,
        };
        let launch = Launch { grid: [self.columns, c.max_path, seqs], block: 256, shared: 0 };
        gpu.launch_early(&self.kernel, launch, &args)
    }
}
