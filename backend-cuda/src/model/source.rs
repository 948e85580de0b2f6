//! Where weights come from: a checkpoint, tensor by tensor, or numbers made on the device at the same shapes.

use super::advise;
use super::load::Loader;
use super::weight::{Few, Weight};
use crate::device::{Buffer, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::Result;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Which setting to lower when weights do not fit.
pub(super) const WEIGHTS: &str = "lower `layers`, or spread the model over more `ranks`";

/// A part of one linear weight \[out, in\] of the checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Module, without `.weight`.
    pub module: String,
    /// Rows of the whole weight.
    pub out: usize,
    /// Columns of the whole weight.
    pub inp: usize,
    /// Rows that are taken.
    pub rows: Range<usize>,
    /// Columns that are taken.
    pub columns: Range<usize>,
}

impl Piece {
    /// All of it.
    pub fn whole(module: impl Into<String>, out: usize, inp: usize) -> Self {
        Self { module: module.into(), out, inp, rows: 0..out, columns: 0..inp }
    }

    /// Some rows: what each rank computes of its own.
    pub fn rows(self, rows: Range<usize>) -> Self {
        Self { rows, ..self }
    }

    /// Some columns: what each rank contributes to a sum.
    pub fn columns(self, columns: Range<usize>) -> Self {
        Self { columns, ..self }
    }
}

/// `range` of heads, as rows of `width` each.
pub(super) fn scaled(range: &Range<usize>, width: usize) -> Range<usize> {
    range.start * width..range.end * width
}

/// Where weights come from.
#[derive(Debug)]
pub(super) enum Source<'w> {
    Checkpoint(Loader<'w>),
    Synthetic(Fill),
}

impl Source<'_> {
    /// Weights that read the same input, one below the other. All have the same columns.
    pub fn dense(&mut self, gpu: &Gpu, dtype: Dtype, pieces: &[Piece], few: &Few) -> Result<Weight> {
        let inp = pieces[0].columns.len();
        let out = pieces.iter().map(|p| p.rows.len()).sum::<usize>();
        let what = format!("weights of `{}`", pieces[0].module);
        let data: Buffer<u8> = advise(gpu.alloc(&what, out * inp * dtype.bytes()), WEIGHTS)?;
        let mut at = 0;
        for piece in pieces {
            let to = data.at(at);
            match self {
                Self::Checkpoint(load) => load.dense(gpu, dtype, piece, to)?,
                Self::Synthetic(fill) => fill.dense(gpu, dtype, to, piece.rows.len(), inp)?,
            }
            at += piece.rows.len() * inp * dtype.bytes();
        }
        Ok(Weight::new(data, out, inp, dtype, few.clone()))
    }

    /// A norm's weight, f32.
    pub fn norm(&mut self, gpu: &Gpu, module: &str, len: usize) -> Result<Buffer<f32>> {
        match self {
            Self::Checkpoint(load) => {
                let data = load.vector(&format!("{module}.weight"), len)?;
                advise(gpu.upload(&format!("weights of `{module}`"), &data), WEIGHTS)
            }
            Self::Synthetic(_) => advise(gpu.upload("synthetic norms", &vec![1.0; len]), WEIGHTS),
        }
    }

    /// Parts of vectors, one behind the other, f32: tensor, its whole length, what is taken.
    pub fn vectors(&mut self, gpu: &Gpu, parts: &[(String, usize, Range<usize>)]) -> Result<Buffer<f32>> {
        let mut data = Vec::new();
        for (name, len, range) in parts {
            match self {
                Self::Checkpoint(load) => data.extend_from_slice(&load.vector(name, *len)?[range.clone()]),
                Self::Synthetic(_) => data.resize(data.len() + range.len(), 0.0),
            }
        }
        advise(gpu.upload("biases", &data), WEIGHTS)
    }

    /// The up-projection of latent keys and values, split by head of this rank: keys \[heads\]\[kv_lora, nope\], transposed so
    /// that queries go into the latent space with it, and values \[heads\]\[v, kv_lora\].
    pub fn latent(
        &mut self,
        gpu: &Gpu,
        dtype: Dtype,
        module: &str,
        c: &treeline_checkpoint::Mla,
        heads: &Range<usize>,
    ) -> Result<(Buffer<u8>, Buffer<u8>)> {
        let (n, e) = (heads.len(), dtype.bytes());
        let what = format!("weights of `{module}`");
        let absorb: Buffer<u8> = advise(gpu.alloc(&what, n * c.kv_lora * c.nope * e), WEIGHTS)?;
        let expand: Buffer<u8> = advise(gpu.alloc(&what, n * c.kv_lora * c.v * e), WEIGHTS)?;
        match self {
            Self::Synthetic(fill) => {
                fill.dense(gpu, dtype, absorb.ptr(), n * c.kv_lora, c.nope)?;
                fill.dense(gpu, dtype, expand.ptr(), n * c.v, c.kv_lora)?;
            }
            Self::Checkpoint(load) => load.latent(gpu, dtype, module, c, heads, (absorb.ptr(), expand.ptr()))?,
        }
        Ok((absorb, expand))
    }
}

/// Makes weights on the device.
#[derive(Debug)]
pub(super) struct Fill {
    kernels: [Kernel; 2],
    /// Grows with every tensor.
    seed: u64,
}

/// Arguments of `fill`; mirrors `Fill` in `fill.cu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FillArgs {
    out: Ptr,
    count: u64,
    seed: u64,
    scale: f32,
    pad: u32,
}

impl KernelArgs for FillArgs {}

const THREADS: u32 = 256;
const EACH: u64 = 8;

impl Fill {
    pub fn new(gpu: &Gpu, seed: u64) -> Result<Self> {
        let kernel = |bf16| gpu.kernel("fill.cu", "fill", if bf16 { &[("ACT_BF16", 1)] } else { &[] });
        Ok(Self { kernels: [kernel(false)?, kernel(true)?], seed })
    }

    /// A weight \[out, in\], uniform with variance 1 / in: outputs are as large as inputs.
    fn dense(&mut self, gpu: &Gpu, dtype: Dtype, to: Ptr, out: usize, inp: usize) -> Result<()> {
        self.uniform(gpu, dtype, to, out * inp, (3.0 / inp as f32).sqrt())
    }

    /// `count` numbers, uniform in ± `scale`.
    pub fn uniform(&mut self, gpu: &Gpu, dtype: Dtype, to: Ptr, count: usize, scale: f32) -> Result<()> {
        let seed = self.next();
        let kernel = &self.kernels[usize::from(dtype == Dtype::Bf16)];
        let count = count as u64;
        let blocks = count.div_ceil(EACH).div_ceil(u64::from(THREADS)).clamp(1, 1 << 30) as u32;
        gpu.launch(kernel, Launch::flat(blocks, THREADS), &FillArgs { out: to, count, seed, scale, pad: 0 })
    }

    /// A seed that was not used before.
    pub fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.seed
    }
}
