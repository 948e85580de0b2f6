//! A step, op by op: the same arrays that a price adds up.

use super::attention::Timing;
use super::law::{PassLaw, Point, RowLaw};
use super::line::{Limit, OpLine, Origin, Tier};
use super::model::CostModel;
use super::passes::Passes;
use super::query::StepQuery;
use super::slots::Slot;
use super::target::Formulation;
use super::work::Roof;
use treeline_core::log::Phase;

/// Context, in tokens, at which an attention kernel has next to nothing to read.
const LEAST_CONTEXT: f64 = 256.0;

/// What one line adds up before it is judged.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    flops: f64,
    bound: f64,
    tier: f64,
    /// The tier's time of the least work that the op can have; 0 where it is not known.
    least: f64,
    link: bool,
}

/// A pass that is written out.
struct Writer<'m> {
    model: &'m CostModel,
    passes: &'m Passes,
    point: Point,
    times: u32,
    phase: Phase,
    lines: &'m mut Vec<OpLine>,
}

impl CostModel {
    /// Every op of the step with bytes, operations, time and what holds it back, in the order in which it runs. The times
    /// add up to the price.
    #[must_use]
    pub fn breakdown(&self, q: &StepQuery) -> Vec<OpLine> {
        let mut lines = Vec::new();
        let context = q.context_mean();
        let drafted = q.draft_requests > 0;
        if let (Some((_, passes)), Some((times, _, point))) = (&self.draft, self.draft_point(q)) {
            let requests = f64::from(q.draft_requests);
            Writer { model: self, passes, point, times, phase: Phase::Draft, lines: &mut lines }
                .pass(requests, context);
        }
        self.host_lines(&[Phase::Tree], q.rows, drafted, &mut lines);
        let verified = self.verified(&self.still(q), q.rows, q.effective_rows);
        let writer = Writer {
            model: self,
            passes: &self.target,
            point: verified.point,
            times: 1,
            phase: Phase::Verify,
            lines: &mut lines,
        };
        writer.pass(f64::from(q.requests), context);
        self.host_lines(&[Phase::Walk, Phase::Commit, Phase::Host], q.rows, drafted, &mut lines);
        lines
    }

    fn host_lines(&self, phases: &[Phase], rows: u32, drafted: bool, lines: &mut Vec<OpLine>) {
        for phase in phases {
            for (name, us) in self.host.each(*phase, rows, drafted) {
                let calibrated = self.tier == Tier::Calibrated;
                let origin = if calibrated { Origin::Calibrated } else { Origin::Profile };
                let sum = Sum { tier: us, ..Sum::default() };
                lines.push(self.line(name.to_owned(), *phase, 1, sum, origin, true));
            }
        }
    }

    fn line(&self, name: String, phase: Phase, calls: u32, sum: Sum, origin: Origin, in_domain: bool) -> OpLine {
        let us = self.blend(sum.bound, sum.tier);
        let tier = if self.scale == 1.0 {
            origin
        } else if self.scale == 0.0 {
            Origin::Bound
        } else {
            Origin::Blend
        };
        OpLine {
            name,
            phase,
            calls,
            bytes: sum.bytes,
            flops: sum.flops,
            us,
            bound_us: sum.bound,
            limit: limit(&self.roof, &sum, us),
            tier,
            in_domain,
        }
    }
}

/// Where bytes and flops leave two thirds of the time unexplained, it is latency as long as the op takes about as long as it
/// would with no work to speak of; an op that grows with its work but far from the machine's rates is held by its kernel.
fn limit(roof: &Roof, sum: &Sum, us: f64) -> Limit {
    if 3.0 * sum.bound < us || us == 0.0 {
        if sum.least > 0.0 && sum.tier > 2.0 * sum.least { Limit::Kernel } else { Limit::Latency }
    } else if sum.link {
        Limit::Link
    } else if sum.flops / roof.flops_us > sum.bytes / roof.bytes_us {
        Limit::Compute
    } else {
        Limit::Memory
    }
}

impl Writer<'_> {
    fn push(&mut self, name: String, calls: u32, sum: Sum, origin: Origin, inside: bool) {
        let n = f64::from(self.times);
        let sum = Sum {
            bytes: n * sum.bytes,
            flops: n * sum.flops,
            bound: n * sum.bound,
            tier: n * sum.tier,
            least: n * sum.least,
            link: sum.link,
        };
        let calls = calls.saturating_mul(self.times);
        self.lines.push(self.model.line(name, self.phase, calls, sum, origin, inside));
    }

    fn law(&self) -> &PassLaw {
        self.passes.tier.as_ref().unwrap_or(&self.passes.bound)
    }

    /// Bytes, operations and least time of an op; the tier's time apart.
    fn sum(&self, law: &RowLaw, tier: f64) -> Sum {
        let Slot { at, stretch } = self.point.slot;
        let calls = stretch * f64::from(law.op.calls);
        let m = law.op.rows(f64::from(Slot::rows(at)));
        let link = law.op.work.link();
        Sum {
            bytes: calls * law.op.work.bytes(m),
            flops: calls * law.op.work.flops(m),
            bound: calls * self.model.roof.us(&law.op.work, m),
            tier,
            least: law.us[1],
            link,
        }
    }

    fn pass(mut self, requests: f64, context: f64) {
        let Slot { at, stretch } = self.point.slot;
        if at == 0 {
            return;
        }
        let passes = self.passes;
        let law = passes.tier.as_ref().unwrap_or(&passes.bound);
        let frozen = passes.freeze(&self.model.roof, requests, context, true);
        let ran = passes.run(&frozen, &self.point, true);
        let in_slot = |inside: &[bool]| inside[at] && (stretch == 1.0 || passes.tier.is_none());
        let calibrated = self.model.tier == Tier::Calibrated && self.model.scale > 0.0;
        // Fitted ops have no bytes of their own: the pass's are written as one line without time.
        if calibrated {
            let sum = Sum { bytes: ran.bytes, flops: ran.flops, bound: ran.bound.total, ..Sum::default() };
            self.push("bytes and flops of the pass".into(), 0, sum, Origin::Bound, true);
        }
        let module = self.module_sum(law);
        for row in law.rows.iter().filter(|l| !l.in_module) {
            let mut sum = self.sum(row, stretch * row.us[at]);
            if calibrated {
                sum = Sum { tier: sum.tier, least: sum.least, ..Sum::default() };
            }
            self.push(row.op.name.to_string(), row.op.calls, sum, row.origin, in_slot(&row.inside));
        }
        self.kernels(&frozen, requests, context, module, calibrated);
        if module.is_some() {
            let rest = Sum { tier: ran.tier.module, ..Sum::default() };
            self.push("attention products of further rows".into(), 0, rest, Origin::Table, true);
        }
        if let Some(experts) = &law.experts {
            let least = passes.pass.experts.as_ref().map_or(0.0, |op| experts.us(1, f64::from(op.top_k)));
            let mut sum = Sum { bound: ran.bound.routed, tier: ran.tier.routed, least, ..Sum::default() };
            let mut calls = 0;
            if let (Some(op), false) = (&passes.pass.experts, calibrated) {
                let rows = stretch * f64::from(Slot::rows(at));
                calls = op.layers;
                sum.bytes = f64::from(op.layers) * self.point.experts * op.expert_bytes;
                sum.flops = f64::from(op.layers) * rows * f64::from(op.top_k) * op.expert_flops;
            } else {
                sum.bound = 0.0;
            }
            self.push("routed experts".into(), calls, sum, experts.origin, in_slot(&experts.inside));
        }
        if !law.shared.is_empty() {
            let mut sum = Sum::default();
            let mut inside = true;
            for row in &law.shared {
                let one = self.sum(row, 0.0);
                sum = Sum { bytes: sum.bytes + one.bytes, flops: sum.flops + one.flops, ..sum };
                inside &= in_slot(&row.inside);
            }
            (sum.bound, sum.tier) = (ran.bound.shared, ran.tier.shared);
            let calls = law.shared.iter().map(|l| l.op.calls).sum();
            let hidden = Slot::rows(at) <= law.overlap_rows && stretch == 1.0;
            let name = if hidden { "shared expert, beside the routed ones" } else { "shared expert" };
            self.push(name.into(), calls, sum, law.shared[0].origin, inside);
        }
        if ran.tier.waits > 0.0 {
            let sum = Sum { tier: ran.tier.waits, ..Sum::default() };
            self.push("launches that the GPU waits for".into(), 0, sum, Origin::Profile, true);
        }
    }

    /// Products that the module table holds: bytes, operations and least time.
    fn module_sum(&self, law: &PassLaw) -> Option<Sum> {
        let inside: Vec<&RowLaw> = law.rows.iter().filter(|l| l.in_module).collect();
        if inside.is_empty() {
            return None;
        }
        Some(inside.iter().fold(Sum::default(), |sum, law| {
            let one = self.sum(law, 0.0);
            Sum { bytes: sum.bytes + one.bytes, flops: sum.flops + one.flops, bound: sum.bound + one.bound, ..sum }
        }))
    }

    fn kernels(
        &mut self,
        frozen: &super::passes::Frozen,
        requests: f64,
        context: f64,
        module: Option<Sum>,
        calibrated: bool,
    ) {
        let rows = self.point.rows;
        let passes = self.passes;
        let count = self.law().attention.len().min(2);
        let least = passes.freeze(&self.model.roof, 1.0, context.min(LEAST_CONTEXT), true);
        for i in 0..count {
            let law = &self.law().attention[i];
            let (bound, tier, inside) = frozen.kernel(i, rows);
            let mut sum = Sum { tier, least: least.kernel(i, 1.0).1, ..Sum::default() };
            let mut name = law.op.name.to_owned();
            if !calibrated {
                let own = &passes.bound.attention[i];
                sum.bytes = own.bytes(rows, requests, context);
                sum.flops = own.flops(rows, context);
                sum.bound = bound;
            }
            if let Some(m) = module {
                name = "attention module".into();
                sum = Sum { bytes: sum.bytes + m.bytes, flops: sum.flops + m.flops, bound: sum.bound + m.bound, ..sum };
            }
            let origin = match &law.timing {
                Timing::Bound => Origin::Bound,
                Timing::Linear { .. } => Origin::Calibrated,
                Timing::Table { .. } if rows > requests => Origin::TableFlops,
                Timing::Table { .. } => Origin::Table,
            };
            let calls = if calibrated { 0 } else { law.op.layers };
            self.push(name, calls, sum, origin, inside);
        }
    }
}

impl CostModel {
    /// Whether attention is priced from a module table.
    #[must_use]
    pub fn by_module(&self) -> bool {
        self.formulation == Formulation::Module
    }
}
