//! A source on its tables, ready for any context and concurrency.

use super::{Acceptance, At, Candidate, PLAIN, Prepared, ShapeVariants, Watched};
use crate::decide::{self, Gap, Part, Resamples, Setting, Variant};
use anyhow::Context as _;
use treeline_sim::batch::fast::{FastResult, Tables, simulate};

/// Request-rounds from which a cell takes long enough to be watched.
const LONG: u32 = 1 << 20;

/// A source with its nested tables.
pub struct Ready<'r> {
    /// The experiment.
    pub prepared: &'r Prepared<'r>,
    /// The source.
    pub acceptance: Acceptance,
    /// Its tables, one per spine.
    pub tables: Vec<Tables<'r>>,
    /// Mean shapes, and how they move.
    pub shapes: ShapeVariants,
    /// Resamples of its requests.
    pub resamples: Resamples,
}

/// One simulated candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Index of the candidate.
    pub candidate: usize,
    /// The figures.
    pub result: FastResult,
    /// (tokens, ms that a user waited) by request.
    pub rates: Vec<(f64, f64)>,
}

impl Ready<'_> {
    /// Simulates a candidate in the steady state of a closed loop.
    ///
    /// # Errors
    /// A policy that only a replay runs; what the tables cannot answer.
    pub fn simulate(&self, index: usize, context: Option<u32>, concurrency: u32) -> anyhow::Result<Simulated> {
        self.simulate_watched(index, context, concurrency, &|_| {})
    }

    /// The same; `seen` hears of request-rounds as they are priced, where there are many.
    ///
    /// # Errors
    /// As [`Ready::simulate`].
    pub fn simulate_watched(
        &self,
        index: usize,
        context: Option<u32>,
        concurrency: u32,
        seen: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<Simulated> {
        let p = self.prepared;
        let candidate = p.candidates.get(index).context("no such candidate")?;
        let policy = candidate.fast.as_ref().context("this policy is replayed round by round, not on tables")?;
        let tables = self.tables_of(candidate).context("no tables with this spine")?;
        let load = p.load(context, concurrency);
        let seed = p.experiment.seed;
        let result = match load.request_rounds >= LONG {
            true => simulate(tables, &Watched::new(&p.cost, seen), policy, &load, seed)?,
            false => simulate(tables, &p.cost, policy, &load, seed)?,
        };
        // The simulator shares a step's time among its requests; a user waits for the whole step.
        let user = f64::from(concurrency);
        let rates = result.per_request.iter().map(|r| (r.tokens, r.ms * user)).collect();
        Ok(Simulated { candidate: index, result, rates })
    }

    /// The tables that a candidate's trees are prefixes on.
    #[must_use]
    pub fn tables_of(&self, candidate: &Candidate) -> Option<&Tables<'_>> {
        self.tables.iter().find(|t| candidate.spine().is_none_or(|s| s == t.nested().spine()))
    }

    /// What decides between simulated candidates, every input moved once.
    #[must_use]
    pub fn setting(&self, context: Option<u32>, concurrency: u32, runs: &[Simulated]) -> Setting {
        let p = self.prepared;
        let candidate = |run: &Simulated| decide::Candidate {
            choice: p.candidates[run.candidate].choice(),
            fixed: p.candidates[run.candidate].fixed(),
            tau: run.result.tau,
            rows: run.result.rows_mean,
            requests: run.rates.clone(),
        };
        let candidates: Vec<decide::Candidate> = runs.iter().map(candidate).collect();
        let place = |kind: &str, budget: u32| {
            candidates.iter().position(|c| c.choice.policy == kind && c.choice.budget == budget)
        };
        Setting {
            acceptance: self.acceptance.name.clone(),
            context: context.unwrap_or(self.acceptance.prompt),
            concurrency,
            plain: place(PLAIN, 0),
            reference: p.run.reference.as_ref().and_then(|(kind, budget)| place(kind, *budget)),
            variants: self.variants(context, concurrency, runs, &p.costs, true),
            gaps: self.gaps(),
            candidates,
        }
    }

    /// What is uncertain and was not moved.
    fn gaps(&self) -> Vec<Gap> {
        let wanted = self.acceptance.moves();
        let lost = |part: Part| {
            let (all, moved) = (
                wanted.iter().filter(|m| m.0 == part).count(),
                self.shapes.moved.iter().filter(|m| m.part == part).count(),
            );
            let why = format!("{} of {all} moved inputs gave nothing", all.saturating_sub(moved));
            (moved < all).then_some(Gap { part, whole: moved == 0, why })
        };
        let lost = [Part::Sampling, Part::Model].into_iter().filter_map(lost);
        self.acceptance.gaps().into_iter().chain(lost).chain(self.prepared.transfer_gap()).collect()
    }

    /// The rates of simulated candidates under moved inputs: those of `costs`, and with `process` those of the process.
    #[must_use]
    pub fn variants(
        &self,
        context: Option<u32>,
        concurrency: u32,
        runs: &[Simulated],
        costs: &[super::CostVariant],
        process: bool,
    ) -> Vec<Variant> {
        let p = self.prepared;
        let mut rates = vec![f64::NAN; p.candidates.len()];
        for run in runs {
            let (tokens, ms) = run.rates.iter().fold((0.0, 0.0), |s, r| (s.0 + r.0, s.1 + r.1));
            rates[run.candidate] = tokens / ms;
        }
        let at = At {
            base: &p.cost,
            draft_rows: p.profiles.draft_rows(),
            context: f64::from(context.unwrap_or(self.acceptance.prompt)),
            concurrency,
        };
        let mut variants = self.shapes.cost_rates(&at, costs, &rates);
        if process {
            variants.extend(self.shapes.process_rates(&at, &rates));
        }
        for v in &mut variants {
            v.rates = runs.iter().map(|run| v.rates[run.candidate]).collect();
        }
        variants
    }
}
