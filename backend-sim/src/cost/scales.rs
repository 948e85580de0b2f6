//! Multipliers on the times of one class of ops: how an answer is tested against the error of its inputs.

/// What an op is, for scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Moe,
    Allreduce,
    Attention,
    Gemm,
    Small,
    Draft,
}

/// A factor on the time of every op of a class, in tiers `table` and `calibrated`; 1 = as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpScales {
    /// Routed and shared experts.
    pub moe: f64,
    /// All-reduces of the target.
    pub allreduce: f64,
    /// Attention kernels of the target.
    pub attention: f64,
    /// Dense products of the target.
    pub gemm: f64,
    /// Norms, rotation, activations and sampling: kernels too small for any limit but their launch.
    pub small: f64,
    /// Everything that the drafter runs.
    pub draft: f64,
    /// Host time, tree, walk and commit; launches in eager mode.
    pub host: f64,
}

impl Default for OpScales {
    fn default() -> Self {
        Self { moe: 1.0, allreduce: 1.0, attention: 1.0, gemm: 1.0, small: 1.0, draft: 1.0, host: 1.0 }
    }
}

impl OpScales {
    pub(super) fn of(&self, class: Class) -> f64 {
        match class {
            Class::Moe => self.moe,
            Class::Allreduce => self.allreduce,
            Class::Attention => self.attention,
            Class::Gemm => self.gemm,
            Class::Small => self.small,
            Class::Draft => self.draft,
        }
    }

    /// Name and value of each, in declaration order.
    #[must_use]
    pub fn entries(&self) -> [(&'static str, f64); 7] {
        [
            ("moe", self.moe),
            ("allreduce", self.allreduce),
            ("attention", self.attention),
            ("gemm", self.gemm),
            ("small", self.small),
            ("draft", self.draft),
            ("host", self.host),
        ]
    }
}
