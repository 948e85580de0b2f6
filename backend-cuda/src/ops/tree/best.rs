//! Best-first trees: a heap, or the fixed list of tuples.

use super::{Search, TreeArgs, TreeSizes, refuse, tuples};
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};
use treeline_core::ProgramBudget;

/// Up to here the list of tuples is faster than the heap (`benches/round.rs`).
const AUTO_TUPLES: usize = 512;

/// The longest list: its keys and places fit shared memory.
const MOST_TUPLES: usize = 16_384;

/// Most sequences that share one budget.
const MOST_SHARED: usize = 1024;

#[derive(Debug)]
pub(super) struct Best {
    how: How,
    spine: u32,
    least: f64,
}

#[derive(Debug)]
enum How {
    Heap(Kernel),
    Shared { grow: Kernel, split: Kernel, mean: u32, bounds: Buffer<u64>, forced: Buffer<u32> },
    Tuples { kernel: Kernel, count: usize, path: Buffer<u8>, parent: Buffer<u32>, depth: Buffer<u32> },
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BestArgs {
    io: TreeArgs,
    bounds: Ptr,
    forced: Ptr,
    least: f64,
    spine: u32,
    unused: u32,
}

impl KernelArgs for BestArgs {}

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

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TuplesArgs {
    io: TreeArgs,
    path: Ptr,
    parent: Ptr,
    depth: Ptr,
}

impl KernelArgs for TuplesArgs {}

impl Best {
    pub fn new(gpu: &Gpu, spine: u32, budget: &ProgramBudget, sizes: TreeSizes, search: Search) -> Result<Self> {
        let least = match budget {
            ProgramBudget::Threshold(least) if *least > 0.0 => least.ln(),
            ProgramBudget::Threshold(least) if least.is_nan() => {
                return refuse("has a threshold that is no number".into());
            }
            _ => f64::NEG_INFINITY,
        };
        let plain = matches!(budget, ProgramBudget::Fixed(_) | ProgramBudget::PerSlot(_));
        let how = match (budget, search) {
            (ProgramBudget::Shared(mean), Search::Auto | Search::Heap) => Self::shared(gpu, *mean, sizes)?,
            (_, Search::Auto) if plain && spine == 0 => match Self::tuples(gpu, sizes, AUTO_TUPLES)? {
                Some(how) => how,
                None => Self::heap(gpu, sizes)?,
            },
            (_, Search::Auto | Search::Heap) => Self::heap(gpu, sizes)?,
            (_, Search::Tuples) => match Self::tuples(gpu, sizes, MOST_TUPLES)? {
                Some(how) if plain && spine == 0 => how,
                _ => return refuse(format!("of {sizes:?} with a spine of {spine} has no list of tuples")),
            },
        };
        Ok(Self { how, spine, least })
    }

    fn heap(gpu: &Gpu, sizes: TreeSizes) -> Result<How> {
        Ok(How::Heap(gpu.kernel("tree_best.cu", "tree_best", &sizes.defines())?))
    }

    fn shared(gpu: &Gpu, mean: u32, sizes: TreeSizes) -> Result<How> {
        if sizes.seqs > MOST_SHARED {
            return refuse(format!("shares its budget among {} sequences: at most {MOST_SHARED} can", sizes.seqs));
        }
        let defines = sizes.defines();
        Ok(How::Shared {
            grow: gpu.kernel("tree_best.cu", "tree_best", &defines)?,
            split: gpu.kernel("tree_best.cu", "tree_shared", &defines)?,
            mean,
            bounds: gpu.alloc("tree bounds", sizes.seqs * (sizes.nodes + 1))?,
            forced: gpu.alloc("tree spines", sizes.seqs)?,
        })
    }

    /// `None` where the list would be longer than `most`, or its ranks do not fit a byte.
    fn tuples(gpu: &Gpu, sizes: TreeSizes, most: usize) -> Result<Option<How>> {
        let Some(list) = tuples(sizes.levels, sizes.nodes, most) else { return Ok(None) };
        let defines = [&sizes.defines()[..], &[("COUNT", list.len() as i64)]].concat();
        let path: Vec<u8> = list.iter().flat_map(|t| t.path).collect();
        let parent: Vec<u32> = list.iter().map(|t| t.parent).collect();
        let depth: Vec<u32> = list.iter().map(|t| t.depth).collect();
        Ok(Some(How::Tuples {
            kernel: gpu.kernel("tree_list.cu", "tree_list", &defines)?,
            count: list.len(),
            path: gpu.upload("tuples", &path)?,
            parent: gpu.upload("tuples", &parent)?,
            depth: gpu.upload("tuples", &depth)?,
        }))
    }

    pub fn run(&self, gpu: &Gpu, seqs: u32, args: &TreeArgs) -> Result<()> {
        let grow =
            |bounds, forced| BestArgs { io: *args, bounds, forced, least: self.least, spine: self.spine, unused: 0 };
        match &self.how {
            How::Heap(kernel) => gpu.launch(kernel, Launch::flat(seqs, 32), &grow(Ptr::NULL, Ptr::NULL)),
            How::Shared { grow: kernel, split, mean, bounds, forced } => {
                let (bounds, forced) = (bounds.ptr(), forced.ptr());
                gpu.launch(kernel, Launch::flat(seqs, 32), &grow(bounds, forced))?;
                let (nodes, rows) = (args.seqs.nodes, args.trees.rows);
                let shared = SharedArgs { bounds, forced, nodes, rows, seqs, mean: *mean };
                gpu.launch(split, Launch::flat(1, 1024), &shared)
            }
            How::Tuples { kernel, count, path, parent, depth } => {
                let args = TuplesArgs { io: *args, path: path.ptr(), parent: parent.ptr(), depth: depth.ptr() };
                let launch = Launch { grid: [seqs, 1, 1], block: 512, shared: (count * 10) as u32 };
                gpu.launch(kernel, launch, &args)
            }
        }
    }
}
