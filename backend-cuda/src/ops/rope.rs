//! Tables of the rotary embedding: cosines and sines by position, made on the host as the CPU engine makes them.

use crate::device::{Buffer, Gpu, Ptr};
use crate::error::Result;
use treeline_checkpoint::Rope;

/// Cosines and sines of one model, f32 \[positions, half\] each, on the device.
#[derive(Debug)]
pub struct RopeTable {
    cos: Buffer<f32>,
    sin: Buffer<f32>,
    half: usize,
    positions: usize,
    interleaved: bool,
}

impl RopeTable {
    /// For positions `[0, positions)`: cos and sin of p · f, a product of two f32 numbers as models are trained with it, times
    /// the amplitude.
    ///
    /// # Errors
    /// [`crate::CudaError::Memory`], or the driver's.
    pub fn new(gpu: &Gpu, rope: &Rope, positions: usize) -> Result<Self> {
        let (cos, sin) = angles(rope, positions);
        Ok(Self {
            cos: gpu.upload("rotary cosines", &cos)?,
            sin: gpu.upload("rotary sines", &sin)?,
            half: rope.dim / 2,
            positions,
            interleaved: rope.interleaved,
        })
    }

    /// Cosines.
    #[must_use]
    pub fn cos(&self) -> Ptr {
        self.cos.ptr()
    }

    /// Sines.
    #[must_use]
    pub fn sin(&self) -> Ptr {
        self.sin.ptr()
    }

    /// Pairs that turn.
    #[must_use]
    pub fn half(&self) -> usize {
        self.half
    }

    /// Positions that the tables hold.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Whether neighbours turn together (2i and 2i + 1), or halves (i and i + half).
    #[must_use]
    pub fn interleaved(&self) -> bool {
        self.interleaved
    }
}

fn angles(rope: &Rope, positions: usize) -> (Vec<f32>, Vec<f32>) {
    let inverse: Vec<f32> = rope.inv_freq().into_iter().map(|f| f as f32).collect();
    let amplitude = rope.attention_factor.value as f32;
    let mut cos = Vec::with_capacity(positions * inverse.len());
    let mut sin = Vec::with_capacity(positions * inverse.len());
    for position in 0..positions {
        for &f in &inverse {
            let (s, c) = f64::from(position as f32 * f).sin_cos();
            cos.push(c as f32 * amplitude);
            sin.push(s as f32 * amplitude);
        }
    }
    (cos, sin)
}
