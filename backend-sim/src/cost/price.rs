//! A step's price.

use super::attention::Timing;
use super::error::CostError;
use super::law::Point;
use super::line::Tier;
use super::model::CostModel;
use super::passes::{Frozen, Ran};
use super::query::{StepPrice, StepQuery};
use super::slots::Slot;
use treeline_core::log::{Phase, PhaseTimes};
use treeline_core::{StepCost, StepShape, StepTime};

/// All of a query but its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Still {
    requests: u32,
    target: Frozen,
    draft: Drafted,
    drafted: bool,
    inside: bool,
}

/// The draft of a step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Drafted {
    pub us: f64,
    pub bytes: f64,
    pub flops: f64,
    pub inside: bool,
}

/// The target's pass of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verified {
    pub ran: Ran,
    pub us: f64,
    pub padded: u32,
    pub point: Point,
}

impl CostModel {
    /// Times between bound and tier, µs.
    pub(super) fn blend(&self, bound: f64, tier: f64) -> f64 {
        if self.scale == 1.0 { tier } else { bound + self.scale * (tier - bound) }
    }

    fn both(&self) -> bool {
        self.scale != 1.0
    }

    /// Passes of a draft, rows of each, and its point.
    pub(super) fn draft_point(&self, q: &StepQuery) -> Option<(u32, u32, Point)> {
        let (plan, _) = self.draft.as_ref()?;
        if q.draft_requests == 0 || q.draft_rows == 0 {
            return None;
        }
        let passes = match (plan.conditional, q.expand_waves) {
            (true, 0) => plan.passes,
            (true, waves) => waves.saturating_add(1),
            (false, _) => 1,
        };
        let rows = q.draft_rows.div_ceil(passes);
        let (padded, eager) = self.padded_rows(q.draft_requests, rows);
        let slot = Slot::of(padded);
        Some((passes, rows, Point { slot, single: slot, rows: f64::from(rows), experts: 0.0, eager }))
    }

    fn drafted(&self, q: &StepQuery, context: f64) -> Drafted {
        let (Some((_, passes)), Some((times, _, point))) = (&self.draft, self.draft_point(q)) else {
            // Draft rows without a drafter to price them are no part of any domain.
            let asked = q.draft_requests > 0 && q.draft_rows > 0;
            return Drafted { inside: !asked, ..Drafted::default() };
        };
        let frozen = passes.freeze(&self.roof, f64::from(q.draft_requests), context, self.both());
        let ran = passes.run(&frozen, &point, self.both());
        let n = f64::from(times);
        Drafted {
            us: n * self.blend(ran.bound.total, ran.tier.total),
            bytes: n * ran.bytes,
            flops: n * ran.flops,
            inside: ran.inside,
        }
    }

    /// What does not depend on the rows.
    pub(super) fn still(&self, q: &StepQuery) -> Still {
        let context = q.context_mean();
        let inside = self.covered.is_none_or(|d| {
            let within = |[low, high]: [u32; 2], x: f64| x >= f64::from(low) && x <= f64::from(high);
            within(d.requests, f64::from(q.requests)) && within(d.context, context)
        });
        Still {
            requests: q.requests,
            target: self.target.freeze(&self.roof, f64::from(q.requests), context, self.both()),
            draft: self.drafted(q, context),
            drafted: q.draft_requests > 0,
            inside,
        }
    }

    /// Where the target's pass over `rows` rows is priced, and the rows of its graph.
    #[inline]
    fn target_point(&self, still: &Still, rows: u32, effective: Option<f64>) -> (Point, u32) {
        let (padded, eager) = self.padded_rows(still.requests, rows);
        let t = f64::from(rows);
        let experts = self.distinct.as_ref().map_or(0.0, |d| {
            let known = effective.filter(|e| e.is_finite());
            d.at(known.unwrap_or_else(|| d.effective(f64::from(still.requests), t)).min(t))
        });
        let single = Slot::of(still.requests.min(rows));
        (Point { slot: Slot::of(padded), single, rows: t, experts, eager }, padded)
    }

    /// The target's pass over `rows` rows.
    pub(super) fn verified(&self, still: &Still, rows: u32, effective: Option<f64>) -> Verified {
        let (point, padded) = self.target_point(still, rows, effective);
        let ran = self.target.run(&still.target, &point, self.both());
        Verified { ran, us: self.blend(ran.bound.total, ran.tier.total), padded, point }
    }

    fn host_us(&self, phase: Phase, rows: u32, drafted: bool) -> f64 {
        self.scale * self.host.us(phase, rows, drafted)
    }

    /// What the step costs; never fails, and flags what lies outside of what was measured.
    #[must_use]
    pub fn price(&self, q: &StepQuery) -> StepPrice {
        let still = self.still(q);
        let verified = self.verified(&still, q.rows, q.effective_rows);
        let mut phases = PhaseTimes::default();
        phases.ms[Phase::Draft as usize] = still.draft.us * 1e-3;
        phases.ms[Phase::Verify as usize] = verified.us * 1e-3;
        for phase in [Phase::Tree, Phase::Walk, Phase::Commit, Phase::Host] {
            phases.ms[phase as usize] = self.host_us(phase, q.rows, still.drafted) * 1e-3;
        }
        let hbm_bytes = verified.ran.bytes + still.draft.bytes;
        let flops = verified.ran.flops + still.draft.flops;
        let power = self.power.step(phases.round(), hbm_bytes, flops);
        StepPrice {
            phases,
            padded_rows: verified.padded,
            experts: self.distinct.is_some().then_some(verified.point.experts),
            hbm_bytes,
            flops,
            watts: power.watts,
            joules: power.joules,
            in_domain: verified.ran.inside && still.draft.inside && still.inside,
        }
    }

    /// The price, or an error where the step lies outside of what was measured and extrapolation was not allowed.
    ///
    /// # Errors
    /// [`CostError::Domain`] names the ops and their domain.
    pub fn price_checked(&self, q: &StepQuery) -> Result<StepPrice, CostError> {
        let price = self.price(q);
        if price.in_domain || self.allow_extrapolation {
            return Ok(price);
        }
        let outside: Vec<String> =
            self.breakdown(q).into_iter().filter(|line| !line.in_domain).map(|line| line.name).collect();
        Err(CostError::Domain {
            query: format!(
                "{} requests, {} rows, {:.0} tokens of context each, {} draft rows",
                q.requests,
                q.rows,
                q.context_mean(),
                q.draft_rows
            ),
            ops: if outside.is_empty() { "requests or context".into() } else { outside.join(", ") },
            domain: self.domain(),
        })
    }

    /// Total ms of the step for each row count in `rows`, the rest of the query unchanged.
    pub fn curve(&self, q: &StepQuery, rows: &[u32], ms: &mut [f64]) {
        let still = self.still(q);
        let fixed = self.host.flat(still.drafted);
        for (&rows, ms) in rows.iter().zip(ms) {
            let host = fixed.unwrap_or_else(|| self.host.total(rows, still.drafted));
            let (point, _) = self.target_point(&still, rows, q.effective_rows);
            let (bound, tier) = self.target.times(&still.target, &point, self.both());
            *ms = (still.draft.us + self.blend(bound.total, tier.total) + self.scale * host) * 1e-3;
        }
    }

    /// Whether nothing about the step lies outside of what was measured.
    #[must_use]
    pub fn in_domain(&self, q: &StepQuery) -> bool {
        let still = self.still(q);
        still.inside && still.draft.inside && self.verified(&still, q.rows, q.effective_rows).ran.inside
    }

    /// The domain in words.
    #[must_use]
    pub fn domain(&self) -> String {
        match (self.tier, &self.covered) {
            (Tier::Bound, _) => "everything".into(),
            (_, Some(d)) => format!(
                "requests {}..{}, rows {}..{}, context {}..{}, rows of a draft pass {}..{}",
                d.requests[0],
                d.requests[1],
                d.rows[0],
                d.rows[1],
                d.context[0],
                d.context[1],
                d.draft_rows[0],
                d.draft_rows[1]
            ),
            (_, None) => self.measured(),
        }
    }
}

impl CostModel {
    /// What the tables of the passes cover.
    fn measured(&self) -> String {
        let mut parts = Vec::new();
        let draft = self.draft.as_ref().map(|(_, passes)| ("rows of a draft pass", passes));
        for (rows, passes) in std::iter::once(("rows", &self.target)).chain(draft) {
            let Some(law) = &passes.tier else { continue };
            if let Some((first, last)) = law.domain() {
                parts.push(format!("{rows} {first}..{last}"));
            }
            for kernel in &law.attention {
                if let Timing::Table { decode, .. } = &kernel.timing {
                    let ends = |x: &[f64]| (x.first().copied().unwrap_or(0.0), x.last().copied().unwrap_or(0.0));
                    let ((b0, b1), (c0, c1)) = (ends(decode.axes().0), ends(decode.axes().1));
                    let name = kernel.op.name;
                    parts.push(format!("{name} at batch {b0}..{b1} and context {c0}..{c1}, less where both are large"));
                }
            }
        }
        parts.join("; ")
    }
}

impl StepCost for CostModel {
    fn step(&self, shape: &StepShape) -> StepTime {
        let q = StepQuery::from(shape);
        let still = self.still(&q);
        let verify = self.verified(&still, q.rows, None).us;
        StepTime {
            draft_ms: still.draft.us * 1e-3,
            verify_ms: verify * 1e-3,
            other_ms: self.scale * self.host.total(q.rows, still.drafted) * 1e-3,
        }
    }

    fn curve(&self, shape: &StepShape, rows: &[u32], ms: &mut [f64]) {
        Self::curve(self, &StepQuery::from(shape), rows, ms);
    }

    fn bucket_ends(&self) -> &[u32] {
        Self::bucket_ends(self)
    }
}
