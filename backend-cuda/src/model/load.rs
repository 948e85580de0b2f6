//! From checkpoint tensors to device memory, one at a time: the mapped file is the only copy on the host. Every tensor that is
//! read is remembered, so that a surplus one is an error.

use super::source::Piece;
use crate::device::{Dtype, Gpu, Ptr};
use crate::error::Result;
use std::collections::BTreeSet;
use std::ops::Range;
use treeline_checkpoint::{Dtype as Stored, Linear, Mla, Quantization, Weights};

/// Bytes that are converted on the host before they are sent.
const STAGE: usize = 16 << 20;

/// Reads tensors below a prefix.
#[derive(Debug)]
pub(super) struct Loader<'w> {
    weights: &'w Weights,
    prefix: String,
    quantization: Option<&'w Quantization>,
    used: BTreeSet<String>,
}

impl<'w> Loader<'w> {
    pub fn new(weights: &'w Weights, prefix: &str, quantization: Option<&'w Quantization>) -> Self {
        Self { weights, prefix: prefix.to_owned(), quantization, used: BTreeSet::new() }
    }

    /// A linear weight as it is stored.
    pub fn stored(&mut self, module: &str, out: usize, inp: usize) -> Result<Linear<'w>> {
        let module = format!("{}{module}", self.prefix);
        let linear = self.weights.linear(&module, out, inp, self.quantization)?;
        for suffix in ["weight", "weight_packed", "weight_scale", "weight_shape"] {
            self.used.insert(format!("{module}.{suffix}"));
        }
        Ok(linear)
    }

    /// A vector as f32.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>> {
        let name = format!("{}{name}", self.prefix);
        let data = self.weights.f32(&name, &[len])?;
        self.used.insert(name);
        Ok(data)
    }

    /// Sends a part of a weight to `to`, dense in `dtype`, dequantised where it is packed.
    pub fn dense(&mut self, gpu: &Gpu, dtype: Dtype, piece: &Piece, to: Ptr) -> Result<()> {
        match self.linear(piece)? {
            Linear::Dense(view) => {
                let source = Bytes { data: view.bytes, stored: view.dtype, columns: piece.inp };
                source.send(gpu, dtype, &piece.rows, &piece.columns, to)
            }
            // Only routed experts stay packed on the device; other packed weights are rare and small.
            Linear::Int4(packed) => {
                let mut wide = vec![0.0; piece.out * piece.inp];
                packed.dequantise(&mut wide)?;
                let source = Bytes { data: bytemuck::cast_slice(&wide), stored: Stored::F32, columns: piece.inp };
                source.send(gpu, dtype, &piece.rows, &piece.columns, to)
            }
        }
    }

    /// Embeddings and routers are never packed, whatever the quantisation covers.
    fn linear(&mut self, piece: &Piece) -> Result<Linear<'w>> {
        if !(piece.module.ends_with("embed_tokens") || piece.module.ends_with("mlp.gate")) {
            return self.stored(&piece.module, piece.out, piece.inp);
        }
        let quantization = self.quantization.take();
        let linear = self.stored(&piece.module, piece.out, piece.inp);
        self.quantization = quantization;
        linear
    }

    /// See [`super::source::Source::latent`].
    pub fn latent(
        &mut self,
        gpu: &Gpu,
        dtype: Dtype,
        module: &str,
        c: &Mla,
        heads: &Range<usize>,
        (absorb, expand): (Ptr, Ptr),
    ) -> Result<()> {
        let both = c.nope + c.v;
        let linear = self.stored(module, c.heads * both, c.kv_lora)?;
        // One layer's weight is tens of megabytes at most, so it is widened as a whole.
        let wide = linear.to_f32()?;
        let row = |i: usize| &wide[i * c.kv_lora..(i + 1) * c.kv_lora];
        let mut keys = vec![0.0f32; heads.len() * c.kv_lora * c.nope];
        let mut values = Vec::with_capacity(heads.len() * c.v * c.kv_lora);
        for (at, head) in heads.clone().enumerate() {
            for n in 0..c.nope {
                for (l, &x) in row(head * both + n).iter().enumerate() {
                    keys[(at * c.kv_lora + l) * c.nope + n] = x;
                }
            }
            (0..c.v).for_each(|v| values.extend_from_slice(row(head * both + c.nope + v)));
        }
        for (data, columns, to) in [(&keys, c.nope, absorb), (&values, c.kv_lora, expand)] {
            let source = Bytes { data: bytemuck::cast_slice(data), stored: Stored::F32, columns };
            source.send(gpu, dtype, &(0..data.len() / columns), &(0..columns), to)?;
        }
        Ok(())
    }

    /// Fails on tensors that nothing has read.
    pub fn finish(&self, ignored: &[&str]) -> Result<()> {
        Ok(self.weights.refuse_unused(|name| self.used.contains(name), ignored)?)
    }
}

/// A row-major matrix of floats in host memory.
struct Bytes<'a> {
    data: &'a [u8],
    stored: Stored,
    columns: usize,
}

impl Bytes<'_> {
    /// Sends `rows` × `columns` of it.
    fn send(&self, gpu: &Gpu, dtype: Dtype, rows: &Range<usize>, columns: &Range<usize>, to: Ptr) -> Result<()> {
        let width = if self.stored == Stored::F32 { 4 } else { 2 };
        let pitch = self.columns * width;
        let same = matches!((self.stored, dtype), (Stored::F32, Dtype::F32) | (Stored::BF16, Dtype::Bf16));
        if same && columns.len() == self.columns {
            return gpu.copy_in(to, &self.data[rows.start * pitch..rows.end * pitch]);
        }
        let out_row = columns.len() * dtype.bytes();
        let step = (STAGE / out_row.max(1)).max(1);
        let mut stage = Vec::with_capacity(step.min(rows.len()) * out_row);
        for first in rows.clone().step_by(step) {
            stage.clear();
            for row in first..(first + step).min(rows.end) {
                let from = &self.data[row * pitch + columns.start * width..row * pitch + columns.end * width];
                match same {
                    true => stage.extend_from_slice(from),
                    false => self.convert(from, dtype, &mut stage),
                }
            }
            gpu.copy_in(to.offset((first - rows.start) * out_row), &stage)?;
        }
        Ok(())
    }

    fn convert(&self, from: &[u8], dtype: Dtype, out: &mut Vec<u8>) {
        let mut put = |x: f32| match dtype {
            Dtype::F32 => out.extend_from_slice(&x.to_le_bytes()),
            Dtype::Bf16 => out.extend_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
        };
        match self.stored {
            Stored::F32 => from.as_chunks::<4>().0.iter().for_each(|b| put(f32::from_le_bytes(*b))),
            Stored::F16 => from.as_chunks::<2>().0.iter().for_each(|b| put(half::f16::from_le_bytes(*b).to_f32())),
            // The checkpoint reader lets only bf16, f16 and f32 through.
            _ => from.as_chunks::<2>().0.iter().for_each(|b| put(half::bf16::from_le_bytes(*b).to_f32())),
        }
    }
}
