//! SwiGLU: the dense feed-forward part, and each expert.

use super::buffer;
use crate::kernel::{Packed, silu_mul};

/// One SwiGLU.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// Gate, then up.
    pub gate_up: Packed,
    pub down: Packed,
}

/// Working memory of [`Mlp::forward`].
#[derive(Debug, Default)]
pub(crate) struct MlpWork {
    both: Vec<f32>,
    hidden: Vec<f32>,
}

impl Mlp {
    /// `out (+)= down(silu(gate(h)) · up(h))` for `rows` rows.
    pub fn forward(&self, h: &[f32], rows: usize, work: &mut MlpWork, out: &mut [f32], add: bool) {
        let width = self.down.inputs();
        let both = buffer(&mut work.both, rows * 2 * width);
        self.gate_up.apply(h, rows, both, false);
        let hidden = buffer(&mut work.hidden, rows * width);
        for (hidden, both) in hidden.chunks_exact_mut(width).zip(both.chunks_exact(2 * width)) {
            let (gate, up) = both.split_at(width);
            silu_mul(gate, up, hidden);
        }
        self.down.apply(hidden, rows, out, add);
    }
}
