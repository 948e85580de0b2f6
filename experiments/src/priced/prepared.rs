//! A priced experiment, looked up: what is the same for all its cells.

use super::ready::Ready;
use super::tables::tables;
use super::{Acceptance, Candidate, CostVariant, Outline, Profiles, candidates, cost_variants, shape_variants};
use crate::config::{Experiment, PricedRun};
use crate::decide::{Gap, Part, Resamples};
use crate::results::RefusedCell;
use treeline_sim::batch::fast::{Load, Tables};
use treeline_sim::cost::CostModel;
use treeline_sim::memory::Room;

/// The most levels of nested tables.
const TABLE_LEVELS: u32 = 31;

/// Profiles, cost model and candidates of a priced experiment, and what is known of its sources.
pub struct Prepared<'e> {
    /// The experiment.
    pub experiment: &'e Experiment,
    /// Its priced part.
    pub run: &'e PricedRun,
    /// The deployment.
    pub profiles: Profiles,
    /// Its prices.
    pub cost: CostModel,
    /// Every input of the prices moved by its stated error.
    pub costs: Vec<CostVariant>,
    /// All policies at all budgets, plain decoding first.
    pub candidates: Vec<Candidate>,
    /// The sources.
    pub sources: Vec<Outline>,
}

/// Rounds from which the mean shape of a candidate's round is taken, at the most.
const SHAPE_ROUNDS: u32 = 1 << 15;

impl<'e> Prepared<'e> {
    /// Looks up what the experiment names.
    ///
    /// # Errors
    /// A [`Problem`](super::Problem) with the key that is wrong; a cost model that cannot be built.
    pub fn new(experiment: &'e Experiment, run: &'e PricedRun) -> anyhow::Result<Self> {
        let profiles = Profiles::load(&run.deployment, &experiment.folder)?;
        let cost = profiles.cost()?;
        let mut sources = Vec::new();
        for (i, spec) in run.acceptance.iter().enumerate() {
            let at = format!("acceptance.{i}");
            sources.push(Acceptance::outline(spec, run, &profiles, &experiment.folder, experiment.seed, &at)?);
        }
        let candidates = candidates(experiment, profiles.drafter.depth());
        let costs = cost_variants(&profiles, &cost);
        Ok(Self { experiment, run, profiles, cost, costs, candidates, sources })
    }

    /// Why some source of acceptance has no nested tables, where one has none: it is replayed round by round.
    #[must_use]
    pub fn untabled(&self) -> Option<String> {
        if let Some(s) = self.sources.iter().find(|s| s.conditional) {
            let why = "is of a conditional drafter, whose trees are not prefixes of one best-first order";
            return Some(format!("acceptance `{}` {why}", s.name));
        }
        let depth = self.profiles.drafter.depth();
        (depth > TABLE_LEVELS).then(|| format!("the drafter has {depth} levels, nested tables hold {TABLE_LEVELS}"))
    }

    /// Why the cost model's part of an interval cannot be computed, where it cannot: a model that states no error of itself.
    #[must_use]
    pub fn transfer_gap(&self) -> Option<Gap> {
        let tier = self.profiles.spec.tier.name();
        let why = format!("tier `{tier}` states no error of its own");
        self.cost.errors().is_empty().then_some(Gap { part: Part::Transfer, whole: true, why })
    }

    /// Generates or reads a source, builds its tables, and hands it to `work`; what it holds is freed afterwards.
    ///
    /// # Errors
    /// A source that cannot be had, or that has no nested tables.
    pub fn with_source<R>(&self, source: usize, work: impl FnOnce(&Ready<'_>) -> R) -> anyhow::Result<R> {
        let e = self.experiment;
        let spec = &self.run.acceptance[source];
        let (drafter, at) = (&self.profiles.drafter, format!("acceptance.{source}"));
        let (acceptance, nested) = tables(spec, self.run, drafter, &e.folder, e.seed, &at, &self.spines())?;
        let tables: Vec<Tables<'_>> =
            nested.iter().map(|n| Tables::new(n).with_overlap(acceptance.overlap.clone())).collect();
        let experts = self.profiles.experts.as_ref().map(|e| &e.0);
        // Shapes are means that a few thousand rounds tell; a cell may have a hundred million.
        let own = self.load(None, 1);
        let load = Load { request_rounds: own.request_rounds.min(SHAPE_ROUNDS), ..own };
        let shapes = shape_variants(&acceptance, &tables, &self.candidates, experts, &self.costs, &load, e.seed);
        let resamples = Resamples::new(acceptance.requests, e.bootstrap, e.seed);
        Ok(work(&Ready { prepared: self, acceptance, tables, shapes, resamples }))
    }

    /// Nodes and spine of the tables that the candidates need.
    fn spines(&self) -> Vec<(u32, u32)> {
        let mut spines: Vec<(u32, u32)> = Vec::new();
        for c in &self.candidates {
            // Plain decoding and chains are on any table that is long enough.
            let Some(spine) = c.spine() else { continue };
            match spines.iter_mut().find(|s| s.1 == spine) {
                Some((nodes, _)) => *nodes = (*nodes).max(c.budget),
                None => spines.push((c.budget, spine)),
            }
        }
        if spines.is_empty() {
            spines.push((1, 0));
        }
        // A chain is looked up in whichever table stands first, and has no more nodes than that.
        let depth = self.profiles.drafter.depth();
        let chains = self.candidates.iter().filter(|c| c.kind == "chain").map(|c| c.budget.min(depth));
        let longest = chains.max().unwrap_or(0);
        for (nodes, _) in &mut spines {
            *nodes = (*nodes).max(longest);
        }
        spines
    }

    /// Checks that `concurrency` requests of a source fit into the memory behind `context` tokens each (`None` = behind their
    /// own prompts), with a candidate's trees.
    ///
    /// # Errors
    /// What is missing, and the largest concurrency that fits.
    pub fn fits(
        &self,
        room: &Room,
        source: usize,
        candidate: &Candidate,
        context: Option<u32>,
        concurrency: u32,
    ) -> Result<(), RefusedCell> {
        let source = &self.sources[source];
        let context = context.unwrap_or(source.prompt);
        let longest = context.saturating_add(source.response);
        room.fit(concurrency, longest, candidate.budget + 1).map_err(|e| RefusedCell {
            acceptance: source.name.clone(),
            context,
            concurrency,
            choice: candidate.choice(),
            reason: e.to_string().lines().map(str::trim).collect::<Vec<_>>().join("; "),
            missing_bytes: Some(e.missing_bytes() as f64),
            largest_cap: Some(e.largest_cap()),
        })
    }

    /// The load of a cell. `context` is where responses are placed; `None` = behind their own prompts.
    #[must_use]
    pub fn load(&self, context: Option<u32>, concurrency: u32) -> Load<'static> {
        Load {
            concurrency,
            context,
            response: None,
            draft_rows: self.profiles.draft_rows(),
            request_rounds: self.run.rounds,
            requests: None,
        }
    }
}
