//! A pass under both laws, and what it moves and computes.

use super::attention::Prepared;
use super::law::{Parts, PassLaw, Point};
use super::op::Pass;
use super::slots::{SLOTS, Slot};
use super::work::Roof;

/// A pass under both laws.
#[derive(Debug, Clone)]
pub(super) struct Passes {
    pub pass: Pass,
    pub bound: PassLaw,
    /// The tier's; `None` when the tier is the bound.
    pub tier: Option<PassLaw>,
    bytes: Vec<f64>,
    flops: Vec<f64>,
    /// Bytes of one distinct expert in all layers.
    expert_bytes: f64,
}

/// Attention at one batch and context, under both laws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frozen {
    bound: [Prepared; 2],
    tier: [Prepared; 2],
    kernels: usize,
    inside: bool,
    requests: f64,
    context: f64,
}

/// A pass at one point: times in µs, bytes, operations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Ran {
    /// Under the bound; not filled where nothing is blended with it.
    pub bound: Parts,
    pub tier: Parts,
    pub bytes: f64,
    pub flops: f64,
    pub inside: bool,
}

impl Frozen {
    /// Times of a kernel at `rows` rows, µs: under the bound, under the tier; and whether the tier measured it.
    pub(super) fn kernel(&self, i: usize, rows: f64) -> (f64, f64, bool) {
        (self.bound[i].us(rows), self.tier[i].us(rows), self.tier[i].inside)
    }
}

fn prepare(law: &PassLaw, roof: &Roof, requests: f64, context: f64) -> [Prepared; 2] {
    let mut prepared = [Prepared::default(); 2];
    for (slot, law) in prepared.iter_mut().zip(&law.attention) {
        *slot = law.prepare(roof, requests, context);
    }
    prepared
}

impl Passes {
    pub(super) fn new(pass: Pass, bound: PassLaw, tier: Option<PassLaw>) -> Self {
        let mut bytes = vec![0.0; SLOTS];
        let mut flops = vec![0.0; SLOTS];
        for at in 1..SLOTS {
            let rows = f64::from(Slot::rows(at));
            for op in pass.rows.iter().chain(&pass.shared) {
                let (moved, computed) = op.moves(rows);
                bytes[at] += moved;
                flops[at] += computed;
            }
            if let Some(e) = &pass.experts {
                flops[at] += f64::from(e.layers) * rows * f64::from(e.top_k) * e.expert_flops;
            }
        }
        let expert_bytes = pass.experts.map_or(0.0, |e| f64::from(e.layers) * e.expert_bytes);
        Self { pass, bound, tier, bytes, flops, expert_bytes }
    }

    /// Attention for `requests` requests of `context` tokens. `both`: under the bound too.
    pub(super) fn freeze(&self, roof: &Roof, requests: f64, context: f64, both: bool) -> Frozen {
        let wanted = both || self.tier.is_none();
        let bound = if wanted { prepare(&self.bound, roof, requests, context) } else { Default::default() };
        let tier = self.tier.as_ref().map_or(bound, |law| prepare(law, roof, requests, context));
        let law = self.tier.as_ref().unwrap_or(&self.bound);
        let kernels = law.attention.len().min(2);
        let inside = tier[..kernels].iter().all(|k| k.inside);
        Frozen { bound, tier, kernels, inside, requests, context }
    }

    /// Times of the pass at a point: under the bound (where `both`), under the tier.
    #[inline]
    pub(super) fn times(&self, f: &Frozen, p: &Point, both: bool) -> (Parts, Parts) {
        let bound = |want: bool| {
            let kernels = self.bound.attention.len().min(2);
            if want { self.bound.at(p, &f.bound[..kernels]) } else { Parts::default() }
        };
        match &self.tier {
            None => {
                let parts = bound(true);
                (parts, parts)
            }
            Some(law) => (bound(both), law.at(p, &f.tier[..f.kernels])),
        }
    }

    /// The pass at a point. `both`: the bound's parts too.
    pub(super) fn run(&self, f: &Frozen, p: &Point, both: bool) -> Ran {
        let (at, stretch) = (p.slot.at, p.slot.stretch);
        if at == 0 {
            return Ran { inside: true, ..Ran::default() };
        }
        let (mut bytes, mut flops) = (stretch * self.bytes[at], stretch * self.flops[at]);
        bytes += self.expert_bytes * p.experts;
        for law in &self.bound.attention {
            bytes += law.bytes(p.rows, f.requests, f.context);
            flops += law.flops(p.rows, f.context);
        }
        let (bound, tier) = self.times(f, p, both);
        let inside = self.tier.as_ref().is_none_or(|law| f.inside && law.inside(p.slot));
        Ran { bound, tier, bytes, flops, inside }
    }
}
