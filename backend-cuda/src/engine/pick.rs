//! How a round's tokens are chosen from the target's logits.

use crate::ops::sample::Draw;
use treeline_core::{Batch, Law};

/// How a row's token is chosen on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pick {
    /// Argmax.
    Greedy,
    /// One sample by the sequence's temperature.
    Sample,
    /// One sample by the sequence's temperature and filters.
    Filter,
    /// Not at all: the verdict comes from the host.
    None,
}

impl Pick {
    /// What a law needs for these sequences.
    pub fn of(law: &Law<'_>, batch: &Batch) -> Self {
        let sampled = || batch.iter().filter(|s| s.sampling.temperature > 0.0).map(|s| s.sampling);
        match law {
            // Under a forced law the choice is made all the same, since its time belongs to a step.
            Law::Greedy | Law::Forced(_) => Self::Greedy,
            Law::SampleMatch { .. } if sampled().next().is_none() => Self::Greedy,
            Law::SampleMatch { .. } if sampled().any(|s| s.top_k > 0 || s.top_p < 1.0) => Self::Filter,
            Law::SampleMatch { .. } => Self::Sample,
            Law::Residual { .. } | Law::Traversal { .. } => Self::None,
        }
    }

    /// The same in the kernel's terms.
    pub fn draw(self) -> Option<Draw> {
        match self {
            Self::Greedy => Some(Draw::Greedy),
            Self::Sample => Some(Draw::Sample),
            Self::Filter => Some(Draw::Filter),
            Self::None => None,
        }
    }
}
