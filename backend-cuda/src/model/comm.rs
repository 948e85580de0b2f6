//! The one place for what ranks exchange.

use super::pass::Pass;
use super::{Part, Shard};
use crate::device::{Gpu, Ptr};
use crate::error::Result;

/// How the partial results of ranks become whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comm {
    /// One rank: everything is whole.
    Single,
    /// One rank's work of several, on purpose without its partners: sums stay partial, logits are the rank's part of the
    /// vocabulary. For measuring a rank's work, and for tests that add the parts by hand.
    Apart,
}

impl Comm {
    /// The communication of a model that was loaded in these parts.
    ///
    /// # Errors
    /// [`crate::CudaError::Setting`] for a rank that does not exist.
    pub fn none(shard: Shard) -> Result<Self> {
        shard.check()?;
        Ok(if shard.ranks == 1 { Self::Single } else { Self::Apart })
    }

    /// Queues the sum over all ranks of the rows of a pass at `y`, `hidden` activations each, in place.
    ///
    /// # Errors
    /// None without partners.
    pub(super) fn step(self, pass: &mut Pass<'_>, y: Ptr, hidden: usize) -> Result<()> {
        let len = pass.len() * hidden;
        pass.step(Part::Reduce, |gpu| self.reduce(gpu, y, len))
    }

    fn reduce(self, _gpu: &Gpu, _y: Ptr, _len: usize) -> Result<()> {
        match self {
            Self::Single | Self::Apart => Ok(()),
        }
    }
}
