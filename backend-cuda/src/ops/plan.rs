//! The rows of a verify pass from trees on the device: what `RowPlan` makes on the host, bit for bit.

use super::rows::{Bucket, RowsPtr};
use super::tree::TreesPtr;
use crate::device::{Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Writes the rows of all trees, sequence after sequence, and pads them to a bucket.
#[derive(Debug)]
pub struct Plan {
    kernel: Kernel,
}

/// Operands of [`Plan::run`].
#[derive(Debug, Clone, Copy)]
pub struct PlanArgs {
    /// The trees; those of padded sequences have 0 rows and come last.
    pub trees: TreesPtr,
    /// Rows from one tree to the next.
    pub stride: u32,
    /// Cache row of position 0, u32 \[seqs\].
    pub kv: Ptr,
    /// Committed tokens, u32 \[seqs\].
    pub start: Ptr,
    /// Result.
    pub plan: RowsPtr,
    /// The cache row where padding writes.
    pub sink: u32,
    /// u32 \[1\], set to 1 where the rows did not fit the bucket and were cut; never set to 0.
    pub overflow: Ptr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    tree_token: Ptr,
    tree_parent: Ptr,
    tree_rows: Ptr,
    kv: Ptr,
    start: Ptr,
    plan: RowsPtr,
    overflow: Ptr,
    stride: u32,
    rows: u32,
    seqs: u32,
    sink: u32,
}

impl KernelArgs for Args {}

impl Plan {
    /// Loads the kernel.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { kernel: gpu.kernel("plan.cu", "plan", &[])? })
    }

    /// Writes the plan of `bucket.seqs` trees, padded to `bucket.rows` rows.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &PlanArgs) -> Result<()> {
        let args = Args {
            tree_token: call.trees.token,
            tree_parent: call.trees.parent,
            tree_rows: call.trees.rows,
            kv: call.kv,
            start: call.start,
            plan: call.plan,
            overflow: call.overflow,
            stride: call.stride,
            rows: bucket.rows,
            seqs: bucket.seqs,
            sink: call.sink,
        };
        gpu.launch(&self.kernel, Launch::flat(bucket.seqs + 1, 128), &args)
    }
}
