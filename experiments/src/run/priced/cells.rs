//! From the figures of a simulated cell to the cell of the summary.

use super::plan::Group;
use crate::decide::{LEAST, central};
use crate::priced::{Ready, Simulated};
use crate::results::{Cell, CellDetail, Source};
use crate::run::figures::phase_name;
use treeline_core::Phase;
use treeline_sim::batch::fast::{FastResult, RequestSums};

/// What the cells of a group share.
pub(super) struct Frame<'f> {
    /// The group.
    pub group: &'f Group,
    /// Its source.
    pub ready: &'f Ready<'f>,
}

impl Frame<'_> {
    /// The detail of one cell; `plain` is plain decoding in the same group.
    pub fn detail(&self, run: &Simulated, plain: Option<&Simulated>) -> CellDetail {
        let Ready { prepared, acceptance, resamples, .. } = self.ready;
        let (candidate, profiles) = (&prepared.candidates[run.candidate], &prepared.profiles);
        let (r, g, d) = (&run.result, self.group, &profiles.deployment);
        let parts = |f: fn(&RequestSums) -> (f64, f64)| r.per_request.iter().map(f).collect::<Vec<_>>();
        let few = acceptance.requests < LEAST;
        let interval = |draws: &[f64], scale: f64| {
            let ends = central(draws).filter(|_| !few);
            ends.map_or((None, None), |(lo, hi)| (Some(lo * scale), Some(hi * scale)))
        };
        let user = f64::from(g.concurrency);
        let tau = interval(&resamples.ratios(&parts(|s| (s.tokens, s.rounds))), 1.0);
        let step = interval(&resamples.ratios(&parts(|s| (s.ms, s.rounds))), user);
        let rates = resamples.ratios(&run.rates);
        let tok = interval(&rates, 1e3 * user);
        let base = plain.map(|p| resamples.ratios(&p.rates));
        let gains: Vec<f64> = base.iter().flatten().zip(&rates).map(|(a, b)| b / a).collect();
        let gain = interval(&gains, 1.0);
        let tier = profiles.spec.tier.name();
        let ranks = f64::from(d.ranks);
        let cell = Cell {
            backend: "sim".to_owned(),
            policy: candidate.kind.clone(),
            policy_params: candidate.params.clone(),
            budget: candidate.budget,
            hardware: Some(profiles.hardware.name.clone()),
            deployment: Some(d.name.clone()),
            acceptance: Some(acceptance.name.clone()),
            concurrency: g.concurrency,
            context: g.context.unwrap_or(acceptance.prompt),
            temperature: acceptance.temperature,
            workload: acceptance.workload.clone(),
            ranks: d.ranks,
            graphs: Some(d.graphs.is_some()),
            requests: r.per_request.iter().filter(|s| s.rounds > 0.0).count() as u32,
            rounds: r.rounds,
            tau: finite(r.tau),
            tau_lo: tau.0,
            tau_hi: tau.1,
            tau_unweighted: unweighted(&r.per_request),
            rows_mean: finite(r.rows_mean),
            experts_mean: r.experts_mean.and_then(finite),
            step_ms: finite(r.step_ms),
            step_ms_lo: step.0,
            step_ms_hi: step.1,
            tok_s: finite(r.tok_s),
            tok_s_lo: tok.0,
            tok_s_hi: tok.1,
            tok_s_user: finite(r.tok_s / user),
            tok_s_gpu: finite(r.tok_s / ranks),
            busy: None,
            joules_per_token: finite(r.joules_per_token),
            power_w: finite(r.watts),
            speedup: plain.and_then(|p| finite(r.tok_s / p.result.tok_s)),
            speedup_lo: gain.0,
            speedup_hi: gain.1,
            mc_error: finite(r.mc_error),
            loop_share: None,
            tier: tier.to_owned(),
            source: Source {
                tau: if acceptance.process.is_some() { "process" } else { "replayed" }.to_owned(),
                step_ms: Some(tier.to_owned()),
                experts: r.experts_mean.map(|_| "model".to_owned()),
            },
            in_domain: Some(r.in_domain),
            notes: notes(r),
        };
        let decode = Phase::ALL.iter().filter(|p| **p != Phase::Prefill);
        CellDetail {
            key: format!("{}/{}-b{}", g.key, candidate.kind, candidate.budget),
            cell,
            per_request: Vec::new(),
            by_depth: Vec::new(),
            emitted_histogram: Vec::new(),
            experts_by_rows: Vec::new(),
            ms_by_rows: Vec::new(),
            waterfall: None,
            phases: decode.map(|p| (phase_name(*p), r.phases.of(*p))).collect(),
            phi: None,
            prefill_ms: None,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// Unweighted mean of the responses' own τ.
fn unweighted(requests: &[RequestSums]) -> Option<f64> {
    let own: Vec<f64> = requests.iter().filter(|s| s.rounds > 0.0).map(|s| s.tokens / s.rounds).collect();
    finite(own.iter().sum::<f64>() / own.len() as f64)
}

fn notes(r: &FastResult) -> Vec<String> {
    if r.cut_share < 5e-4 {
        return Vec::new();
    }
    let share = 100.0 * r.cut_share;
    vec![format!(
        "in {share:.1} % of the rounds the tree wanted a rank that the trace does not list: τ is a lower bound"
    )]
}
