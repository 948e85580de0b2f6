//! The arithmetic under the engine: products, attention and element-wise passes, in safe code.
//!
//! Every kernel fixes the order of every sum by the operands of one row alone, so that a row's result does not depend on
//! how many rows are computed with it. [`pulp`] chooses the widest vector unit at run time.

mod attend;
mod elementwise;
mod gemm;
mod packed;

pub(crate) use attend::{Attend, KvView, Visible, attend};
pub(crate) use elementwise::{log_softmax, rms_norm, silu_mul, softmax};
pub(crate) use gemm::{Product, panel_width};
pub(crate) use packed::Packed;

use pulp::Arch;
use std::sync::OnceLock;

/// The vector unit of this machine, detected once.
pub(crate) fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(Arch::new)
}
