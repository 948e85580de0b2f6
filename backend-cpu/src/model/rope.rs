//! Rotary position embedding by absolute position.

use treeline_checkpoint::Rope;

/// Frequencies and amplitude of one model.
#[derive(Debug, Clone)]
pub(crate) struct Rotary {
    inverse: Vec<f32>,
    amplitude: f32,
    interleaved: bool,
}

/// Cosines and sines of the rows of one pass, `half` values each.
#[derive(Debug, Default)]
pub(crate) struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rotary {
    pub fn new(rope: &Rope) -> Self {
        Self {
            inverse: rope.inv_freq().into_iter().map(|f| f as f32).collect(),
            amplitude: rope.attention_factor.value as f32,
            interleaved: rope.interleaved,
        }
    }

    /// Fills `angles` for these positions. The angle is a product of two f32 numbers, as models are trained with it.
    pub fn angles(&self, positions: &[u32], angles: &mut Angles) {
        angles.cos.clear();
        angles.sin.clear();
        for &position in positions {
            for &f in &self.inverse {
                let (sin, cos) = f64::from(position as f32 * f).sin_cos();
                angles.cos.push(cos as f32 * self.amplitude);
                angles.sin.push(sin as f32 * self.amplitude);
            }
        }
    }

    /// Rotates one head of one row in place; `x` has exactly the rotated dimensions.
    pub fn rotate(&self, x: &mut [f32], row: usize, angles: &Angles) {
        let half = self.inverse.len();
        let cos = &angles.cos[row * half..(row + 1) * half];
        let sin = &angles.sin[row * half..(row + 1) * half];
        if self.interleaved {
            for ((pair, &c), &s) in x.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = b * c + a * s;
            }
        } else {
            let (low, high) = x.split_at_mut(half);
            for (((a, b), &c), &s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
            }
        }
    }
}
