//! One cell: calibrated on half A, scored on half B.

use crate::decide::Resamples;
use crate::priced::Candidate;
use crate::results::{Choice, Quotient, SplitPolicy, SplitScore};
use anyhow::Context as _;
use std::sync::Arc;
use treeline_policies::cost_aware::{Reliability, ReliabilityFit};
use treeline_sim::batch::Pricing;
use treeline_sim::batch::fast::{FastPolicy, FastResult, Load, Tables, simulate};
use treeline_sim::nested::Nested;

/// What one cell is scored on.
pub struct Cell<'c> {
    /// Name of the acceptance.
    pub acceptance: &'c str,
    /// Tables of the acceptance, one for each spine that a candidate needs.
    pub tables: &'c [Tables<'c>],
    /// Prices the steps.
    pub cost: &'c dyn Pricing,
    /// What runs; those without a form of the grid are passed over.
    pub candidates: &'c [Candidate],
    /// Halves of the requests.
    pub halves: &'c [Vec<u32>; 2],
    /// The load; its requests are replaced by a half, its rounds are the fewest.
    pub load: Load<'c>,
    /// Resamples of the bootstrap.
    pub resamples: u32,
    /// Seed of company and bootstrap.
    pub seed: u64,
}

/// What a candidate did on one half.
struct Ran {
    result: FastResult,
    /// (tokens, ms) of the half's requests.
    requests: Vec<(f64, f64)>,
}

impl Ran {
    fn rate(&self) -> f64 {
        let (tokens, ms) = self.requests.iter().fold((0.0, 0.0), |s, r| (s.0 + r.0, s.1 + r.1));
        tokens / ms
    }
}

impl Cell<'_> {
    fn run(&self, policy: &FastPolicy, spine: Option<u32>, half: usize) -> anyhow::Result<Ran> {
        let fits = |t: &&Tables<'_>| spine.is_none_or(|s| t.nested().spine() == s);
        let tables = self.tables.iter().find(fits).context("no tables of this spine were built")?;
        let requests = &self.halves[half];
        // Half B is served whole, or more: trees commit about three tokens a round, or more. On half A less decides as well.
        let tokens: u32 = requests.iter().map(|&r| tables.nested().positions(r as usize)).sum();
        let request_rounds = (tokens / if half == 0 { 6 } else { 3 }).max(self.load.request_rounds);
        let load = Load { requests: Some(requests), request_rounds, ..self.load };
        let result = simulate(tables, self.cost, policy, &load, self.seed)?;
        let of = |&r: &u32| result.per_request.get(r as usize).map_or((0.0, 0.0), |s| (s.tokens, s.ms));
        let requests = requests.iter().map(of).collect();
        Ok(Ran { result, requests })
    }

    /// Runs the cell.
    ///
    /// # Errors
    /// No fixed budget among the candidates, or what the simulation refuses.
    pub fn score(&self) -> anyhow::Result<SplitScore> {
        let fixed: Vec<(&Candidate, &FastPolicy)> =
            self.candidates.iter().filter(|c| c.fixed()).filter_map(|c| Some((c, c.fast.as_ref()?))).collect();
        let on = |half| fixed.iter().map(|(c, p)| self.run(p, c.spine(), half)).collect::<anyhow::Result<Vec<Ran>>>();
        let (a, b) = (on(0)?, on(1)?);
        let best = |ran: &[Ran]| argmax(ran.iter().map(Ran::rate)).context("no fixed budget has a throughput");
        let (chosen, hindsight) = (best(&a)?, best(&b)?);
        let plain = fixed.iter().position(|(_, p)| **p == FastPolicy::Plain);
        let resamples = Resamples::new(self.halves[1].len(), self.resamples, self.seed);
        let draws: Vec<Vec<f64>> = b.iter().map(|r| resamples.ratios(&r.requests)).collect();

        let mut policies = Vec::new();
        for c in self.candidates {
            let Some(policy @ FastPolicy::Choose(_)) = &c.fast else { continue };
            let (off, ran) = self.calibrated(c, policy, plain.map(|p| a[p].rate()), fixed[chosen].0.budget)?;
            policies.push((c, off, resamples.ratios(&ran.requests), ran));
        }
        let all: Vec<&Vec<f64>> = draws.iter().chain(policies.iter().map(|p| &p.2)).collect();
        let scored = policies.iter().map(|(c, off, own, ran)| SplitPolicy {
            choice: c.choice(),
            off: *off,
            nodes: ran.result.rows_mean - 1.0,
            tau: ran.result.tau,
            gain: quotient(ran.rate() / b[chosen].rate(), own, &draws[chosen]),
            over_hindsight: quotient(ran.rate() / b[hindsight].rate(), own, &draws[hindsight]),
            p_best: share_best(own, &all),
        });
        let choice = |i: usize| -> Choice { fixed[i].0.choice() };
        Ok(SplitScore {
            acceptance: self.acceptance.to_owned(),
            context: self.load.context.unwrap_or(0),
            concurrency: self.load.concurrency,
            calibrated: self.halves[0].len() as u32,
            scored: self.halves[1].len() as u32,
            fixed: choice(chosen),
            fixed_speedup: plain.map(|p| b[chosen].rate() / b[p].rate()),
            hindsight: choice(hindsight),
            policies: scored.collect(),
        })
    }

    /// A policy with everything that half A teaches, on half B. The flag says that it does not draft.
    fn calibrated(
        &self,
        c: &Candidate,
        policy: &FastPolicy,
        plain: Option<f64>,
        walk: u32,
    ) -> anyhow::Result<(bool, Ran)> {
        let FastPolicy::Choose(choice) = policy else { return Ok((false, self.run(policy, c.spine(), 1)?)) };
        let spineless = self.tables.iter().find(|t| t.nested().spine() == 0).context("no tables without a spine")?;
        let mut choice = choice.clone();
        choice.reliability = Some(Arc::new(reliability(spineless.nested(), &self.halves[0], walk, choice.cap)));
        let on_a = self.run(&FastPolicy::Choose(choice.clone()), Some(0), 0)?;
        if plain.is_some_and(|plain| plain > on_a.rate()) {
            return Ok((true, self.run(&FastPolicy::Plain, None, 1)?));
        }
        // The throughput that the choices of half A came to: the fixed point of renewal reward.
        choice.throughput = Some(on_a.rate());
        Ok((false, self.run(&FastPolicy::Choose(choice), Some(0), 1)?))
    }
}

/// What claims are worth on the roots of `requests` that rounds of `walk` nodes lead through, up to `cap` nodes each.
fn reliability(nested: &Nested, requests: &[u32], walk: u32, cap: u32) -> Reliability {
    let mut fit = ReliabilityFit::default();
    for &request in requests {
        let request = request as usize;
        let mut index = 0;
        while index < nested.positions(request) {
            let roots = nested.root(request, index);
            let mut before = 0;
            for (n, &weight) in (1..).zip(roots.weights.iter().take(cap as usize)) {
                // The accepted path is part of the tree, so it grows by one exactly where its next node joins.
                let accepted = roots.accepted(n);
                fit.add(weight.ln(), accepted > before);
                before = accepted;
            }
            index += roots.committed(walk).max(1);
        }
    }
    fit.finish()
}

/// Index of the greatest finite value; of equals the first.
fn argmax(values: impl Iterator<Item = f64>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (i, v) in values.enumerate().filter(|v| v.1.is_finite()) {
        if best.is_none_or(|(_, b)| v > b) {
            best = Some((i, v));
        }
    }
    best.map(|b| b.0)
}

/// A quotient with its interval from the same resamples of both.
fn quotient(mid: f64, over: &[f64], under: &[f64]) -> Quotient {
    let mut draws: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).filter(|q| q.is_finite()).collect();
    draws.sort_unstable_by(f64::total_cmp);
    let n = draws.len().max(1) as f64;
    let mean = draws.iter().sum::<f64>() / n;
    let se = (draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let at = |p: f64| draws.get((p * (n - 1.0)).round() as usize).copied().unwrap_or(mid);
    Quotient { mid, lo: at(0.025), hi: at(0.975), se }
}

/// Share of resamples in which `own` is at least as fast as everything.
fn share_best(own: &[f64], all: &[&Vec<f64>]) -> f64 {
    let wins = (0..own.len()).filter(|&i| all.iter().all(|other| own[i] >= other[i])).count();
    if own.is_empty() { 1.0 } else { wins as f64 / own.len() as f64 }
}
