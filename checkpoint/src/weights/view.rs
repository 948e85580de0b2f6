//! One tensor of a checkpoint, as bytes of the mapped file.

use std::path::Path;

use half::{bf16, f16};
use safetensors::Dtype;

use crate::error::{Error, Result};

/// A tensor whose bytes stay in the mapped file; little-endian, row-major, not necessarily aligned.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Shard that holds it.
    pub path: &'a Path,
    /// Name in the checkpoint.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost first; a linear weight is [out, in].
    pub shape: &'a [usize],
    /// Raw bytes.
    pub bytes: &'a [u8],
}

impl TensorView<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        // The header check proved that the product fits and matches the bytes.
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as f32, exact for bf16, f16 and f32.
    ///
    /// # Errors
    /// Any other element type.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.len()];
        self.read_f32(&mut out)?;
        Ok(out)
    }

    /// As [`TensorView::to_f32`], into memory of the caller.
    ///
    /// # Errors
    /// Any other element type, or `out` of another length than the tensor.
    pub fn read_f32(&self, out: &mut [f32]) -> Result<()> {
        if out.len() != self.len() {
            let problem = format!("tensor `{}` of {} elements does not fit into {}", self.name, self.len(), out.len());
            return Err(Error::Size { problem });
        }
        match self.dtype {
            Dtype::F32 => fill(out, self.bytes, f32::from_le_bytes),
            Dtype::BF16 => fill(out, self.bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F16 => fill(out, self.bytes, |b| f16::from_le_bytes(b).to_f32()),
            other => return Err(self.error(format!("is {other:?}, but BF16, F16 or F32 is needed"))),
        }
        Ok(())
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::tensor(self.path, self.name, problem)
    }
}

fn fill<const N: usize>(out: &mut [f32], bytes: &[u8], read: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (o, c) in out.iter_mut().zip(chunks) {
        *o = read(*c);
    }
}
