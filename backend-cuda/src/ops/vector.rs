//! Widths of memory accesses, and the defines that kernels share.

use crate::device::{Define, Dtype};
use crate::error::{CudaError, Result};

/// Numbers that a thread loads or stores at once: the widest access of 16 bytes or less that divides all these sizes (row
/// widths, strides, offsets, in elements).
pub(crate) fn widest(dtype: Dtype, sizes: &[usize]) -> usize {
    let most = 16 / dtype.bytes();
    let fits = |n: &usize| sizes.iter().all(|size| size.is_multiple_of(*n));
    [8, 4, 2, 1].into_iter().filter(|n| *n <= most).find(fits).unwrap_or(1)
}

/// Pairs that a thread turns at once, where halves of a head are `half` long and all of `sizes` are offsets or strides.
pub(crate) fn pairs(half: usize, sizes: &[usize]) -> usize {
    if half.is_multiple_of(2) && sizes.iter().all(|s| s.is_multiple_of(4)) { 2 } else { 1 }
}

/// The defines of a kernel, with the type of its activations.
pub(crate) fn defines(dtype: Dtype, shapes: &[Define]) -> Vec<Define> {
    let mut all = shapes.to_vec();
    if dtype == Dtype::Bf16 {
        all.push(("ACT_BF16", 1));
    }
    all
}

/// Threads of a block that handles `items` accesses: whole warps, at most `most`.
pub(crate) fn threads(items: usize, most: usize) -> usize {
    items.next_multiple_of(32).clamp(32, most)
}

/// An error unless every one of `sizes` is a multiple of `unit`.
pub(crate) fn check_unit(kernel: &str, unit: usize, sizes: &[(&str, usize)]) -> Result<()> {
    match sizes.iter().find(|(_, size)| !size.is_multiple_of(unit)) {
        None => Ok(()),
        Some((name, size)) => {
            let why = format!("{name} {size} is not a multiple of {unit}, as the kernel was compiled for");
            Err(CudaError::Kernel { kernel: kernel.into(), why })
        }
    }
}

/// Blocks that cover `items` with `each`.
pub(crate) fn blocks(items: usize, each: usize) -> u32 {
    items.div_ceil(each) as u32
}
