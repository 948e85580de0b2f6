//! Weights of the routed experts of one layer: from a checkpoint, or synthetic.

use super::experts::{ExpertKind, Experts};
use crate::device::{Buffer, Dtype, Gpu, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Threads of a block, as in `moe_pack.cu`.
const THREADS: u32 = 256;

/// One projection of one expert, row-major \[out, in\], this rank's part.
#[derive(Debug, Clone, Copy)]
pub enum ExpertTensor<'a> {
    /// Elements of the activations' type.
    Dense(&'a [u8]),
    /// Symmetric INT4 in groups of 32 along a row, as [`treeline_checkpoint::PackedInt4`] has it.
    Int4 {
        /// Nibbles, out × in / 2 bytes.
        packed: &'a [u8],
        /// Scales, out × in / 32 bf16.
        scales: &'a [u8],
    },
}

/// All experts of one layer on the device, in the layout of the [`Experts`] that made it.
#[derive(Debug)]
pub struct ExpertWeights {
    pub(super) bytes: Buffer<u32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackArgs {
    from: Ptr,
    to: Ptr,
}

impl KernelArgs for PackArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SyntheticArgs {
    to: Ptr,
    seed: u64,
    words: u64,
    scale: u32,
    kind: u32,
}

impl KernelArgs for SyntheticArgs {}

impl ExpertWeights {
    /// The first byte.
    #[must_use]
    pub fn ptr(&self) -> Ptr {
        self.bytes.ptr()
    }
}

impl Experts {
    /// Memory for the experts of one layer.
    ///
    /// # Errors
    /// [`CudaError::Memory`].
    pub fn layer(&self, gpu: &Gpu) -> Result<ExpertWeights> {
        let bytes = gpu.alloc("expert weights", self.shape.experts * self.expert_bytes() / 4)?;
        Ok(ExpertWeights { bytes })
    }

    /// Bytes of one expert.
    #[must_use]
    pub fn expert_bytes(&self) -> usize {
        let elements = 3 * self.shape.hidden * self.shape.intermediate;
        match self.shape.kind {
            ExpertKind::Dense => elements * self.dtype.bytes(),
            ExpertKind::Int4 => elements / 2 + elements / 16,
        }
    }

    /// Copies the projections gate \[intermediate, hidden\], up, down \[hidden, intermediate\] of one expert to the device.
    ///
    /// # Errors
    /// No such expert, a tensor of another kind or size, or the driver's.
    pub fn load(
        &self,
        gpu: &Gpu,
        layer: &ExpertWeights,
        expert: usize,
        projections: [ExpertTensor<'_>; 3],
    ) -> Result<()> {
        let to = self.place(layer, expert)?;
        let raw = self.staging.as_ref().map_or(to, Buffer::ptr);
        let elements = self.shape.hidden * self.shape.intermediate;
        let mut at = 0;
        for tensor in projections {
            let (parts, sizes) = match (tensor, self.shape.kind) {
                (ExpertTensor::Dense(bytes), ExpertKind::Dense) => ([bytes, &[]], [elements * self.dtype.bytes(), 0]),
                (ExpertTensor::Int4 { packed, scales }, ExpertKind::Int4) => {
                    ([packed, scales], [elements / 2, elements / 16])
                }
                _ => return Err(CudaError::Model(format!("experts are {:?}, a tensor is not", self.shape.kind))),
            };
            for (part, size) in parts.into_iter().zip(sizes) {
                if part.len() != size {
                    let problem = format!("a tensor of an expert has {} bytes, {size} are needed", part.len());
                    return Err(CudaError::Model(problem));
                }
                if size > 0 {
                    gpu.copy_in(raw.offset(at), part)?;
                }
                at += size;
            }
        }
        self.pack(gpu, to)
    }

    /// Fills a layer with random weights that depend on `seed` and the place alone: INT4 with every nibble equally likely and
    /// scales that keep outputs near their inputs' size, or dense ones of that size.
    ///
    /// # Errors
    /// The driver's.
    pub fn synthetic(&self, gpu: &Gpu, layer: &ExpertWeights, seed: u64) -> Result<()> {
        // Uniform nibbles deviate by 4.6, uniform floats in ±1 by 0.58; sums over `hidden` shall keep their size.
        let size = 1.0 / (self.shape.hidden as f32).sqrt();
        let (kind, scale) = match (self.shape.kind, self.dtype) {
            (ExpertKind::Int4, _) => (0, (size / 7.0).to_bits() >> 23 << 7),
            (ExpertKind::Dense, Dtype::F32) => (1, (size * 1.7).to_bits()),
            (ExpertKind::Dense, Dtype::Bf16) => (2, (size * 1.7).to_bits()),
        };
        let words = self.expert_bytes() as u64 / 4;
        for expert in 0..self.shape.experts {
            let to = self.place(layer, expert)?;
            let raw = self.staging.as_ref().map_or(to, Buffer::ptr);
            let seed = seed.wrapping_mul(0xD6E8_FEB8_6659_FD93).wrapping_add(expert as u64) << 32;
            let args = SyntheticArgs { to: raw, seed, words, scale, kind };
            gpu.launch(&self.synthetic, Launch::flat(words.div_ceil(u64::from(THREADS)) as u32, THREADS), &args)?;
            self.pack(gpu, to)?;
        }
        Ok(())
    }

    /// From the staging memory to `to`, where the layout differs from the checkpoint's.
    fn pack(&self, gpu: &Gpu, to: Ptr) -> Result<()> {
        let Some(staging) = &self.staging else { return Ok(()) };
        let blocks = (staging.len() as u32).div_ceil(THREADS);
        gpu.launch(&self.pack, Launch::flat(blocks, THREADS), &PackArgs { from: staging.ptr(), to })
    }

    fn place(&self, layer: &ExpertWeights, expert: usize) -> Result<Ptr> {
        if expert >= self.shape.experts || layer.bytes.bytes() != self.shape.experts * self.expert_bytes() {
            return Err(CudaError::Model(format!("expert {expert} is none of these {} experts", self.shape.experts)));
        }
        Ok(layer.bytes.ptr().offset(expert * self.expert_bytes()))
    }
}
