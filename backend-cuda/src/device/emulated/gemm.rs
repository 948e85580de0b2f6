//! Matrix products in plain loops.

use super::memory::Memory;
use crate::device::{Dtype, Gemm, Matrix};
use crate::error::Result;
use half::bf16;

/// Partial sums of a dot product: independent, so that the compiler can use vector registers; and shorter sums lose less.
const LANES: usize = 16;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    for (x, y) in whole_a.iter().zip(whole_b) {
        for i in 0..LANES {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(x, y)| x * y).sum();
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0] + rest
}

/// Address of row `row` of problem `batch`.
fn at(m: &Matrix, batch: usize, row: usize) -> u64 {
    m.at.offset((batch * m.batch_stride + row * m.stride) * m.dtype.bytes()).0
}

fn read(m: &Matrix, batch: usize, row: usize, out: &mut [f32]) {
    let at = at(m, batch, row);
    match m.dtype {
        Dtype::F32 => {
            // SAFETY: `run` checked that all rows lie in one live allocation; elements are aligned (checked too).
            let row = unsafe { std::slice::from_raw_parts(at as *const f32, out.len()) };
            out.copy_from_slice(row);
        }
        Dtype::Bf16 => {
            // SAFETY: as above; a bf16 is two bytes of any content.
            let row = unsafe { std::slice::from_raw_parts(at as *const u16, out.len()) };
            out.iter_mut().zip(row).for_each(|(o, bits)| *o = f32::from_bits(u32::from(*bits) << 16));
        }
    }
}

/// Whether all elements of a matrix lie in one allocation, aligned to their type.
fn check(memory: &Memory, name: &str, m: &Matrix, batch: usize, rows: usize, columns: usize) -> Result<()> {
    let call = format!("gemm, {name}");
    if m.stride < columns {
        return Err(super::failed(&call, format!("rows of {columns} elements overlap: the stride is {}", m.stride)));
    }
    let elements = (batch - 1) * m.batch_stride + (rows - 1) * m.stride + columns;
    // cuBLASLt takes less too, but with slower kernels.
    if !m.at.0.is_multiple_of(m.dtype.bytes() as u64) {
        return Err(super::failed(&call, format!("{:#x} is not aligned to its elements", m.at.0)));
    }
    memory.check(&call, m.at.0, elements * m.dtype.bytes())
}

/// y\[r, o\] = Σ_i x\[r, i\] · w\[o, i\] (+ y\[r, o\]).
pub(super) fn run(gemm: &Gemm, memory: &Memory) -> Result<()> {
    let Gemm { rows, outputs, inputs, batch, x, w, y, add } = *gemm;
    if rows == 0 || outputs == 0 || batch == 0 {
        return Ok(());
    }
    if inputs == 0 {
        return Err(super::failed("gemm", format!("a sum of nothing: {gemm:?}")));
    }
    if x.dtype != w.dtype || (y.dtype != x.dtype && y.dtype != Dtype::F32) {
        let why = format!("x is {:?}, w {:?}, y {:?}: x and w have one type, y that or F32", x.dtype, w.dtype, y.dtype);
        return Err(super::failed("gemm", why));
    }
    check(memory, "x", &x, batch, rows, inputs)?;
    check(memory, "w", &w, batch, outputs, inputs)?;
    check(memory, "y", &y, batch, rows, outputs)?;
    let (mut xs, mut weight) = (vec![0f32; rows * inputs], vec![0f32; inputs]);
    for b in 0..batch {
        xs.chunks_mut(inputs).enumerate().for_each(|(r, row)| read(&x, b, r, row));
        for o in 0..outputs {
            read(&w, b, o, &mut weight);
            for (r, row) in xs.chunks(inputs).enumerate() {
                let sum = dot(row, &weight);
                let place = at(&y, b, r);
                match y.dtype {
                    Dtype::F32 => {
                        let place = (place as *mut f32).wrapping_add(o);
                        // SAFETY: `check` found all of y in one live allocation, which the borrow of `memory` keeps.
                        unsafe { *place = if add { *place + sum } else { sum } };
                    }
                    Dtype::Bf16 => {
                        let place = (place as *mut u16).wrapping_add(o);
                        // SAFETY: as above.
                        let old = if add { bf16::from_bits(unsafe { *place }).to_f32() } else { 0.0 };
                        // SAFETY: as above.
                        unsafe { *place = bf16::from_f32(sum + old).to_bits() };
                    }
                }
            }
        }
    }
    Ok(())
}
