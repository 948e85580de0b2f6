//! The op list of a step: what every tier prices.

use super::scales::Class;
use super::work::Work;
use std::borrow::Cow;
use treeline_core::log::Phase;

/// An op whose work depends on its rows only.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowOp {
    /// Name in a breakdown.
    pub name: Cow<'static, str>,
    /// Phase of the round.
    pub phase: Phase,
    /// Class whose scale applies.
    pub class: Class,
    /// Calls a pass: layers × kernels a layer.
    pub calls: u32,
    /// What one call does.
    pub work: Work,
    /// Fixed part of one call in µs where no table has the op.
    pub fixed_us: f64,
    /// Rows of the call as a share of the pass's rows: a block drafter's head sees block − 1 of block rows.
    pub share: f64,
}

impl RowOp {
    /// A matrix product over all rows of the pass.
    pub(super) fn gemm(name: impl Into<Cow<'static, str>>, calls: u32, n: u32, k: u32, bytes_per_param: f64) -> Self {
        Self {
            name: name.into(),
            phase: Phase::Verify,
            class: Class::Gemm,
            calls,
            work: Work::Gemm { n, k, bytes_per_param },
            fixed_us: 0.0,
            share: 1.0,
        }
    }

    /// `calls` kernels that move `bytes` a row each and take at least `fixed_us`.
    pub(super) fn element(name: impl Into<Cow<'static, str>>, calls: u32, bytes: f64, fixed_us: f64) -> Self {
        Self { fixed_us, work: Work::Element { bytes }, class: Class::Small, ..Self::gemm(name, calls, 0, 0, 0.0) }
    }

    /// All-reduces of `bytes` a row.
    pub(super) fn allreduce(name: impl Into<Cow<'static, str>>, calls: u32, bytes: f64) -> Self {
        Self { work: Work::AllReduce { bytes }, class: Class::Allreduce, ..Self::gemm(name, calls, 0, 0, 0.0) }
    }

    /// The same op in another phase and class.
    pub(super) fn of(self, phase: Phase, class: Class) -> Self {
        Self { phase, class, ..self }
    }

    /// Bytes from and to the GPU's memory and operations of all its calls in a pass of `rows` rows; what goes over the link is
    /// no memory traffic.
    pub(super) fn moves(&self, rows: f64) -> (f64, f64) {
        let (calls, m) = (f64::from(self.calls), self.rows(rows));
        (if self.work.link() { 0.0 } else { calls * self.work.bytes(m) }, calls * self.work.flops(m))
    }

    /// Rows of a call in a pass of `rows` rows.
    pub(super) fn rows(&self, rows: f64) -> f64 {
        if self.share == 1.0 { rows } else { (rows * self.share).ceil() }
    }
}

/// The routed experts of all MoE layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExpertOp {
    /// MoE layers.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts a row is sent to.
    pub top_k: u32,
    /// Bytes of one expert's part on one rank.
    pub expert_bytes: f64,
    /// Operations of one row in one expert's part on one rank.
    pub expert_flops: f64,
}

/// The attention kernel of all layers of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AttentionOp {
    /// Name in a breakdown.
    pub name: &'static str,
    /// Phase of the round.
    pub phase: Phase,
    /// Layers.
    pub layers: u32,
    /// Cached bytes of one token in one layer on one rank; read once a request, whatever its rows.
    pub token_bytes: f64,
    /// Operations of one row against one cached token on one rank.
    pub token_flops: f64,
    /// Tokens that a layer looks back at most; infinite without a window.
    pub window: f64,
}

/// One pass of a model: all its ops.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pass {
    /// Ops that add up on the main stream.
    pub rows: Vec<RowOp>,
    /// Ops of the shared expert; they may run beside the routed ones.
    pub shared: Vec<RowOp>,
    /// Routed experts.
    pub experts: Option<ExpertOp>,
    /// Attention kernels.
    pub attention: Vec<AttentionOp>,
}
