//! Models on the device: loading, sharding, caches, buffers, and the pass through all layers.
//!
//! A pass queues kernels and products only: every buffer is made beforehand, launch shapes follow from the [`Bucket`] alone,
//! so that the same call runs eagerly and inside a capture, with the same bits.

mod build;
mod cache;
mod comm;
mod dflash;
mod ffn;
mod gqa;
mod layers;
mod load;
mod mla;
mod moe;
mod ops;
mod pass;
mod source;
mod target;
mod weight;
mod work;

pub use build::Synthetic;
pub use cache::Cache;
pub use comm::Comm;
pub use dflash::{Dflash, DraftWork};
pub use target::Target;
pub use work::Work;

use crate::device::{Dtype, Ptr};
use crate::error::{CudaError, Result};
use crate::ops::rows::Bucket;

/// One rank's part of a model that several GPUs hold together (tensor parallel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
}

impl Shard {
    /// The whole model.
    pub const ONE: Self = Self { rank: 0, ranks: 1 };

    /// # Errors
    /// [`CudaError::Setting`] for a rank that does not exist.
    pub(super) fn check(self) -> Result<()> {
        if self.rank < self.ranks {
            return Ok(());
        }
        Err(CudaError::Setting {
            key: "rank",
            problem: format!("is {}, but there are {} ranks", self.rank, self.ranks),
        })
    }

    /// This rank's part of `n` things; `what` names them.
    ///
    /// # Errors
    /// [`CudaError::Model`] where they cannot be shared evenly.
    pub(super) fn split(self, what: &str, n: usize) -> Result<std::ops::Range<usize>> {
        if !n.is_multiple_of(self.ranks) {
            return Err(CudaError::Model(format!("{n} {what} cannot be split evenly over {} ranks", self.ranks)));
        }
        let each = n / self.ranks;
        Ok(self.rank * each..(self.rank + 1) * each)
    }

    /// This rank's part of `n` heads that several ranks may share where there are fewer heads than ranks.
    ///
    /// # Errors
    /// [`CudaError::Model`] where neither number divides the other.
    pub(super) fn share(self, what: &str, n: usize) -> Result<std::ops::Range<usize>> {
        if n < self.ranks && self.ranks.is_multiple_of(n) {
            let at = self.rank / (self.ranks / n);
            return Ok(at..at + 1);
        }
        self.split(what, n)
    }
}

/// How a model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Type of activations and of the weights of dense products.
    pub dtype: Dtype,
    /// Which part of the model this device holds.
    pub shard: Shard,
    /// Longest context that is served, in tokens: length of the tables of the rotary embedding.
    pub positions: usize,
}

/// Which rows of a pass go through the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Every row of the bucket.
    All,
    /// `count` rows.
    Rows {
        /// Their numbers, u32 \[count\].
        index: Ptr,
        /// How many.
        count: u32,
    },
    /// None: a prompt chunk that is not the last.
    None,
}

impl Head {
    /// Index (or nothing: the first ones) and number of the rows.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for more rows than the buffers hold.
    fn rows(self, bucket: Bucket, max: Bucket) -> Result<(Ptr, u32)> {
        match self {
            Self::All => Ok((Ptr::NULL, bucket.rows)),
            Self::None => Ok((Ptr::NULL, 0)),
            Self::Rows { index, count } if count > 0 && count <= max.rows => Ok((index, count)),
            Self::Rows { count, .. } => {
                let problem = format!("of the head are {count}, but buffers hold 1 to {}", max.rows);
                Err(CudaError::Setting { key: "rows", problem })
            }
        }
    }
}

/// A step of a pass, for a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Rows of the embedding.
    Embed,
    /// Residual sum and norm before attention.
    AttentionNorm,
    /// First projections of attention: queries, keys, values, or their latents.
    Down,
    /// Latent norms, rotation, cache write.
    Prepare,
    /// Queries from their latent.
    QueryUp,
    /// Rotation and scale of the queries.
    QueryPrepare,
    /// Queries into the latent space.
    Absorb,
    /// Attention over context and pass.
    Attend,
    /// Latents to values.
    Expand,
    /// Output projection.
    Out,
    /// Residual sum and norm before the feed-forward part.
    FfnNorm,
    /// Gate and up of a dense SwiGLU or of the shared experts.
    GateUp,
    /// SiLU(gate) · up.
    Activate,
    /// Down of a dense SwiGLU or of the shared experts.
    MlpDown,
    /// Router scores.
    Score,
    /// Choice of the experts and their grouping.
    Route,
    /// Routed experts.
    Experts,
    /// Sum over ranks.
    Reduce,
    /// Last residual sum and norm.
    FinalNorm,
    /// The head.
    Head,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 20] = [
        Self::Embed,
        Self::AttentionNorm,
        Self::Down,
        Self::Prepare,
        Self::QueryUp,
        Self::QueryPrepare,
        Self::Absorb,
        Self::Attend,
        Self::Expand,
        Self::Out,
        Self::FfnNorm,
        Self::GateUp,
        Self::Activate,
        Self::MlpDown,
        Self::Score,
        Self::Route,
        Self::Experts,
        Self::Reduce,
        Self::FinalNorm,
        Self::Head,
    ];
}

/// Called before each step of a pass with the step and its layer (for those outside the layers: their number); `false` leaves
/// the step out. Tests look at buffers with it, benchmarks time parts.
pub type Probe<'a> = &'a mut dyn FnMut(Part, usize) -> Result<bool>;

/// Adds to an out-of-memory error which setting to lower.
fn advise<T>(outcome: Result<T>, setting: &'static str) -> Result<T> {
    outcome.map_err(|e| match e {
        CudaError::Memory { what, bytes, free, .. } => CudaError::Memory { what, bytes, free, advice: setting },
        other => other,
    })
}
