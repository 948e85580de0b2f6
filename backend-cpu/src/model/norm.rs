//! RMSNorm.

use crate::kernel::rms_norm;

/// Weight and epsilon of one norm.
#[derive(Debug, Clone)]
pub(crate) struct Norm {
    pub weight: Vec<f32>,
    pub eps: f32,
}

impl Norm {
    /// Norms one vector.
    pub fn apply(&self, x: &[f32], out: &mut [f32]) {
        rms_norm(x, &self.weight, self.eps, out);
    }

    /// Norms contiguous rows.
    pub fn rows(&self, x: &[f32], out: &mut [f32]) {
        let n = self.weight.len();
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            self.apply(x, out);
        }
    }
}
