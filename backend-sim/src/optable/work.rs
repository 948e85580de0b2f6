//! What one call of a measured operation must move and compute at least: the bound that its time is held against.

use super::{Collective, MoeShape};

/// Bytes, flops and link traffic of one call on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of device memory.
    pub bytes: f64,
    /// Floating-point operations, a multiply-add as two.
    pub flops: f64,
    /// Bytes that one GPU must receive over the link.
    pub link: f64,
}

/// Rates of a machine, per GPU, from its datasheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Device memory, bytes a second.
    pub bytes_s: f64,
    /// Dense bf16, flops a second.
    pub flops_s: f64,
    /// Link in one direction, bytes a second.
    pub link_s: f64,
}

impl From<&crate::profile::Hardware> for Rates {
    fn from(h: &crate::profile::Hardware) -> Self {
        Self { bytes_s: h.hbm_bytes_s, flops_s: h.bf16_flops, link_s: h.nvlink_bytes_s }
    }
}

impl Work {
    /// max(bytes/bandwidth, flops/peak, link bytes/link) in µs.
    #[must_use]
    pub fn bound_us(&self, rates: &Rates) -> f64 {
        let memory = self.bytes / rates.bytes_s;
        let compute = self.flops / rates.flops_s;
        1e6 * memory.max(compute).max(self.link / rates.link_s)
    }

    /// A routed MoE layer: `rows` rows that touch `distinct` experts, each expert shared by `tp` ranks. Weights of every touched
    /// expert once, activations in and out; three products per row and chosen expert.
    #[must_use]
    pub fn moe(shape: &MoeShape<'_>, tp: f64, rows: f64, distinct: f64) -> Self {
        let expert = 3.0 * f64::from(shape.hidden) * f64::from(shape.intermediate);
        // INT4 in groups of 32 with a bf16 scale: 4.5 bits.
        let width = if shape.quant == "int4_wo" { 0.5625 } else { 2.0 };
        Self {
            bytes: distinct * expert * width / tp + 4.0 * rows * f64::from(shape.hidden),
            flops: 2.0 * rows * f64::from(shape.top_k) * expert / tp,
            link: 0.0,
        }
    }

    /// MLA decode of one row per request over latents of 512 + 64: the cache once per request; scores over 576 and values over 512
    /// elements per head and token.
    #[must_use]
    pub fn mla(heads: f64, cache_bytes: f64, batch: f64, context: f64) -> Self {
        Self { bytes: batch * context * 576.0 * cache_bytes, flops: 2.0 * batch * heads * context * 1088.0, link: 0.0 }
    }

    /// MLA's projections in bf16 on DeepSeek-V3's and Kimi's widths (hidden 7168, query rank 1536, heads of 128 + 64 and 128),
    /// the absorbed products among them.
    #[must_use]
    pub fn mla_projections(heads: f64, rows: f64) -> Self {
        let down = 7168.0 * (1536.0 + 576.0);
        let up = 1536.0 * heads * 192.0 + 512.0 * heads * 256.0;
        let out = heads * 128.0 * 7168.0;
        let weights = down + up + out;
        Self { bytes: 2.0 * weights + 4.0 * rows * 7168.0, flops: 2.0 * rows * weights, link: 0.0 }
    }

    /// One absorbed product: per head 128 × 512.
    #[must_use]
    pub fn mla_bmm(heads: f64, width: f64, rows: f64) -> Self {
        let weights = heads * 128.0 * 512.0;
        Self { bytes: width * weights + 2.0 * rows * heads * (128.0 + 512.0), flops: 2.0 * rows * weights, link: 0.0 }
    }

    /// A bf16 product [m, k] × [k, n].
    #[must_use]
    pub fn gemm(m: f64, n: f64, k: f64) -> Self {
        Self { bytes: 2.0 * (m * k + n * k + m * n), flops: 2.0 * m * n * k, link: 0.0 }
    }

    /// Grouped-query decode of one row per request: keys and values once per request.
    #[must_use]
    pub fn attention(heads: f64, kv_heads: f64, head_dim: f64, cache_bytes: f64, batch: f64, context: f64) -> Self {
        Self {
            bytes: 2.0 * batch * context * kv_heads * head_dim * cache_bytes,
            flops: 4.0 * batch * context * heads * head_dim,
            link: 0.0,
        }
    }

    /// A collective of `bytes` over `ranks`: what a GPU receives at least, 2(p−1)/p of the message to reduce, (p−1)/p of the whole to gather.
    #[must_use]
    pub fn collective(op: Collective, ranks: f64, bytes: f64) -> Self {
        let share = (ranks - 1.0) / ranks;
        let passes = match op {
            Collective::AllReduce => 2.0,
            Collective::AllGather => 1.0,
        };
        Self { link: passes * share * bytes, ..Self::default() }
    }
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, flops: self.flops + other.flops, link: self.link + other.link }
    }
}

/// Bytes of a cache or weight element by its name in the tables.
pub(crate) fn element(format: &str) -> f64 {
    if format == "fp8" { 1.0 } else { 2.0 }
}
