//! From what was noted of a cell's rounds to its figures. A figure that has no data is absent, never 0 or NaN.

use super::energy::Energy;
use super::gauge::{Gauge, Share};
use super::plan::{CellSpec, PLAIN};
use super::source::{Source, Wall};
use crate::config::Experiment;
use crate::decide::LEAST;
use crate::results::{Cell, CellDetail, DepthRow, RequestRow, RowsPoint, Source as Origin, WaterfallRow};
use std::collections::BTreeMap;
use treeline_core::metrics::{Bootstrap, Interval, Point, Warning, Waterfall, loop_share, looped, warnings};
use treeline_core::{Phase, Response};

/// What a cell's run gave.
pub(super) struct Measured<'m, S> {
    /// Sums over its rounds.
    pub gauge: &'m Gauge<'m, S>,
    /// Responses in workload order.
    pub responses: &'m [Response],
    /// Cells that ran side by side, at most.
    pub side_by_side: usize,
    /// What the device drew, where it tells.
    pub energy: Option<Energy>,
    /// The cell's whole time, where requests arrive by a clock.
    pub wall: Option<Wall>,
    /// Time between two tokens of one user, where the rounds' own times do not tell.
    pub user_ms: Option<f64>,
}

/// A figure with its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Figure {
    mid: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
}

impl Figure {
    /// Σ numerators / Σ denominators and its interval over requests, all times `scale`.
    fn ratio(bootstrap: &Bootstrap, parts: &[(f64, f64)], scale: f64) -> Self {
        let (a, b) = parts.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
        let interval: Option<Interval> = bootstrap.ratio(parts);
        let end = |f: fn(&Interval) -> f64| interval.as_ref().map(f).and_then(|x| finite(x * scale));
        Self { mid: if b > 0.0 { finite(a / b * scale) } else { None }, lo: end(|i| i.lo), hi: end(|i| i.hi) }
    }

    /// Without its interval.
    fn alone(self) -> Self {
        Self { mid: self.mid, lo: None, hi: None }
    }

    fn times(self, factor: f64) -> Self {
        let scaled = |x: Option<f64>| x.map(|x| x * factor);
        Self { mid: scaled(self.mid), lo: scaled(self.lo), hi: scaled(self.hi) }
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// The figures of a cell; `speedup` is added when its baseline is known.
pub(super) fn detail<S: Source>(source: &S, e: &Experiment, spec: &CellSpec, m: &Measured<'_, S>) -> CellDetail {
    let (facts, tally) = (source.facts(), &m.gauge.tally);
    let bootstrap = Bootstrap { seed: e.seed, resamples: e.bootstrap, level: 0.95 };
    // What is simulated has as many requests as the file asks for: no interval is better than one over a handful.
    let few = facts.clock && !facts.measured() && finished(m.responses).count() < LEAST;
    let shown = |f: Figure| if few { f.alone() } else { f };
    let tau = shown(Figure::ratio(&bootstrap, &tally.tau_parts(), 1.0));
    let share = |f: fn(&Share) -> (f64, f64)| m.gauge.shares.iter().map(f).collect::<Vec<_>>();
    let step = shown(Figure::ratio(&bootstrap, &share(|s| (s.ms, s.rounds)), 1.0));
    let rate = shown(Figure::ratio(&bootstrap, &share(|s| (s.tokens, s.ms)), 1e3));
    let tpot = tally.tpot(spec.concurrency);
    let loops = facts.tokens.then(|| loop_share(finished(m.responses).map(|r| r.tokens.as_slice()))).flatten();
    let experts = tally.experts_mean().and_then(finite);
    let tokens: u64 = m.responses.iter().map(|r| u64::from(r.decoded())).sum();
    let priced = tally.priced();
    let work_ms = tally.times().0.round() + priced.charged_ms;
    let busy = m.wall.map(|w| (work_ms / w.ms).min(1.0)).filter(|b| b.is_finite());
    let rate = busy.map_or(rate, |busy| rate.times(busy));
    // A cost model's energy is that of all GPUs, a counter's that of one.
    let modelled = || {
        let idle_s = m.wall.map_or(0.0, |w| (w.ms - work_ms).max(0.0) / 1e3);
        let idle = m.wall.map_or(0.0, |w| w.idle_w * idle_s);
        let seconds = work_ms / 1e3 + idle_s;
        (priced.rounds > 0).then_some(Energy { joules: priced.joules + idle, seconds })
    };
    let gpus = if m.energy.is_some() { 1.0 } else { f64::from(facts.ranks) };
    let energy = m.energy.or_else(modelled);
    let cell = Cell {
        backend: facts.backend.to_owned(),
        policy: spec.kind.clone(),
        policy_params: spec.params.clone(),
        budget: spec.budget,
        hardware: facts.hardware.clone(),
        deployment: facts.deployment.clone(),
        acceptance: Some(facts.acceptance.clone()),
        concurrency: spec.concurrency,
        context: facts.context,
        temperature: spec.temperature,
        workload: facts.workload.clone(),
        ranks: facts.ranks,
        graphs: None,
        requests: finished(m.responses).count() as u32,
        rounds: tally.steps(),
        tau: tau.mid,
        tau_lo: tau.lo,
        tau_hi: tau.hi,
        tau_unweighted: tally.tau_unweighted().and_then(finite),
        rows_mean: tally.rows_mean().and_then(finite),
        experts_mean: experts,
        step_ms: step.mid,
        step_ms_lo: step.lo,
        step_ms_hi: step.hi,
        tok_s: rate.mid,
        tok_s_lo: rate.lo,
        tok_s_hi: rate.hi,
        tok_s_user: m.user_ms.or_else(|| tpot.ms()).and_then(|ms| finite(1e3 / ms)),
        tok_s_gpu: rate.mid.filter(|_| !facts.measured()).and_then(|r| finite(r / f64::from(facts.ranks))),
        busy,
        joules_per_token: energy.filter(|_| tokens > 0).and_then(|e| finite(e.joules / tokens as f64)),
        power_w: energy.and_then(|e| finite(e.joules / e.seconds / gpus)),
        speedup: None,
        speedup_lo: None,
        speedup_hi: None,
        mc_error: None,
        loop_share: loops,
        tier: facts.tier.to_owned(),
        source: Origin {
            tau: facts.tau.to_owned(),
            step_ms: step.mid.map(|_| facts.tier.to_owned()),
            experts: experts.map(|_| if priced.experts_modelled > 0 { "model" } else { "measured" }.to_owned()),
        },
        in_domain: (priced.rounds > 0).then_some(priced.outside == 0),
        notes: notes(source, spec, m),
    };
    let all = warnings(tally, loops, true);
    // A priced run says once for all its cells what few requests mean.
    let own = |w: &&Warning| facts.measured() || !facts.clock || !matches!(w, Warning::FewRequests { .. });
    let doubts = all.iter().filter(own);
    let (times, timed) = tally.times();
    let per_step = |phase: &Phase| (phase_name(*phase), times.of(*phase) / timed as f64);
    let decode = Phase::ALL.iter().filter(|p| **p != Phase::Prefill);
    CellDetail {
        key: spec.key.clone(),
        cell,
        per_request: per_request(source, m),
        by_depth: by_depth(m),
        emitted_histogram: tally.emitted().get(1..).unwrap_or(&[]).to_vec(),
        experts_by_rows: points(tally.experts()),
        ms_by_rows: points(tally.ms()),
        waterfall: waterfall(&m.gauge.waterfall),
        phases: if timed > 0 { decode.map(per_step).collect() } else { Vec::new() },
        phi: phi(m),
        prefill_ms: (timed > 0).then(|| times.of(Phase::Prefill)),
        warnings: doubts.map(ToString::to_string).collect(),
        faults: m.responses.iter().filter_map(|r| Some((r.request, r.end.as_ref().err()?.to_string()))).collect(),
    }
}

fn finished(responses: &[Response]) -> impl Iterator<Item = &Response> {
    responses.iter().filter(|r| r.end.is_ok())
}

/// The word for a phase in files.
pub(super) fn phase_name(phase: Phase) -> String {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Draft => "draft",
        Phase::Tree => "tree",
        Phase::Verify => "verify",
        Phase::Walk => "walk",
        Phase::Commit => "commit",
        Phase::Host => "host",
    }
    .to_owned()
}

fn notes<S: Source>(source: &S, spec: &CellSpec, m: &Measured<'_, S>) -> Vec<String> {
    let (facts, tally) = (source.facts(), &m.gauge.tally);
    let mut notes = facts.notes.clone();
    if facts.measured() {
        notes.push("a warm-up response before the first measured step is left out".to_owned());
        if m.side_by_side > 1 {
            notes.push(format!("timed while up to {} cells ran side by side", m.side_by_side));
        }
    }
    // A response's last token needs no draft: one such step a response is no news.
    if spec.kind != PLAIN && tally.skipped() > finished(m.responses).count() as u64 {
        notes.push(format!("{} of {} steps drafted nothing", tally.skipped(), tally.steps()));
    }
    notes
}

fn per_request<S: Source>(source: &S, m: &Measured<'_, S>) -> Vec<RequestRow> {
    let row = |(index, response): (usize, &Response)| {
        let tally = m.gauge.tally.requests().get(index).copied().unwrap_or_default();
        let share = m.gauge.shares.get(index).copied().unwrap_or_default();
        RequestRow {
            id: response.request,
            domain: source.domain(index).to_owned(),
            steps: tally.steps,
            tokens: tally.tokens,
            ms: (share.rounds > 0.0).then_some(share.ms),
            looped: source.facts().tokens.then(|| looped(&response.tokens)).flatten(),
        }
    };
    m.responses.iter().enumerate().filter(|(_, r)| r.end.is_ok()).map(row).collect()
}

fn by_depth<S>(m: &Measured<'_, S>) -> Vec<DepthRow> {
    let ranks = |depth: usize| m.gauge.ranks.get(depth).copied().unwrap_or_default();
    let counts = m.gauge.tally.depths().iter().enumerate();
    counts
        .map(|(i, d)| DepthRow { depth: i as u32 + 1, reached: d.reached, accepted: d.accepted, by_rank: ranks(i) })
        .collect()
}

fn points(by_rows: &BTreeMap<u32, Point>) -> Vec<RowsPoint> {
    by_rows.iter().filter_map(|(&rows, p)| Some(RowsPoint { rows, steps: p.count, mean: p.mean()? })).collect()
}

fn waterfall(w: &Waterfall) -> Option<WaterfallRow> {
    let oracle_tau = w.oracle_tau()?;
    let per_step = |x: u64| x as f64 / w.rounds as f64;
    Some(WaterfallRow {
        reach: per_step(w.depths),
        not_in_top_w: per_step(w.unlisted),
        unreachable: per_step(w.unreachable),
        surrogate: per_step(w.surrogate),
        accepted: per_step(w.accepted),
        oracle_tau,
    })
}

fn phi<S>(m: &Measured<'_, S>) -> Option<(f64, f64)> {
    let phi = m.gauge.tally.phi();
    let steps = phi.steps as f64;
    (phi.steps > 0).then(|| (phi.expected / steps, phi.accepted as f64 / steps))
}
