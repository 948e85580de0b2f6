//! What a kernel moves and computes: bytes, operations and the least time of one call on one GPU.
//!
//! Bytes of memory are weights and cache entries (formula book §2). Activations are left out: those of a step stay in the
//! L2 cache, so that counting them would make the lower limit no limit.

use crate::profile::Hardware;

/// Bytes of a bf16 number: activations are bf16 in every deployment that is priced.
pub(super) const BF16: f64 = 2.0;

/// A kernel whose work depends on its rows only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Work {
    /// `rows × k` by `k × n`, weights of `bytes_per_param`.
    Gemm { n: u32, k: u32, bytes_per_param: f64 },
    /// One small product per head: `rows × k` by `k × n`, `heads` times (the absorbed projections of latent attention).
    /// `post` is the one behind attention.
    Batched { heads: u32, n: u32, k: u32, post: bool },
    /// Reads and writes `bytes` of activations a row.
    Element { bytes: f64 },
    /// Sum over the ranks of `bytes` a row.
    AllReduce { bytes: f64 },
    /// Every rank gets all ranks' parts, together `bytes` a row.
    Gather { bytes: f64 },
}

impl Work {
    /// Bytes of weights from memory for `m` rows; over the link for collectives.
    pub(super) fn bytes(&self, m: f64) -> f64 {
        match *self {
            Self::Gemm { n, k, bytes_per_param } => f64::from(n) * f64::from(k) * bytes_per_param,
            Self::Batched { heads, n, k, .. } => f64::from(heads) * f64::from(n) * f64::from(k) * BF16,
            Self::AllReduce { bytes } | Self::Gather { bytes } => m * bytes,
            Self::Element { .. } => 0.0,
        }
    }

    /// Bytes of activations that an element-wise kernel moves, from wherever they lie.
    pub(super) fn activations(&self, m: f64) -> f64 {
        if let Self::Element { bytes } = *self { m * bytes } else { 0.0 }
    }

    /// Floating point operations for `m` rows.
    pub(super) fn flops(&self, m: f64) -> f64 {
        match *self {
            Self::Gemm { n, k, .. } => 2.0 * m * f64::from(n) * f64::from(k),
            Self::Batched { heads, n, k, .. } => 2.0 * m * f64::from(heads) * f64::from(n) * f64::from(k),
            _ => 0.0,
        }
    }

    /// Whether the bytes cross the link instead of the memory bus.
    pub(super) fn link(&self) -> bool {
        matches!(self, Self::AllReduce { .. } | Self::Gather { .. })
    }
}

/// Datasheet rates of one GPU and its link, per µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Roof {
    /// Memory bytes.
    pub bytes_us: f64,
    /// BF16 operations; W4A16 kernels have the same roof.
    pub flops_us: f64,
    /// Bytes over the link, one direction.
    pub link_us: f64,
    /// Ranks that share the model.
    pub ranks: f64,
    /// The switch can add: an all-reduce sends each byte once.
    pub nvls: bool,
}

impl Roof {
    pub(super) fn new(hardware: &Hardware, ranks: u32) -> Self {
        Self {
            bytes_us: hardware.hbm_bytes_s * 1e-6,
            flops_us: hardware.bf16_flops * 1e-6,
            link_us: hardware.nvlink_bytes_s * 1e-6,
            ranks: f64::from(ranks),
            nvls: hardware.nvls,
        }
    }

    /// The least time of one call in µs: `max(bytes / bandwidth, flops / peak)`. An all-reduce sends 2(p−1)/p of its bytes
    /// (once with in-switch reduction), a gather receives (p−1)/p of them.
    pub(super) fn us(&self, work: &Work, m: f64) -> f64 {
        let share = (self.ranks - 1.0) / self.ranks;
        match work {
            Work::AllReduce { .. } => {
                let sent = if self.nvls { 1.0_f64.min(2.0 * share) } else { 2.0 * share };
                work.bytes(m) * sent / self.link_us
            }
            Work::Gather { .. } => work.bytes(m) * share / self.link_us,
            _ => (work.bytes(m) / self.bytes_us).max(work.flops(m) / self.flops_us),
        }
    }
}
