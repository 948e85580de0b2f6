//! Trees on the device: the programs that policies publish, each giving the trees of the CPU's policy bit for bit.

mod best;
mod layers;
mod shape;
mod tuples;

pub use tuples::tuples;

use super::topk::LatticePtr;
use crate::device::{Buffer, Define, Gpu, KernelArgs, Ptr};
use crate::error::{CudaError, Result};
use best::Best;
use bytemuck::{Pod, Zeroable};
use layers::Layers;
use shape::Shape;
use treeline_core::{Program, ProgramBudget};

/// What a tree may be, by sequence.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TreeSeqs {
    /// Root token, u32 \[seqs\].
    pub root: Ptr,
    /// Most nodes, u32 \[seqs\]: the smaller of the sequence's cap and the program's budget for its slot; `u32::MAX` = padding.
    pub nodes: Ptr,
    /// Levels that were drafted, u32 \[seqs\]: what the policy asks for in a staged round, at most the sequence's cap.
    pub levels: Ptr,
}

/// Addresses of trees, root first, `stride` rows from one to the next. Rows behind a tree's end are undefined.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TreesPtr {
    /// Tokens, u32 \[seqs, stride\].
    pub token: Ptr,
    /// Parents, u32 \[seqs, stride\]; the root is its own.
    pub parent: Ptr,
    /// Depths, u32 \[seqs, stride\].
    pub depth: Ptr,
    /// Ranks among the parent's candidates, u32 \[seqs, stride\].
    pub rank: Ptr,
    /// Log-probabilities of the paths, f64 \[seqs, stride\].
    pub score: Ptr,
    /// Rows of each tree, u32 \[seqs\]; 0 = padding.
    pub rows: Ptr,
    /// Depth of the first unusable row of the draft, u32 \[seqs\]; 0 = none. Such a tree is a bare root.
    pub fault: Ptr,
}

/// Device memory of trees.
#[derive(Debug)]
pub struct Trees {
    words: Buffer<u32>,
    score: Buffer<f64>,
    seqs: usize,
    stride: usize,
}

impl Trees {
    /// Room for `seqs` trees of at most `most_nodes` nodes.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn new(gpu: &Gpu, seqs: usize, most_nodes: usize) -> Result<Self> {
        let stride = most_nodes + 1;
        let words = gpu.zeroed("trees", seqs * (4 * stride + 2))?;
        Ok(Self { words, score: gpu.zeroed("tree scores", seqs * stride)?, seqs, stride })
    }

    /// Where they lie: scores apart, everything else in one array in the order of [`TreesPtr`].
    #[must_use]
    pub fn ptrs(&self) -> TreesPtr {
        let n = self.seqs * self.stride;
        let at = |i| self.words.at(i);
        TreesPtr {
            token: at(0),
            parent: at(n),
            depth: at(2 * n),
            rank: at(3 * n),
            score: self.score.ptr(),
            rows: at(4 * n),
            fault: at(4 * n + self.seqs),
        }
    }

    /// Everything but the scores, to be copied at once.
    #[must_use]
    pub fn words(&self) -> &Buffer<u32> {
        &self.words
    }

    /// The scores.
    #[must_use]
    pub fn scores(&self) -> &Buffer<f64> {
        &self.score
    }

    /// Rows from one tree to the next.
    #[must_use]
    pub fn stride(&self) -> u32 {
        self.stride as u32
    }
}

/// Sizes that tree kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSizes {
    /// Most sequences of a launch.
    pub seqs: usize,
    /// Levels of the lattice.
    pub levels: usize,
    /// Candidates of a row of the lattice.
    pub width: usize,
    /// Most nodes of a tree; trees lie `nodes + 1` rows apart.
    pub nodes: usize,
}

impl TreeSizes {
    fn defines(self) -> [Define; 3] {
        [("LEVELS", self.levels as i64), ("WIDTH", self.width as i64), ("NODES", self.nodes as i64)]
    }
}

/// How best-first trees are found; the trees are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Search {
    /// What is faster: the cut.
    Auto,
    /// One node after the other, a warp a sequence: time grows with the nodes.
    Queue,
    /// All prefixes above a lower bound at once; the queue where the drafts rule that out.
    Cut,
}

/// A [`Program`], ready to run.
#[derive(Debug)]
pub struct TreeOp {
    kind: Kind,
    most: TreeSizes,
}

#[derive(Debug)]
enum Kind {
    Best(Best),
    Shape(Shape),
    Layers(Layers),
}

/// Operands of [`TreeOp::run`].
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TreeArgs {
    /// What the trees may be.
    pub seqs: TreeSeqs,
    /// The drafts.
    pub lattice: LatticePtr,
    /// Result.
    pub trees: TreesPtr,
}

/// The arguments of a kernel that needs nothing else.
impl KernelArgs for TreeArgs {}

fn refuse<T>(problem: String) -> Result<T> {
    Err(CudaError::Setting { key: "program", problem })
}

impl TreeOp {
    /// Prepares `program`.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for a program or sizes that the device does not serve: run such a round staged. Memory, the
    /// compiler's or the driver's.
    pub fn new(gpu: &Gpu, program: &Program, sizes: TreeSizes) -> Result<Self> {
        Self::with_search(gpu, program, sizes, Search::Auto)
    }

    /// The same, with a choice of how best-first trees are found.
    ///
    /// # Errors
    /// As [`TreeOp::new`].
    pub fn with_search(gpu: &Gpu, program: &Program, sizes: TreeSizes, search: Search) -> Result<Self> {
        let TreeSizes { seqs, levels, width, nodes } = sizes;
        let most = super::rows::MOST_ROWS - 1;
        if seqs == 0 || levels == 0 || levels > 31 || width == 0 || nodes == 0 || nodes > most {
            return refuse(format!("of {sizes:?}: 1 to 31 levels, 1 to {most} nodes, at least one of the others"));
        }
        let kind = match program {
            Program::Chain => {
                let chain: Vec<u32> = (0..levels.min(nodes) as u32).collect();
                Kind::Shape(Shape::new(gpu, &chain, &vec![0; chain.len()], sizes)?)
            }
            Program::Static { parents, ranks } => {
                let nodes = parents.get(1..).unwrap_or(&[]);
                Kind::Shape(Shape::new(gpu, nodes, ranks.get(1..).unwrap_or(&[]), sizes)?)
            }
            Program::BestFirst { spine, budget } => Kind::Best(Best::new(gpu, *spine, budget, sizes, search)?),
            Program::TopK { width, .. } => Kind::Layers(Layers::new(gpu, *width, sizes)?),
        };
        Ok(Self { kind, most: sizes })
    }

    /// Grows the trees of `seqs` sequences.
    ///
    /// # Errors
    /// [`CudaError::Kernel`] for more sequences than the sizes say, or the driver's.
    pub fn run(&self, gpu: &Gpu, seqs: u32, args: &TreeArgs) -> Result<()> {
        if seqs as usize > self.most.seqs {
            let why = format!("{seqs} sequences, prepared for {}", self.most.seqs);
            return Err(CudaError::Kernel { kernel: "tree".into(), why });
        }
        match &self.kind {
            Kind::Best(best) => best.run(gpu, seqs, args),
            Kind::Shape(shape) => shape.run(gpu, seqs, args),
            Kind::Layers(layers) => layers.run(gpu, seqs, args),
        }
    }
}

/// The most nodes that a program gives slot `slot`, where it says so by itself.
#[must_use]
pub fn slot_budget(program: &Program, slot: usize) -> Option<u32> {
    match program {
        Program::BestFirst { budget: ProgramBudget::Fixed(nodes), .. } => Some(*nodes),
        Program::BestFirst { budget: ProgramBudget::PerSlot(nodes), .. } => Some(nodes.get(slot).copied().unwrap_or(0)),
        _ => None,
    }
}

/// Levels that a program asks of the drafter for a sequence with these caps, and ranks of each, as its policy does in a staged
/// round.
#[must_use]
pub fn asks(program: &Program, nodes: u32, depth: u32, width: u32) -> (u32, u32) {
    match program {
        Program::Chain => (depth.min(nodes), 1),
        Program::BestFirst { .. } => (depth.min(nodes), nodes.min(width)),
        Program::Static { parents, ranks } => {
            let mut depths = vec![0u32; parents.len()];
            for i in 1..parents.len() {
                depths[i] = depths.get(parents[i] as usize).copied().unwrap_or(0) + 1;
            }
            let deepest = depths.iter().copied().max().unwrap_or(0);
            let wide = if parents.len() > 1 { ranks.iter().copied().max().unwrap_or(0) + 1 } else { 0 };
            (depth.min(deepest), wide)
        }
        Program::TopK { width: wide, depth: levels } => (depth.min(*levels), (*wide).min(width)),
    }
}
