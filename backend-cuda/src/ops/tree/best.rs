//! Best-first trees: a cut through all prefixes, or a queue.

use super::{Search, TreeArgs, TreeSizes, refuse, tuples};
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};
use treeline_core::ProgramBudget;

/// Most sequences that share one budget.
const MOST_SHARED: usize = 1024;

#[derive(Debug)]
pub(super) struct Best {
    grow: Grow,
    split: Option<Split>,
    spine: u32,
    least: f64,
}

/// How each tree is grown alone.
#[derive(Debug)]
enum Grow {
    Queue(Kernel),
    Cut { kernel: Kernel, path: Buffer<u8>, depth: Buffer<u32> },
}

/// What one budget for the batch needs on top.
#[derive(Debug)]
struct Split {
    kernel: Kernel,
    mean: u32,
    bounds: Buffer<u64>,
    forced: Buffer<u32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct QueueArgs {
    io: TreeArgs,
    bounds: Ptr,
    forced: Ptr,
    least: f64,
    spine: u32,
    unused: u32,
}

impl KernelArgs for QueueArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CutArgs {
    io: TreeArgs,
    bounds: Ptr,
    forced: Ptr,
    path: Ptr,
    depth: Ptr,
    least: f64,
    spine: u32,
    unused: u32,
}

impl KernelArgs for CutArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SharedArgs {
    bounds: Ptr,
    forced: Ptr,
    nodes: Ptr,
    rows: Ptr,
    seqs: u32,
    mean: u32,
}

impl KernelArgs for SharedArgs {}

impl Best {
    pub fn new(gpu: &Gpu, spine: u32, budget: &ProgramBudget, sizes: TreeSizes, search: Search) -> Result<Self> {
        let least = match budget {
            ProgramBudget::Threshold(least) if least.is_nan() => {
                return refuse("has a threshold that is no number".into());
            }
            ProgramBudget::Threshold(least) if *least > 0.0 => least.ln(),
            _ => f64::NEG_INFINITY,
        };
        let grow = match search {
            Search::Queue => Grow::Queue(gpu.kernel("tree_best.cu", "tree_best", &sizes.defines())?),
            Search::Auto | Search::Cut => Grow::cut(gpu, sizes)?,
        };
        let split = match budget {
            ProgramBudget::Shared(mean) => Some(Split::new(gpu, *mean, sizes)?),
            _ => None,
        };
        Ok(Self { grow, split, spine, least })
    }

    pub fn run(&self, gpu: &Gpu, seqs: u32, args: &TreeArgs) -> Result<()> {
        let (bounds, forced) = match &self.split {
            Some(split) => (split.bounds.ptr(), split.forced.ptr()),
            None => (Ptr::NULL, Ptr::NULL),
        };
        let (io, least, spine) = (*args, self.least, self.spine);
        match &self.grow {
            Grow::Queue(kernel) => {
                let args = QueueArgs { io, bounds, forced, least, spine, unused: 0 };
                gpu.launch(kernel, Launch::flat(seqs, 32), &args)?;
            }
            Grow::Cut { kernel, path, depth } => {
                let (path, depth) = (path.ptr(), depth.ptr());
                let args = CutArgs { io, bounds, forced, path, depth, least, spine, unused: 0 };
                gpu.launch(kernel, Launch::flat(seqs, 512), &args)?;
            }
        }
        let Some(Split { kernel, mean, .. }) = &self.split else { return Ok(()) };
        let shared = SharedArgs { bounds, forced, nodes: args.seqs.nodes, rows: args.trees.rows, seqs, mean: *mean };
        gpu.launch(kernel, Launch::flat(1, 1024), &shared)
    }
}

impl Grow {
    /// The list that gives the first bound: several times as many tuples as nodes, those that come first in most drafts.
    fn cut(gpu: &Gpu, sizes: TreeSizes) -> Result<Self> {
        let most = sizes.nodes.min(256);
        let mut nodes = most.min(4);
        let mut list = tuples(sizes.levels, nodes);
        while list.len() < 6 * sizes.nodes && nodes < most {
            nodes = (nodes + nodes.div_ceil(4)).min(most);
            list = tuples(sizes.levels, nodes);
        }
        let defines = [&sizes.defines()[..], &[("SEEDS", list.len() as i64)]].concat();
        let path: Vec<u8> = list.iter().flat_map(|t| t.path).collect();
        let depth: Vec<u32> = list.iter().map(|t| t.depth).collect();
        Ok(Self::Cut {
            kernel: gpu.kernel("tree_cut.cu", "tree_cut", &defines)?,
            path: gpu.upload("tuples", &path)?,
            depth: gpu.upload("tuples", &depth)?,
        })
    }
}

impl Split {
    fn new(gpu: &Gpu, mean: u32, sizes: TreeSizes) -> Result<Self> {
        if sizes.seqs > MOST_SHARED {
            return refuse(format!("shares its budget among {} sequences: at most {MOST_SHARED} can", sizes.seqs));
        }
        Ok(Self {
            kernel: gpu.kernel("tree_shared.cu", "tree_shared", &sizes.defines())?,
            mean,
            bounds: gpu.alloc("tree bounds", sizes.seqs * (sizes.nodes + 1))?,
            forced: gpu.alloc("tree spines", sizes.seqs)?,
        })
    }
}
