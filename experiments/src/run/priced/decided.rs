//! The answer of a replayed group, and how it moves with the process that its requests come from.
//!
//! Tables would answer for every candidate; here each question is a replay of its own. So only those that decide are
//! replayed under moved parameters (plain decoding, the best, the next, the same of fixed size, today's practice), over few
//! short responses, moved and unmoved on the same random numbers.

use super::plan::Group;
use super::replay::{PricedSource, Walk};
use crate::config::{Experiment, Record};
use crate::decide::{self, Gap, Part, Resamples, Setting, Variant, answer};
use crate::priced::{PLAIN, Prepared, Shape, moved_input, replayed_variants};
use crate::results::{Answer, CellDetail, Choice};
use crate::run::cell::Bench;
use crate::run::execute::message;
use crate::run::plan::CellSpec;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use treeline_policies::Registry;
use treeline_sim::accept::{Process, Variant as Moved};

/// Requests of a walk, where no more decode together.
const REQUESTS: u32 = 32;
/// Tokens that all responses of a walk come to, and the fewest of one.
const TOKENS: (u32, u32) = (32 * 160, 64);
/// Resamples of cells whose intervals nobody reads.
const RESAMPLES: u32 = 100;

/// Answers the groups of a replayed run.
pub(super) struct Decider<'d> {
    p: &'d Prepared<'d>,
    registry: &'d Registry,
    /// As the run's, but nothing is recorded.
    experiment: Experiment,
    /// By acceptance: its moved processes.
    moves: BTreeMap<String, Vec<(Part, Moved)>>,
}

impl<'d> Decider<'d> {
    /// For the groups of `p`, whose sources are these.
    pub fn new(p: &'d Prepared<'d>, registry: &'d Registry, sources: &[PricedSource]) -> Self {
        let experiment = Experiment { record: Record::Summary, bootstrap: RESAMPLES, ..p.experiment.clone() };
        let mut moves = BTreeMap::new();
        for a in sources.iter().map(|s| &s.acceptance) {
            moves.entry(a.name.clone()).or_insert_with(|| a.held_moves(p.experiment.seed));
        }
        Self { p, registry, experiment, moves }
    }

    /// The answer of a group, from the details of its cells.
    pub fn answer(&self, source: &PricedSource, group: &Group, details: &[&CellDetail]) -> Option<Answer> {
        let mut setting = self.setting(group, details)?;
        let requests = setting.candidates.iter().map(|c| c.requests.len()).min()?;
        let resamples = Resamples::new(requests, self.p.experiment.bootstrap, self.p.experiment.seed);
        let first = answer(&setting, &resamples)?;
        let all = self.moves.get(&source.acceptance.name).map_or(&[][..], Vec::as_slice);
        setting.gaps.extend(source.acceptance.gaps());
        if source.acceptance.process.is_none() {
            return Some(first);
        }
        let gap = |part, whole, why: &str| Gap { part, whole, why: why.to_owned() };
        match self.moved(source, details, &deciding(&setting, &first), all) {
            Ok(variants) => {
                for part in [Part::Sampling, Part::Model] {
                    let wanted = all.iter().filter(|m| m.0 == part).count();
                    let had = variants.iter().filter(|v| v.part == part).count();
                    if had < wanted {
                        let why = format!("{} of {wanted} replays with a moved input failed", wanted - had);
                        setting.gaps.push(gap(part, had == 0, &why));
                    }
                }
                setting.variants.extend(variants);
            }
            Err(why) => {
                setting.gaps.push(gap(Part::Sampling, false, &why));
                setting.gaps.push(gap(Part::Model, true, &why));
            }
        }
        answer(&setting, &resamples)
    }

    fn setting(&self, group: &Group, details: &[&CellDetail]) -> Option<Setting> {
        let (p, first) = (self.p, details.first()?);
        let user = f64::from(group.concurrency);
        let choice = |d: &CellDetail| Choice { policy: d.cell.policy.clone(), budget: d.cell.budget };
        let candidate = |d: &&CellDetail| decide::Candidate {
            choice: choice(d),
            fixed: p.candidates.iter().any(|c| c.choice() == choice(d) && c.fixed()),
            tau: d.cell.tau.unwrap_or(f64::NAN),
            rows: d.cell.rows_mean.unwrap_or(f64::NAN),
            requests: d.per_request.iter().map(|r| weight(r, user)).collect(),
        };
        let candidates: Vec<decide::Candidate> = details.iter().map(candidate).collect();
        let shape = |d: &&CellDetail| {
            let (tau, rows) = (d.cell.tau?, d.cell.rows_mean?);
            Some(Shape { tau, rows, effective: None, drafted: f64::from(u8::from(d.cell.budget > 0)), index: 0.0 })
        };
        let shapes: Vec<Option<Shape>> = details.iter().map(shape).collect();
        let rates: Vec<f64> = candidates.iter().map(decide::Candidate::rate).collect();
        let place = |kind: &str, budget: u32| {
            candidates.iter().position(|c| c.choice.policy == kind && c.choice.budget == budget)
        };
        Some(Setting {
            acceptance: first.cell.acceptance.clone().unwrap_or_default(),
            context: first.cell.context,
            concurrency: group.concurrency,
            plain: place(PLAIN, 0),
            reference: p.run.reference.as_ref().and_then(|(kind, budget)| place(kind, *budget)),
            variants: replayed_variants(p, &shapes, &rates, first.cell.context, company(first)),
            gaps: p.transfer_gap().into_iter().collect(),
            candidates,
        })
    }

    /// Rates of the deciding candidates with each input moved, as far as they could be had; why there are none.
    fn moved(
        &self,
        source: &PricedSource,
        details: &[&CellDetail],
        deciding: &[usize],
        all: &[(Part, Moved)],
    ) -> Result<Vec<Variant>, String> {
        let Some(process) = source.acceptance.process.as_ref().filter(|_| !all.is_empty()) else {
            return Ok(Vec::new());
        };
        let requests = deciding.iter().map(|&i| company(details[i])).max().unwrap_or(1).max(REQUESTS);
        let response = self.p.run.response.unwrap_or(TOKENS.1);
        let walk =
            Walk { requests, tokens: (TOKENS.0 / requests).max(TOKENS.1).min(response), seed: self.p.experiment.seed };
        let own =
            self.rates(source, process, walk, details, deciding).map_err(|e| format!("its replay failed: {e:#}"))?;
        let one = |(part, v): &(Part, Moved)| {
            let now = self.rates(source, &v.process, walk, details, deciding).ok()?;
            let mut rates = vec![f64::NAN; details.len()];
            for ((&i, now), own) in deciding.iter().zip(now).zip(&own) {
                rates[i] = faster(details[i], now / own)?;
            }
            let input = moved_input(&v.parameter);
            Some(Variant { key: v.parameter.clone(), input, change: v.change.clone(), part: *part, rates })
        };
        Ok(all.par_iter().with_max_len(1).filter_map(one).collect())
    }

    /// Tokens per ms of decoding of each candidate on what a process generates.
    fn rates(
        &self,
        source: &PricedSource,
        process: &Process,
        walk: Walk,
        details: &[&CellDetail],
        deciding: &[usize],
    ) -> anyhow::Result<Vec<f64>> {
        let source = source.moved(process, walk)?;
        let bench = Bench {
            source: &source,
            experiment: &self.experiment,
            registry: self.registry,
            side_by_side: 1,
            playback: None,
        };
        let rate = |&i: &usize| {
            let cell = &details[i].cell;
            let spec = CellSpec {
                key: String::new(),
                label: String::new(),
                kind: cell.policy.clone(),
                params: cell.policy_params.clone(),
                budget: cell.budget,
                temperature: cell.temperature,
                concurrency: company(details[i]),
            };
            // A policy that panics on other numbers ends this question only.
            let run = catch_unwind(AssertUnwindSafe(|| bench.run(&spec, &|_| {})));
            let detail = run.map_err(|panic| anyhow::anyhow!("panicked: {}", message(&*panic)))??.detail;
            let (tokens, ms) = work(&detail);
            anyhow::ensure!(tokens > 0.0 && ms > 0.0, "nothing was decoded");
            Ok(tokens / ms)
        };
        deciding.iter().map(rate).collect()
    }
}

/// Indices of the candidates that an answer and its interval are about.
fn deciding(setting: &Setting, first: &Answer) -> Vec<usize> {
    let of = |choice: &Choice| setting.candidates.iter().position(|c| c.choice == *choice);
    let fixed = |i: &usize| setting.candidates[*i].fixed;
    let mut by_rate: Vec<usize> = (0..setting.candidates.len()).collect();
    by_rate.sort_by(|&a, &b| setting.candidates[b].rate().total_cmp(&setting.candidates[a].rate()));
    // NaN sorts as the greatest.
    by_rate.retain(|&i| setting.candidates[i].rate().is_finite());
    let named = [Some(&first.best), first.runner_up.as_ref()].into_iter().flatten().filter_map(of);
    let mut out: Vec<usize> = setting.plain.into_iter().chain(setting.reference).chain(named).collect();
    out.extend(by_rate.into_iter().filter(fixed).take(2));
    out.sort_unstable();
    out.dedup();
    out
}

/// Tokens of a request and the time that they took `users` of its kind. A response that its prompt ended took no step: it
/// weighs nothing, and is no gap in the clock.
fn weight(r: &crate::results::RequestRow, users: f64) -> (f64, f64) {
    if r.steps == 0 { (0.0, 0.0) } else { (r.tokens as f64, r.ms.unwrap_or(f64::NAN) * users) }
}

/// Σ tokens and Σ ms of a cell, charged prompts included.
fn work(detail: &CellDetail) -> (f64, f64) {
    let of = |r: &crate::results::RequestRow| (r.tokens as f64, r.ms.unwrap_or(0.0));
    detail.per_request.iter().map(of).fold((0.0, 0.0), |s, r| (s.0 + r.0, s.1 + r.1))
}

/// Requests that decoded together on average: below the cap where requests come by a clock, or run out.
fn company(detail: &CellDetail) -> u32 {
    let steps = detail.cell.step_ms.map(|ms| work(detail).1 / ms).filter(|s| *s > 0.0);
    let mean = steps.map_or(1.0, |steps| detail.cell.rounds as f64 / steps);
    (mean.round() as u32).clamp(1, detail.cell.concurrency.max(1))
}

/// The rate of a cell whose decoding is `by` times as fast; charged prompts take what they take.
fn faster(detail: &CellDetail, by: f64) -> Option<f64> {
    let (tokens, ms) = work(detail);
    let prompts = (detail.prefill_ms.unwrap_or(0.0) / ms).clamp(0.0, 1.0);
    let user = f64::from(detail.cell.concurrency);
    let rate = tokens / (ms * user) / ((1.0 - prompts) / by + prompts);
    (by.is_finite() && rate.is_finite()).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RequestRow;

    /// A response that its prompt's token ended has no step and no time: it must not empty the sums of the others.
    #[test]
    fn a_response_without_a_step_weighs_nothing() {
        let row = |steps, tokens, ms| RequestRow { id: 1, domain: String::new(), steps, tokens, ms, looped: None };
        assert_eq!(weight(&row(0, 0, None), 8.0), (0.0, 0.0));
        assert_eq!(weight(&row(2, 6, Some(3.0)), 8.0), (6.0, 24.0));
        assert!(weight(&row(2, 6, None), 8.0).1.is_nan(), "a step without a clock has no rate");
    }
}
