//! compressed-tensors `pack-quantized` weights: symmetric INT4, groups of 32 along a row with a bf16 scale each.
//!
//! `weight_packed` is int32 [out, in/8]; nibble j of a word (lowest first) is element 8·word + j, stored as q + 8 with q in
//! −8…7. The value is (float) q × (float) scale, one rounding in f32.

use half::bf16;
use safetensors::Dtype;

use crate::config::GROUP;
use crate::error::{Error, Result};
use crate::weights::Weights;

/// A packed linear weight [out, in], usually as bytes of the mapped file.
#[derive(Debug, Clone, Copy)]
pub struct PackedInt4<'a> {
    out: usize,
    inp: usize,
    packed: &'a [u8],
    scales: &'a [u8],
}

impl<'a> PackedInt4<'a> {
    /// A packed weight from its bytes: `packed` of out × in / 2, `scales` of out × in / 32 little-endian bf16.
    ///
    /// # Errors
    /// Rows that are no whole number of groups, or slices of another length.
    pub fn new(out: usize, inp: usize, packed: &'a [u8], scales: &'a [u8]) -> Result<Self> {
        let elements = out.checked_mul(inp).filter(|_| inp.is_multiple_of(GROUP));
        let Some(elements) = elements else {
            let problem = format!("packed INT4 of [{out}, {inp}]: rows must be a whole number of groups of {GROUP}");
            return Err(Error::Size { problem });
        };
        if packed.len() != elements / 2 || scales.len() != elements / GROUP * 2 {
            let problem = format!(
                "packed INT4 of [{out}, {inp}] needs {} packed bytes and {} bytes of scales, not {} and {}",
                elements / 2,
                elements / GROUP * 2,
                packed.len(),
                scales.len()
            );
            return Err(Error::Size { problem });
        }
        Ok(Self { out, inp, packed, scales })
    }

    /// Reads `module.weight_packed`, `.weight_scale` and `.weight_shape`, which must describe a weight of [out, in].
    ///
    /// # Errors
    /// A tensor that is missing or of another shape or type; a `weight_shape` that says otherwise; rows that are no whole
    /// number of groups; zero points, a global scale or a group index, which symmetric weights do not have.
    pub fn read(weights: &'a Weights, module: &str, out: usize, inp: usize) -> Result<Self> {
        let packed_name = format!("{module}.weight_packed");
        if inp == 0 || !inp.is_multiple_of(GROUP) {
            let problem = format!("rows of {inp} are no whole number of groups of {GROUP}");
            return Err(Error::tensor(weights.dir(), &packed_name, problem));
        }
        for suffix in ["weight_zero_point", "weight_g_idx", "weight_global_scale"] {
            let name = format!("{module}.{suffix}");
            if weights.contains(&name) {
                return Err(weights.any(&name)?.error("symmetric INT4 in plain groups has no such tensor"));
            }
        }
        let shape = weights.tensor(&format!("{module}.weight_shape"), &[2])?;
        let stored: Option<Vec<i64>> = match shape.dtype {
            Dtype::I64 => Some(shape.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            Dtype::I32 => {
                Some(shape.bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect())
            }
            _ => None,
        };
        match stored {
            None => return Err(shape.error(format!("is {:?}, but I64 or I32 is needed", shape.dtype))),
            Some(s) if s != [out as i64, inp as i64] => {
                return Err(shape.error(format!("says {s:?}, but the config asks for [{out}, {inp}]")));
            }
            Some(_) => {}
        }
        let packed = weights.tensor(&packed_name, &[out, inp / 8])?;
        if packed.dtype != Dtype::I32 {
            return Err(packed.error(format!("is {:?}, but I32 is needed", packed.dtype)));
        }
        let scales = weights.tensor(&format!("{module}.weight_scale"), &[out, inp / GROUP])?;
        if scales.dtype != Dtype::BF16 {
            return Err(scales.error(format!("is {:?}, but BF16 is needed", scales.dtype)));
        }
        Self::new(out, inp, packed.bytes, scales.bytes)
    }

    /// Rows.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Columns; a multiple of [`GROUP`].
    pub fn inp(&self) -> usize {
        self.inp
    }

    /// The nibbles, out × in / 2 bytes: byte k of a row holds columns 2k (low nibble) and 2k + 1, each stored as q + 8.
    pub fn packed(&self) -> &'a [u8] {
        self.packed
    }

    /// The scales, out × in / 32 little-endian bf16.
    pub fn scales(&self) -> &'a [u8] {
        self.scales
    }

    /// Writes the weight as f32, row-major [out, in].
    ///
    /// # Errors
    /// `to` is not of out × in elements.
    pub fn dequantise(&self, to: &mut [f32]) -> Result<()> {
        if to.len() != self.out * self.inp {
            let problem = format!("[{}, {}] does not fit into {} elements", self.out, self.inp, to.len());
            return Err(Error::Size { problem });
        }
        let groups = to.as_chunks_mut::<GROUP>().0;
        let packed = self.packed.as_chunks::<{ GROUP / 2 }>().0;
        let scales = self.scales.as_chunks::<2>().0;
        for ((group, bytes), scale) in groups.iter_mut().zip(packed).zip(scales) {
            let scale = bf16::from_le_bytes(*scale).to_f32();
            for (pair, byte) in group.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
                pair[0] = (i32::from(byte & 15) - 8) as f32 * scale;
                pair[1] = (i32::from(byte >> 4) - 8) as f32 * scale;
            }
        }
        Ok(())
    }
}
