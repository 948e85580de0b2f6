//! Which inputs of an acceptance are uncertain, and whether they are moved.

use super::Acceptance;
use super::anchor::Held;
use super::variants::WALKS;
use crate::decide::{Gap, Part};
use treeline_sim::accept::Variant;

impl Acceptance {
    /// The process with each counted rate (sampling) and each parameter (model) at an end of its range; nothing for a
    /// recording, and where nothing is to be moved.
    #[must_use]
    pub fn moves(&self) -> Vec<(Part, Variant)> {
        let Some(process) = self.process.as_ref().filter(|_| self.variants) else { return Vec::new() };
        let rates = process.rate_variants().into_iter().map(|v| (Part::Sampling, v));
        rates.chain(process.variants().into_iter().map(|v| (Part::Model, v))).collect()
    }

    /// As [`Acceptance::moves`], where an anchor of a tree holds for every moved parameter.
    #[must_use]
    pub fn held_moves(&self, seed: u64) -> Vec<(Part, Variant)> {
        let mut moves = self.moves();
        let held = self.process.as_ref().and_then(|p| Held::of(p, self.anchor.as_ref(), WALKS, seed));
        if let Some(held) = held {
            for (_, v) in moves.iter_mut().filter(|m| m.0 == Part::Model) {
                v.process = held.again(&v.process);
            }
        }
        moves
    }

    /// What of this source is uncertain and is not moved.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        let Some(process) = &self.process else { return Vec::new() };
        let gap = |part, whole, why: String| Gap { part, whole, why };
        if !self.variants {
            let model = "`variants = false` of this acceptance leaves its parameters unmoved";
            let rates = "`variants = false` of this acceptance leaves the errors of its rates out";
            let counted = !process.rate_variants().is_empty();
            let rates = counted.then(|| gap(Part::Sampling, false, rates.to_owned()));
            return rates.into_iter().chain([gap(Part::Model, true, model.to_owned())]).collect();
        }
        if process.variants().is_empty() {
            return vec![gap(
                Part::Model,
                true,
                format!("process `{}` states no range for any parameter", process.name),
            )];
        }
        Vec::new()
    }
}
