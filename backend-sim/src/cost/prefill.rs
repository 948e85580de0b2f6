//! What the prompt costs.

use super::law::PassLaw;
use super::line::Tier;
use super::model::CostModel;
use super::slots::Slot;
use treeline_core::log::Phase;

/// Ops that see a prompt's last row only.
const LAST_ROW: [&str; 4] = ["head", "gather of logits", "sampling", "logits"];
/// Ops of the drafter that run over a prompt: it caches keys and values of the target's features.
const CONTEXT: [&str; 2] = ["draft features", "draft context keys and values"];

impl CostModel {
    /// Time in ms of one chunk of `tokens` prompt tokens behind `cached` ones, one request: all row ops at so many rows, all
    /// experts that they touch, attention by its flops, the head on one row, and the drafter's cache. Attention is taken at
    /// the datasheet's rate, the rest by the tier; a chunk beyond the tables' rows is extrapolated.
    #[must_use]
    pub fn prefill_ms(&self, tokens: u32, cached: u32) -> f64 {
        if tokens == 0 {
            return 0.0;
        }
        let (n, before) = (f64::from(tokens), f64::from(cached));
        let pairs = n * (before + 0.5 * n);
        let attention = self.prompt_flops * pairs / self.roof.flops_us;
        let experts = self.distinct.as_ref().map_or(0.0, |d| d.at(n));
        let of = |law: &PassLaw| {
            let (slot, one) = (Slot::of(tokens), Slot::of(1));
            let mut us = 0.0;
            for row in law.rows.iter().chain(&law.shared) {
                let last = LAST_ROW.contains(&row.op.name.as_ref());
                us += if last { row.us[one.at] } else { slot.stretch * row.us[slot.at] };
            }
            us += law.experts.as_ref().map_or(0.0, |e| slot.stretch * e.us(slot.at, experts));
            (us + attention).max(law.launches_us)
        };
        let target = &self.target;
        let bound = of(&target.bound);
        let tier = target.tier.as_ref().map_or(bound, of);
        let mut us = self.blend(bound, tier);
        if let Some((_, draft)) = &self.draft {
            let slot = Slot::of(tokens);
            let context = |law: &PassLaw| -> f64 {
                let ops = law.rows.iter().filter(|r| CONTEXT.contains(&r.op.name.as_ref()));
                ops.map(|r| slot.stretch * r.us[slot.at]).sum()
            };
            let bound = context(&draft.bound);
            us += self.blend(bound, draft.tier.as_ref().map_or(bound, context));
        }
        if self.tier != Tier::Bound {
            us += self.scale * self.host.us(Phase::Host, tokens, false);
        }
        us * 1e-3
    }
}
