//! Where a law's random decisions come from. Laws ask a [`Chance`]; production answers from the keyed stream, the proofs of
//! losslessness answer every way in turn. So what is proved is what runs.

use crate::stream::{Key, Purpose};

/// What a decision belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// What is decided.
    pub purpose: Purpose,
    /// Absolute position of the token that is chosen or judged.
    pub position: u32,
    /// Tree node.
    pub node: u32,
}

/// A source of decisions.
pub(crate) trait Chance {
    /// True with probability `p`: never at 0, always from 1 on. `token` is the token that is judged.
    fn coin(&mut self, site: Site, token: u32, p: f64) -> bool;

    /// A token with probability proportional to exp(score); `None` if no score is finite.
    fn pick(&mut self, site: Site, scores: &[f64]) -> Option<u32>;
}

/// Decisions from the counter-based stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed {
    pub seed: u64,
    pub request: u64,
    /// Verify step of the request.
    pub round: u32,
}

impl Keyed {
    /// The key of a decision; the target's own sample depends on the position alone.
    pub(crate) fn key(&self, site: Site) -> Key {
        if site.purpose == Purpose::TargetSample {
            return Key::target(self.seed, self.request, site.position);
        }
        Key {
            seed: self.seed,
            purpose: site.purpose,
            request: self.request,
            position: site.position,
            round: self.round,
            node: site.node,
        }
    }
}

impl Chance for Keyed {
    fn coin(&mut self, site: Site, token: u32, p: f64) -> bool {
        // The uniform lies in (0, 1): public fault 20, a coin of 0 that accepts the impossible, cannot occur.
        self.key(site).stream().uniform(token) < p
    }

    fn pick(&mut self, site: Site, scores: &[f64]) -> Option<u32> {
        self.key(site).stream().gumbel_argmax(scores.iter().copied())
    }
}
