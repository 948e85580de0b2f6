//! SwiGLU: the dense feed-forward part, and the shared experts.

use super::Part;
use super::pass::Pass;
use super::weight::Weight;
use crate::device::Ptr;
use crate::error::Result;
use crate::ops::swiglu::Swiglu;

/// One SwiGLU on this rank.
#[derive(Debug)]
pub(super) struct Mlp {
    /// Gate, then up.
    pub gate_up: Weight,
    pub down: Weight,
    pub activate: Swiglu,
}

/// Buffers of a SwiGLU.
#[derive(Debug, Clone, Copy)]
pub(super) struct MlpPtrs {
    /// \[rows\]\[2 · inner\].
    pub both: Ptr,
    /// \[rows\]\[inner\].
    pub inner: Ptr,
}

impl Mlp {
    /// y (+)= down(silu(gate(h)) · up(h)); the rows of a layer's input are zero where they are padding, and so is the result.
    pub fn run(&self, pass: &mut Pass<'_>, h: Ptr, work: MlpPtrs, y: Ptr, add: bool) -> Result<()> {
        let (rows, seq) = (pass.len(), pass.rows.seq);
        match self.gate_up.glu(rows, h, work.inner, None) {
            Some(fused) => pass.step(Part::GateUp, |gpu| fused.run(gpu))?,
            None => {
                pass.step(Part::GateUp, |gpu| self.gate_up.apply(gpu, rows, h, work.both))?;
                pass.step(Part::Activate, |gpu| self.activate.run(gpu, rows as u32, seq, work.both, work.inner))?;
            }
        }
        self.finish(pass, work, y, add)
    }

    /// The second half of [`Mlp::run`].
    pub fn finish(&self, pass: &mut Pass<'_>, work: MlpPtrs, y: Ptr, add: bool) -> Result<()> {
        let rows = pass.len();
        pass.step(Part::MlpDown, |gpu| match add {
            true => self.down.add(gpu, rows, work.inner, y),
            false => self.down.apply(gpu, rows, work.inner, y),
        })
    }
}
