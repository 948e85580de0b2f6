//! Fitted ops as laws of the two passes, and of the host.

use super::super::attention::{AttentionLaw, Timing};
use super::super::law::{ExpertLaw, PassLaw, RowLaw};
use super::super::line::Origin;
use super::super::op::{AttentionOp, RowOp};
use super::super::scales::{Class, OpScales};
use super::super::slots::{SLOTS, Slot};
use super::super::work::{Roof, Work};
use super::file::{Calibration, FittedOp, StepPoint};
use treeline_core::log::Phase;

/// One op of the host.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct HostOp {
    pub name: String,
    pub phase: Phase,
    /// Only in rounds with a draft.
    pub drafted: bool,
    /// Knots (rows, µs).
    pub us: Vec<(u32, f64)>,
}

/// The host's part of a round.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in super::super) struct HostLaw {
    pub ops: Vec<HostOp>,
}

impl HostLaw {
    fn running(&self, drafted: bool) -> impl Iterator<Item = &HostOp> {
        self.ops.iter().filter(move |o| drafted || !o.drafted)
    }

    /// Name and µs of each op of a phase.
    pub(in super::super) fn each(&self, phase: Phase, rows: u32, drafted: bool) -> impl Iterator<Item = (&str, f64)> {
        let mine = self.running(drafted).filter(move |o| o.phase == phase);
        mine.map(move |o| (o.name.as_str(), knots(&o.us, rows)))
    }

    /// µs of a phase at `rows` rows.
    pub(in super::super) fn us(&self, phase: Phase, rows: u32, drafted: bool) -> f64 {
        self.each(phase, rows, drafted).fold(0.0, |sum, op| sum + op.1)
    }

    /// µs of all host phases.
    pub(in super::super) fn total(&self, rows: u32, drafted: bool) -> f64 {
        self.running(drafted).fold(0.0, |sum, o| sum + knots(&o.us, rows))
    }

    /// That total, where it does not depend on the rows.
    pub(in super::super) fn flat(&self, drafted: bool) -> Option<f64> {
        self.ops.iter().all(|o| o.us.len() == 1).then(|| self.total(1, drafted))
    }
}

/// Linear between knots, flat before the first, the last slope beyond the last (never falling).
pub(in super::super) fn knots(points: &[(u32, f64)], rows: u32) -> f64 {
    let i = points.partition_point(|k| k.0 <= rows);
    let Some(&(last_rows, last_us)) = points.last() else { return 0.0 };
    if i == 0 {
        return points[0].1;
    }
    if i < points.len() {
        let ((r0, u0), (r1, u1)) = (points[i - 1], points[i]);
        return u0 + (u1 - u0) * f64::from(rows - r0) / f64::from(r1 - r0);
    }
    if points.len() < 2 {
        return last_us;
    }
    let (r0, u0) = points[points.len() - 2];
    let slope = ((last_us - u0) / f64::from(last_rows - r0)).max(0.0);
    last_us + slope * f64::from(rows - last_rows)
}

impl FittedOp {
    pub(super) fn reads_cache(&self) -> bool {
        self.us_per_token > 0.0 || self.us_per_row_token > 0.0
    }

    /// µs of the op over `rows` rows of `requests` requests with `context` tokens each.
    fn us(&self, rows: u32, requests: f64, context: f64, experts: f64) -> f64 {
        let t = f64::from(rows);
        let stream = self.us_per_token * (requests * context + (t - requests).max(0.0));
        knots(&self.rows, rows) + self.us_per_expert * experts + stream.max(self.us_per_row_token * t * context)
    }
}

impl Calibration {
    /// Predicted time of a measured step in µs: the sum of all ops, draft ops once a pass.
    #[must_use]
    pub fn round_us(&self, p: &StepPoint) -> f64 {
        let requests = f64::from(p.requests.max(1));
        let context = p.context_sum as f64 / requests;
        let drafted = p.draft_requests > 0;
        let one = |op: &FittedOp| match op.phase {
            Phase::Verify => op.us(p.rows, requests, context, p.experts.unwrap_or(0.0)),
            Phase::Draft if drafted => {
                f64::from(p.draft_passes.max(1)) * op.us(p.draft_rows, f64::from(p.draft_requests), context, 0.0)
            }
            Phase::Host => knots(&op.rows, p.rows),
            _ if drafted => knots(&op.rows, p.rows),
            _ => 0.0,
        };
        self.ops.iter().map(one).sum()
    }
}

/// Laws of the target's pass, the draft pass (where the file has one) and the host.
pub(in super::super) fn passes(c: &Calibration, roof: &Roof, scales: OpScales) -> (PassLaw, Option<PassLaw>, HostLaw) {
    let host = [Phase::Tree, Phase::Walk, Phase::Commit, Phase::Host];
    let ops = c.ops.iter().filter(|o| host.contains(&o.phase)).map(|o| {
        let scaled = o.rows.iter().map(|(r, us)| (*r, us * scales.host)).collect();
        HostOp { name: o.name.clone(), phase: o.phase, drafted: o.phase != Phase::Host, us: scaled }
    });
    let draft = c.ops.iter().any(|o| o.phase == Phase::Draft);
    (
        pass(c, Phase::Verify, c.domain.rows, roof, scales),
        draft.then(|| pass(c, Phase::Draft, c.domain.draft_rows, roof, scales)),
        HostLaw { ops: ops.collect() },
    )
}

fn pass(c: &Calibration, phase: Phase, domain: [u32; 2], roof: &Roof, scales: OpScales) -> PassLaw {
    let inside: Vec<bool> = (0..SLOTS).map(|at| (domain[0]..=domain[1]).contains(&Slot::rows(at))).collect();
    let class = if phase == Phase::Draft { Class::Draft } else { Class::Gemm };
    let (mut rows, mut attention, mut per_expert) = (Vec::new(), Vec::new(), 0.0);
    for op in c.ops.iter().filter(|o| o.phase == phase) {
        let row = RowOp {
            work: Work::Element { bytes: 0.0 },
            ..RowOp::gemm(op.name.clone(), op.calls, 0, 0, 0.0).of(phase, class)
        };
        let times = scales.of(class);
        let us = (0..SLOTS).map(|at| if at == 0 { 0.0 } else { times * knots(&op.rows, Slot::rows(at)) });
        rows.push(RowLaw {
            op: row,
            us: us.collect(),
            inside: inside.clone(),
            origin: Origin::Calibrated,
            in_module: false,
        });
        per_expert += op.us_per_expert * scales.moe;
        if op.reads_cache() {
            let kernel = AttentionOp {
                name: "cache reads",
                phase,
                layers: 1,
                token_bytes: 0.0,
                token_flops: 0.0,
                window: f64::INFINITY,
            };
            let timing = Timing::Linear { token_us: op.us_per_token, row_token_us: op.us_per_row_token };
            let scale = if phase == Phase::Draft { scales.draft } else { scales.attention };
            attention.push(AttentionLaw { op: kernel, timing, scale });
        }
    }
    let experts = (per_expert > 0.0).then(|| ExpertLaw {
        base: vec![0.0; SLOTS],
        per_expert,
        floor: vec![0.0; SLOTS],
        inside,
        origin: Origin::Calibrated,
    });
    PassLaw::new(rows, Vec::new(), experts, attention, roof)
}
