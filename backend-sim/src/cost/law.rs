//! A pass priced by one tier at every slot: prices add up what these arrays hold, breakdowns print it.

use super::attention::{AttentionLaw, Prepared};
use super::line::Origin;
use super::op::{Pass, RowOp};
use super::slots::{SLOTS, Slot};
use super::work::Roof;

/// One op at every slot.
#[derive(Debug, Clone)]
pub(super) struct RowLaw {
    pub op: RowOp,
    /// µs of all its calls, by slot.
    pub us: Vec<f64>,
    /// Whether the slot lies in the domain of its source.
    pub inside: Vec<bool>,
    pub origin: Origin,
    /// Held by the module table already: only what exceeds one row a request is added.
    pub in_module: bool,
}

impl RowLaw {
    /// The op by the datasheet.
    pub(super) fn bound(op: &RowOp, roof: &Roof) -> Self {
        let us = (0..SLOTS).map(|at| {
            let rows = f64::from(Slot::rows(at));
            if at == 0 { 0.0 } else { f64::from(op.calls) * roof.us(&op.work, op.rows(rows)) }
        });
        Self { op: op.clone(), us: us.collect(), inside: vec![true; SLOTS], origin: Origin::Bound, in_module: false }
    }
}

/// The routed experts of all layers: `max(base(T) + per_expert·U, floor(T))`.
#[derive(Debug, Clone)]
pub(super) struct ExpertLaw {
    /// What does not depend on U, by slot, µs.
    pub base: Vec<f64>,
    /// µs per distinct expert.
    pub per_expert: f64,
    /// Time of the flops alone, by slot, µs.
    pub floor: Vec<f64>,
    pub inside: Vec<bool>,
    pub origin: Origin,
}

impl ExpertLaw {
    pub(super) fn us(&self, at: usize, experts: f64) -> f64 {
        (self.base[at] + self.per_expert * experts).max(self.floor[at])
    }

    /// By the datasheet: the weights of U experts, or the rows' flops.
    pub(super) fn bound(pass: &Pass, roof: &Roof) -> Option<Self> {
        let op = pass.experts.as_ref()?;
        let layers = f64::from(op.layers);
        let rows = |at| f64::from(Slot::rows(at));
        let flops = |at| layers * rows(at) * f64::from(op.top_k) * op.expert_flops / roof.flops_us;
        Some(Self {
            base: vec![0.0; SLOTS],
            per_expert: layers * op.expert_bytes / roof.bytes_us,
            floor: (0..SLOTS).map(flops).collect(),
            inside: vec![true; SLOTS],
            origin: Origin::Bound,
        })
    }
}

/// A pass under one tier.
#[derive(Debug, Clone)]
pub(super) struct PassLaw {
    pub rows: Vec<RowLaw>,
    pub shared: Vec<RowLaw>,
    pub experts: Option<ExpertLaw>,
    pub attention: Vec<AttentionLaw>,
    /// Rows up to which the shared expert runs beside the routed ones.
    pub overlap_rows: u32,
    /// Host time of the launches of an eager pass, µs.
    pub launches_us: f64,
    sums: Sums,
}

#[derive(Debug, Clone, Default)]
struct Sums {
    rows: Vec<f64>,
    module: Vec<f64>,
    shared: Vec<f64>,
    shared_least: Vec<f64>,
    inside: Vec<bool>,
}

/// What a pass runs on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Slot of the padded rows.
    pub slot: Slot,
    /// Slot of one row a request.
    pub single: Slot,
    /// Rows before padding.
    pub rows: f64,
    /// Distinct experts.
    pub experts: f64,
    /// No graph holds the pass.
    pub eager: bool,
}

/// Parts of a pass's time, µs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Parts {
    /// Experts, routed and shared as far as they are not hidden.
    pub routed: f64,
    pub shared: f64,
    /// Products of further rows than the module table holds.
    pub module: f64,
    pub attention: f64,
    /// Everything.
    pub total: f64,
    /// Launches that the GPU waits for.
    pub waits: f64,
}

impl PassLaw {
    pub(super) fn new(
        rows: Vec<RowLaw>,
        shared: Vec<RowLaw>,
        experts: Option<ExpertLaw>,
        attention: Vec<AttentionLaw>,
        roof: &Roof,
    ) -> Self {
        let sum = |laws: &[&RowLaw]| -> Vec<f64> { (0..SLOTS).map(|at| laws.iter().map(|l| l.us[at]).sum()).collect() };
        let (module, main): (Vec<&RowLaw>, Vec<&RowLaw>) = rows.iter().partition(|l| l.in_module);
        let all = || rows.iter().chain(&shared);
        let least: Vec<RowLaw> = shared.iter().map(|l| RowLaw::bound(&l.op, roof)).collect();
        let sums = Sums {
            rows: sum(&main),
            module: sum(&module),
            shared: sum(&shared.iter().collect::<Vec<_>>()),
            shared_least: sum(&least.iter().collect::<Vec<_>>()),
            inside: (0..SLOTS)
                .map(|at| all().all(|l| l.inside[at]) && experts.as_ref().is_none_or(|e| e.inside[at]))
                .collect(),
        };
        Self { rows, shared, experts, attention, overlap_rows: 0, launches_us: 0.0, sums }
    }

    /// A pass by the datasheet.
    pub(super) fn bound(pass: &Pass, roof: &Roof) -> Self {
        let laws = |ops: &[RowOp]| ops.iter().map(|op| RowLaw::bound(op, roof)).collect();
        let attention =
            |op: &super::op::AttentionOp| AttentionLaw { op: *op, timing: super::attention::Timing::Bound, scale: 1.0 };
        Self::new(
            laws(&pass.rows),
            laws(&pass.shared),
            ExpertLaw::bound(pass, roof),
            pass.attention.iter().map(attention).collect(),
            roof,
        )
    }

    /// Whether all row ops lie in their domain.
    pub(super) fn inside(&self, slot: Slot) -> bool {
        self.sums.inside[slot.at] && slot.stretch == 1.0
    }

    /// Fewest and most rows of a slot whose row ops all lie in their domain.
    pub(super) fn domain(&self) -> Option<(u32, u32)> {
        let first = (1..SLOTS).find(|&at| self.sums.inside[at])?;
        let last = (1..SLOTS).rev().find(|&at| self.sums.inside[at])?;
        Some((Slot::rows(first), Slot::rows(last)))
    }

    /// The pass at a point, its kernels of attention prepared.
    pub(super) fn at(&self, p: &Point, attention: &[Prepared]) -> Parts {
        let (at, stretch) = (p.slot.at, p.slot.stretch);
        if at == 0 {
            return Parts::default();
        }
        let routed = self.experts.as_ref().map_or(0.0, |e| stretch * e.us(at, p.experts));
        let mut shared = stretch * self.sums.shared[at];
        if Slot::rows(at) <= self.overlap_rows && stretch == 1.0 {
            // Beside the routed experts only its bytes and flops are left, which no overlap saves.
            shared = (shared - routed).max(self.sums.shared_least[at].min(shared));
        }
        let module = (stretch * self.sums.module[at] - p.single.stretch * self.sums.module[p.single.at]).max(0.0);
        let kernels: f64 = attention.iter().map(|a| a.us(p.rows)).sum();
        let busy = stretch * self.sums.rows[at] + routed + shared + module + kernels;
        let waits = if p.eager { (self.launches_us - busy).max(0.0) } else { 0.0 };
        Parts { routed, shared, module, attention: kernels, total: busy + waits, waits }
    }
}
