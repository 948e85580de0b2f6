//! What the prompt costs.

use super::law::PassLaw;
use super::line::Tier;
use super::model::CostModel;
use super::op::RowOp;
use super::slots::Slot;
use treeline_core::log::Phase;

/// Ops that see a prompt's last row only.
const LAST_ROW: [&str; 4] = ["head", "gather of logits", "sampling", "logits"];
/// Ops of the drafter that run over a prompt: it caches keys and values of the target's features.
const CONTEXT: [&str; 2] = ["draft features", "draft context keys and values"];

/// What a chunk of a prompt takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PromptPrice {
    /// Time in ms.
    pub ms: f64,
    /// Energy of one GPU in J.
    pub joules: f64,
}

impl CostModel {
    /// Time ([`Self::prefill_ms`]) and energy of one chunk of `tokens` prompt tokens behind `cached` ones, one request.
    #[must_use]
    pub fn prefill(&self, tokens: u32, cached: u32) -> PromptPrice {
        let ms = self.prefill_ms(tokens, cached);
        let (bytes, flops) = self.prefill_work(tokens, cached);
        PromptPrice { ms, joules: self.power.step(ms, bytes, flops).joules }
    }

    /// Bytes of memory traffic and operations of a chunk on one GPU.
    fn prefill_work(&self, tokens: u32, cached: u32) -> (f64, f64) {
        if tokens == 0 {
            return (0.0, 0.0);
        }
        let (n, before) = (f64::from(tokens), f64::from(cached));
        let pass = &self.target.pass;
        let (mut bytes, mut flops) = (0.0, self.prompt_flops * n * (before + 0.5 * n));
        let mut add = |op: &RowOp, rows: f64| {
            let (moved, computed) = op.moves(rows);
            bytes += moved;
            flops += computed;
        };
        for op in pass.rows.iter().chain(&pass.shared) {
            add(op, if LAST_ROW.contains(&op.name.as_ref()) { 1.0 } else { n });
        }
        if let Some((_, draft)) = &self.draft {
            draft.pass.rows.iter().filter(|op| CONTEXT.contains(&op.name.as_ref())).for_each(|op| add(op, n));
        }
        if let Some(e) = &pass.experts {
            let distinct = self.distinct.as_ref().map_or(0.0, |d| d.at(n));
            bytes += f64::from(e.layers) * distinct * e.expert_bytes;
            flops += f64::from(e.layers) * n * f64::from(e.top_k) * e.expert_flops;
        }
        // The cache is read once a chunk, however many of its rows look at it.
        bytes += self.target.bound.attention.iter().map(|law| law.bytes(1.0, 1.0, before + n)).sum::<f64>();
        (bytes, flops)
    }

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
