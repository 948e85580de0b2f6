//! One line of a breakdown, and the words for where a figure comes from.

use serde::{Deserialize, Serialize};
use treeline_core::log::Phase;

/// Where the times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// `max(bytes / bandwidth, flops / peak)` per kernel, no latencies: a lower limit, never a prediction.
    Bound,
    /// Op times measured on serving engines, summed over the step; the tree part of attention is added as flops.
    Table,
    /// Op or step times measured by this project's engine on the machine at hand.
    Calibrated,
}

impl Tier {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Table => "table",
            Self::Calibrated => "calibrated",
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the time of one line comes from, finer than [`Tier`]: one step mixes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Datasheet bytes and flops.
    Bound,
    /// A measured op table.
    Table,
    /// A measured table for one row a request, and the flops of the other rows on top.
    TableFlops,
    /// A formula with the profile's measured constants (element-wise kernels, launch and host time).
    Profile,
    /// The calibration file.
    Calibrated,
    /// Between bound and table (`overhead_scale` below 1).
    Blend,
}

impl Origin {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Table => "table",
            Self::TableFlops => "table+flops",
            Self::Profile => "profile",
            Self::Calibrated => "calibrated",
            Self::Blend => "bound..table",
        }
    }
}

/// What holds an op back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Bandwidth of the GPU's memory.
    Memory,
    /// Peak of the tensor cores.
    Compute,
    /// Launches, dependencies, half-filled machines: two thirds of the time or more are neither bytes nor flops, and more
    /// work would take hardly longer.
    Latency,
    /// The kernel itself: two thirds of the time or more are neither bytes nor flops, yet it grows with the work.
    Kernel,
    /// The link between the GPUs.
    Link,
}

impl Limit {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Latency => "latency",
            Self::Kernel => "kernel",
            Self::Link => "link",
        }
    }
}

/// One op of a step. Bytes, flops and times are sums over its calls, on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpLine {
    /// Name of the op, such as `moe experts`.
    pub name: String,
    /// The phase that it belongs to.
    pub phase: Phase,
    /// Kernel calls (layers × kernels a layer).
    pub calls: u32,
    /// Bytes from and to the GPU's memory; for the all-reduces, bytes over the link.
    pub bytes: f64,
    /// Floating point operations.
    pub flops: f64,
    /// Time in µs.
    pub us: f64,
    /// The `bound` tier's time in µs.
    pub bound_us: f64,
    /// What holds it back.
    pub limit: Limit,
    /// Where its time comes from.
    pub tier: Origin,
    /// The figure lies inside the domain of its source.
    pub in_domain: bool,
}
