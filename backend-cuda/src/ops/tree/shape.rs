//! Trees of a fixed shape.

use super::{TreeArgs, TreeSizes, refuse};
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// Most nodes of a shape (a draft without some of them makes room for later ones, so it may exceed the tree's).
const MOST_SHAPE: usize = 1024;

#[derive(Debug)]
pub(super) struct Shape {
    kernel: Kernel,
    parent: Buffer<u32>,
    rank: Buffer<u32>,
    depth: Buffer<u32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ShapeArgs {
    io: TreeArgs,
    parent: Ptr,
    rank: Ptr,
    depth: Ptr,
}

impl KernelArgs for ShapeArgs {}

impl Shape {
    /// Parents (nodes of the shape, 0 = the root) and ranks of nodes 1, 2, ….
    pub fn new(gpu: &Gpu, parents: &[u32], ranks: &[u32], sizes: TreeSizes) -> Result<Self> {
        let count = parents.len();
        if ranks.len() != count || count > MOST_SHAPE {
            return refuse(format!(
                "has {count} parents and {} ranks: as many of both, at most {MOST_SHAPE}",
                ranks.len()
            ));
        }
        let mut depths = vec![0u32];
        for (i, &parent) in parents.iter().enumerate() {
            if parent as usize > i {
                return refuse(format!("has node {} before its parent {parent}", i + 1));
            }
            depths.push(depths[parent as usize] + 1);
        }
        let deepest = depths.iter().copied().max().unwrap_or(0);
        let own = [("SHAPE", count.max(1) as i64), ("DEEPEST", i64::from(deepest))];
        let kernel = gpu.kernel("tree_shape.cu", "tree_shape", &[&sizes.defines()[..], &own].concat())?;
        // A shape of the root alone still has one place, which is never reached.
        let pad = |list: &[u32], end: u32| if list.is_empty() { vec![end] } else { list.to_vec() };
        Ok(Self {
            kernel,
            parent: gpu.upload("shape", &pad(parents, 0))?,
            rank: gpu.upload("shape", &pad(ranks, 0))?,
            depth: gpu.upload("shape", &pad(&depths[1..], u32::MAX))?,
        })
    }

    pub fn run(&self, gpu: &Gpu, seqs: u32, args: &TreeArgs) -> Result<()> {
        let args = ShapeArgs { io: *args, parent: self.parent.ptr(), rank: self.rank.ptr(), depth: self.depth.ptr() };
        gpu.launch(&self.kernel, Launch::flat(seqs, 256), &args)
    }
}
