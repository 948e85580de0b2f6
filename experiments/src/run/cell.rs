//! One cell, from a fresh engine to its figures.

use super::energy::Reading;
use super::figures::{Measured, detail};
use super::gauge::Gauge;
use super::machine::ThreadTime;
use super::observations::Observations;
use super::plan::CellSpec;
use super::rounds::RoundRow;
use super::source::{Capped, Source};
use super::watched::Watched;
use crate::config::Experiment;
use crate::results::CellDetail;
use anyhow::Context as _;
use std::path::Path;
use treeline_core::{Engine, Request, Response, RunSetup, StepCost, run};
use treeline_policies::Registry;

/// Tokens of the warm-up response: its verify steps touch every buffer and weight once.
const WARM_TOKENS: u32 = 4;

/// What a cell leaves.
pub(super) struct Finished {
    /// Figures.
    pub detail: CellDetail,
    /// Rows of `rounds.parquet`.
    pub rows: Vec<RoundRow>,
    /// Times that the policy saw, where it reads them.
    pub observations: Option<Observations>,
}

/// What all cells of a run share.
pub(super) struct Bench<'r, S> {
    /// Engines and requests.
    pub source: &'r S,
    /// The experiment.
    pub experiment: &'r Experiment,
    /// Policies.
    pub registry: &'r Registry,
    /// Cells that run side by side, at most.
    pub side_by_side: usize,
    /// Where logged observations are played back from.
    pub playback: Option<&'r Path>,
}

/// What a reader must know of requests that failed beside others that finished.
fn failures(responses: &[Response]) -> Option<String> {
    let failed: Vec<_> = responses.iter().filter_map(|r| Some((r.request, r.end.as_ref().err()?))).collect();
    let (request, fault) = failed.first()?;
    let (n, all) = (failed.len(), responses.len());
    Some(format!("{n} of {all} requests failed and are in no figure; the first is request {request}: {fault}"))
}

impl<S: Source> Bench<'_, S> {
    /// Runs a cell; `progress` hears of every round's tokens.
    ///
    /// # Errors
    /// What ends the whole cell; a cell of which no request finished.
    pub fn run(&self, spec: &CellSpec, progress: &dyn Fn(u32)) -> anyhow::Result<Finished> {
        let facts = self.source.facts();
        let mut engine = Capped {
            inner: self.source.engine(spec.concurrency, spec.budget)?,
            width: facts.width,
            depth: facts.depth,
        };
        let info = engine.info();
        let limits = spec.limits(info.width, info.depth);
        let requests = self.source.requests(spec.temperature);
        if facts.measured() {
            self.warm_up(spec, &mut engine, &requests)?;
        }
        let mut policy = spec.policy(self.registry, &limits)?;
        let mut observations = self.observations(spec, policy.needs(&limits).time)?;
        let mut gauge = Gauge::new(self.source, &spec.key, self.experiment.record, !info.conditional);
        let (begin, drawn) = (ThreadTime::now(), Reading::now(self.source.joules()));
        let responses = {
            let width = if info.conditional { 0 } else { info.width };
            let mut watched = Watched::new(&mut *policy, width, observations.as_mut());
            let law = self.source.law(spec.temperature);
            let setup = RunSetup { budget: spec.budget, concurrency: spec.concurrency, law: &law, cost: self.cost() };
            // What the clock holds of the warm-up is nobody's.
            let _ = engine.take_times();
            run(&mut engine, &mut watched, &requests, &setup, &mut |view| {
                gauge.add(view);
                progress(view.log.tokens());
            })?
        };
        let end = ThreadTime::now();
        let energy = drawn.zip(Reading::now(self.source.joules())).and_then(|(begin, end)| begin.until(end));
        if let Some(o) = &observations {
            anyhow::ensure!(!o.exhausted, "the run has more rounds than observations were logged: another experiment?");
        }
        let prompts: Vec<u32> = requests.iter().map(|r| r.prompt.len() as u32).collect();
        gauge.finish(&prompts, &responses);
        if !responses.iter().any(|r| r.end.is_ok()) {
            let fault = responses.iter().find_map(|r| r.end.as_ref().err());
            let why = fault.map_or_else(|| "there is none".to_owned(), ToString::to_string);
            anyhow::bail!("no request finished; the first one: {why}");
        }
        let rows = std::mem::take(&mut gauge.rows);
        let wall = self.source.wall(&engine.inner);
        let user_ms = self.source.user_ms(&engine.inner);
        let side_by_side = self.side_by_side;
        let measured = Measured { gauge: &gauge, responses: &responses, side_by_side, energy, wall, user_ms };
        let mut detail = detail(self.source, self.experiment, spec, &measured);
        detail.warnings.extend(failures(&responses));
        detail.cell.notes.extend(self.source.remarks(&engine.inner));
        if facts.measured()
            && let (Some(begin), Some(end)) = (begin, end)
        {
            detail.warnings.extend(begin.doubt(end));
        }
        Ok(Finished { detail, rows, observations })
    }

    fn cost(&self) -> Option<&dyn StepCost> {
        self.source.cost().or_else(|| self.experiment.cost.as_ref().map(|c| &c.curve as &dyn StepCost))
    }

    fn observations(&self, spec: &CellSpec, needed: bool) -> anyhow::Result<Option<Observations>> {
        match (needed, self.playback) {
            (false, _) => Ok(None),
            (true, None) => Ok(Some(Observations::default())),
            (true, Some(dir)) => Observations::load(dir, &spec.key).map(Some),
        }
    }

    /// A few steps with a policy of the same kind that is thrown away.
    fn warm_up(&self, spec: &CellSpec, engine: &mut Capped<S::Engine>, requests: &[Request]) -> anyhow::Result<()> {
        let Some(first) = requests.first() else { return Ok(()) };
        let info = engine.info();
        let warm = Request { id: self.source.warm_id(), max_new: WARM_TOKENS.min(first.max_new), ..first.clone() };
        let mut policy = spec.policy(self.registry, &spec.limits(info.width, info.depth))?;
        let law = self.source.law(spec.temperature);
        let setup = RunSetup { budget: spec.budget, concurrency: spec.concurrency, law: &law, cost: self.cost() };
        run(engine, &mut *policy, &[warm], &setup, &mut |_| {}).context("warm-up")?;
        Ok(())
    }
}
