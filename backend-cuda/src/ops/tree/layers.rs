//! Trees by levels: the best `width` of every level, then the best of all levels.

use super::{TreeArgs, TreeSizes, refuse};
use crate::device::{Gpu, Kernel, Launch};
use crate::error::Result;

/// Bytes of a kept candidate, and of its place.
const ITEM: usize = 24 + 2;

/// Shared memory that every GPU of this project has beside the kernel's own.
const ROOM: usize = 160 << 10;

#[derive(Debug)]
pub(super) struct Layers {
    kernel: Kernel,
    shared: u32,
}

impl Layers {
    pub fn new(gpu: &Gpu, width: u32, sizes: TreeSizes) -> Result<Self> {
        let shared = (sizes.levels * sizes.nodes + 1) * ITEM;
        if width == 0 || shared > ROOM {
            return refuse(format!("keeps {width} a level in trees of {sizes:?}: too many candidates for a block"));
        }
        let defines = [&sizes.defines()[..], &[("BEAM", i64::from(width))]].concat();
        Ok(Self { kernel: gpu.kernel("tree_layers.cu", "tree_layers", &defines)?, shared: shared as u32 })
    }

    pub fn run(&self, gpu: &Gpu, seqs: u32, args: &TreeArgs) -> Result<()> {
        gpu.launch(&self.kernel, Launch { grid: [seqs, 1, 1], block: 256, shared: self.shared }, args)
    }
}
