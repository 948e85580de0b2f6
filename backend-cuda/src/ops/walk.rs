//! Acceptance: the path that each tree's verdicts lead down, and the token behind it.

use super::rows::RowsPtr;
use crate::device::{Buffer, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};

/// What [`Walk`] reports beside a fault's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkFault {
    /// The drafter's row at this depth is unusable.
    Draft(u32),
    /// The target's logits at this row of the tree are unusable.
    Logits(u32),
    /// The trace has no token for this absolute position.
    TraceEnd(u32),
}

impl WalkFault {
    /// From the two words that the kernel writes.
    #[must_use]
    pub fn of(words: [u32; 2]) -> Option<Self> {
        match words[0] {
            0 => None,
            1 => Some(Self::Draft(words[1])),
            2 => Some(Self::Logits(words[1])),
            _ => Some(Self::TraceEnd(words[1])),
        }
    }
}

/// Addresses of the verdicts, `steps` = deepest level + 1.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct WalkPtr {
    /// Rows of the accepted path, ascending, u32 \[seqs, steps\]; the first is the root's, 0.
    pub path: Ptr,
    /// Their number, u32 \[seqs\]: accepted drafts + 1; 0 = padding or a fault.
    pub len: Ptr,
    /// Tokens of the step, u32 \[seqs, steps\]: the accepted ones, then the bonus; as many as `len`.
    pub emitted: Ptr,
    /// The token behind the path, u32 \[seqs\]; `u32::MAX` with `len` 0.
    pub bonus: Ptr,
    /// [`WalkFault::of`], u32 \[seqs, 2\].
    pub fault: Ptr,
}

/// Device memory of the verdicts.
#[derive(Debug)]
pub struct Verdicts {
    words: Buffer<u32>,
    seqs: usize,
    steps: usize,
}

impl Verdicts {
    /// Room for `seqs` sequences of trees of at most `levels` levels.
    ///
    /// # Errors
    /// [`crate::CudaError::Memory`].
    pub fn new(gpu: &Gpu, seqs: usize, levels: usize) -> Result<Self> {
        let steps = levels + 1;
        Ok(Self { words: gpu.zeroed("verdicts", seqs * (2 * steps + 4))?, seqs, steps })
    }

    /// Where they lie: one array in the order of [`WalkPtr`].
    #[must_use]
    pub fn ptrs(&self) -> WalkPtr {
        let (s, n) = (self.seqs, self.seqs * self.steps);
        let at = |i| self.words.at(i);
        WalkPtr { path: at(0), len: at(n), emitted: at(n + s), bonus: at(2 * n + s), fault: at(2 * n + 2 * s) }
    }

    /// The whole array, to be copied at once.
    #[must_use]
    pub fn words(&self) -> &Buffer<u32> {
        &self.words
    }
}

/// Follows, from each root, the target's token for as long as a child carries it.
#[derive(Debug)]
pub struct Walk {
    kernel: Kernel,
}

/// Operands of [`Walk::run`].
#[derive(Debug, Clone, Copy)]
pub struct WalkArgs {
    /// The pass: rows of each sequence.
    pub plan: RowsPtr,
    /// Token of each node, u32: node `i` of sequence `s` at `s · stride + i`, or at the sequence's first row + `i` where
    /// `stride` is 0.
    pub token: Ptr,
    /// Parent of each node, likewise; the root's is not read.
    pub parent: Ptr,
    /// See `token`.
    pub stride: u32,
    /// The target's token of each row, u32 \[rows\], `u32::MAX` = unusable; [`Ptr::NULL`]: `truth` decides.
    pub judged: Ptr,
    /// Forced tokens, u32 \[seqs, levels + 1\]: entry `d` is the token at depth `d + 1`, `u32::MAX` = the trace ends. Read only
    /// where `judged` is null.
    pub truth: Ptr,
    /// Depth of an unusable row of the drafter, u32 \[seqs\], 0 = none; or [`Ptr::NULL`].
    pub draft_fault: Ptr,
    /// Result.
    pub out: WalkPtr,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Args {
    plan: RowsPtr,
    token: Ptr,
    parent: Ptr,
    judged: Ptr,
    truth: Ptr,
    draft_fault: Ptr,
    out: WalkPtr,
    seqs: u32,
    stride: u32,
}

impl KernelArgs for Args {}

impl Walk {
    /// For trees of at most `levels` levels.
    ///
    /// # Errors
    /// The compiler's or the driver's.
    pub fn new(gpu: &Gpu, levels: usize) -> Result<Self> {
        Ok(Self { kernel: gpu.kernel("walk.cu", "walk", &[("LEVELS", levels as i64)])? })
    }

    /// Walks `seqs` trees. Only a row that the walk stands on can raise a fault.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, seqs: u32, call: &WalkArgs) -> Result<()> {
        let WalkArgs { plan, token, parent, stride, judged, truth, draft_fault, out } = *call;
        let args = Args { plan, token, parent, judged, truth, draft_fault, out, seqs, stride };
        gpu.launch(&self.kernel, Launch::flat(seqs, 32), &args)
    }
}
