//! One cell: from a policy and a load to its figures.

use super::Tables;
use super::choose::{Chooser, Rule};
use super::sample::Line;
use super::sums::{Pricer, Sums};
use super::tape::{Round, Shape, Tape, round};
use super::types::{Choice, FastPolicy, FastResult, Load};
use crate::batch::worth::{Counter, Worth};
use crate::batch::{BatchError, Pricing};
use crate::cost::StepPrice;
use crate::nested::Roots;
use std::borrow::Cow;

/// Independent repetitions; their spread is the Monte-Carlo error.
const REPLICATES: u32 = 8;

/// Steps that a choice is tried on before the rounds that it leads to are laid out.
const PILOT_STEPS: u32 = 6;

/// Nodes of the trees that lead to the places of the pilot.
const PILOT_NODES: u32 = 8;

/// Request-rounds of the first pilot, at least; a quarter for those behind it.
const PILOT_ROUNDS: u32 = 256;

/// The closed loop of `load.concurrency` requests in its steady state.
///
/// Every step that is priced is one that such a loop would meet: its requests stand at random phases of their responses, as
/// the rounds of the policy itself lead through them (where a request ends, another is at its beginning). The steps are
/// spread evenly over all rounds of all responses, in 8 repetitions of different company; no ramp and no drain is part of
/// it, and no step's time depends on chance beyond who meets whom. Tokens are those of all rounds of all responses, not of
/// the visited ones alone: τ of a fixed policy has no Monte-Carlo error. A pure function of its arguments: any thread, any
/// order.
///
/// # Errors
/// [`BatchError::Value`] for what the tables cannot answer: a budget beyond them, another spine, no requests, a load of
/// nothing.
pub fn simulate(
    tables: &Tables<'_>,
    cost: &dyn Pricing,
    policy: &FastPolicy,
    load: &Load<'_>,
    seed: u64,
) -> Result<FastResult, BatchError> {
    let most = check(tables, policy, load)?;
    let requests = served(tables, load)?;
    let pricer = Pricer { tables, cost, load, worth: Worth::new(cost.experts(), most) };
    let run = Run { pricer: &pricer, requests: &requests, seed };
    match policy {
        FastPolicy::Choose(choice) => run.chosen(choice),
        fixed => run.fixed(&tables.tape(shape(fixed), load.response)),
    }
}

/// One step whose requests stand at the given places, each (index of the request, index of its root): the tokens that each
/// emits, and the price. Everything that [`simulate`] adds up are such steps.
///
/// # Errors
/// As [`simulate`]; a place that is none.
pub fn step(
    tables: &Tables<'_>,
    cost: &dyn Pricing,
    policy: &FastPolicy,
    load: &Load<'_>,
    places: &[(u32, u32)],
) -> Result<(Vec<u16>, StepPrice), BatchError> {
    let most = check(tables, policy, load)?;
    let nested = tables.nested();
    let tokens = |request: u32| load.response.unwrap_or(u32::MAX).min(nested.emitted(request as usize));
    let known = |(request, index): &(u32, u32)| (*request as usize) < nested.requests() && index + 1 < tokens(*request);
    if let Some((request, index)) = places.iter().find(|p| !known(p)) {
        let value = format!("request {request}, root {index}");
        return Err(BatchError::Value { key: "places", value, rule: "the trace has no such root" });
    }
    let pricer = Pricer { tables, cost, load, worth: Worth::new(cost.experts(), most) };
    let mut counter = Counter::default();
    let place = |&(request, index): &(u32, u32)| {
        let at = request as usize;
        round(tables, at, index, &nested.root(at, index), shape(policy), tokens(request), Some(&mut counter))
    };
    let mut rounds: Vec<Round> = places.iter().map(place).collect();
    if let FastPolicy::Choose(choice) = policy {
        Chooser::new(choice, &pricer).step(&mut rounds).ok_or_else(unusable)?;
    }
    let price = pricer.price(&rounds);
    seen_positive(&price)?;
    Ok((rounds.iter().map(|r| r.emitted).collect(), price))
}

/// The tree of a policy at every root; one that chooses begins with none.
fn shape(policy: &FastPolicy) -> Shape {
    match policy {
        FastPolicy::Plain => Shape::Plain,
        FastPolicy::Chain { budget } => Shape::Chain(*budget),
        FastPolicy::BestFirst { budget, .. } => Shape::Best(*budget),
        FastPolicy::Choose(_) => Shape::Best(0),
    }
}

struct Run<'c> {
    pricer: &'c Pricer<'c>,
    requests: &'c [u32],
    seed: u64,
}

impl Run<'_> {
    fn steps(&self, rounds: u32) -> u32 {
        rounds.div_ceil(self.pricer.load.concurrency).max(1)
    }

    fn line(&self, tape: &Tape, replicate: u32, steps: u32) -> Result<Line, BatchError> {
        let line = Line::new(tape, self.requests, self.seed, replicate, self.pricer.load.concurrency, steps);
        let value = self.requests.len().to_string();
        let rule = "none of the served responses has a verify step: they end with their first token";
        if line.is_empty() { Err(BatchError::Value { key: "requests", value, rule }) } else { Ok(line) }
    }

    /// Steps over the rounds of a fixed policy's tape.
    fn fixed(&self, tape: &Tape) -> Result<FastResult, BatchError> {
        let mut sums = Sums::new(self.pricer.tables.nested().requests());
        for replicate in 0..REPLICATES {
            self.replicate(replicate, tape, None, &mut sums)?;
        }
        Ok(sums.finish(self.pricer.cost.ranks()))
    }

    /// One repetition, with the trees of a chooser where there is one.
    fn replicate(
        &self,
        replicate: u32,
        tape: &Tape,
        mut chooser: Option<&mut Chooser<'_>>,
        sums: &mut Sums,
    ) -> Result<(), BatchError> {
        let load = self.pricer.load;
        let steps = self.steps(load.request_rounds.div_ceil(REPLICATES));
        let line = self.line(tape, replicate, steps)?;
        sums.replicate(tape, self.requests, u64::from(steps) * u64::from(load.concurrency));
        let (mut rounds, mut walked) = (Vec::new(), Vec::new());
        for step in 0..steps {
            rounds.clear();
            rounds.extend(line.step(step).map(|at| tape.rounds[at as usize]));
            walked.clear();
            walked.extend(rounds.iter().map(|r: &Round| r.emitted));
            if let Some(chooser) = &mut chooser {
                chooser.step(&mut rounds).ok_or_else(unusable)?;
            }
            let price = self.pricer.price(&rounds);
            seen_positive(&price)?;
            let tokens = sums.add(&rounds, &walked, &price);
            if let Some(chooser) = &mut chooser {
                chooser.observe(tokens, price.ms());
            }
        }
        Ok(())
    }

    /// Choices depend on the company, and where requests stand depends on the choices: a pilot finds the rule that single
    /// roots come to follow, the rule lays out the rounds, and the steps over them choose anew in their real company. Every
    /// repetition has a pilot of its own, so that their spread shows what depends on it.
    fn chosen(&self, choice: &Choice) -> Result<FastResult, BatchError> {
        let (tables, response) = (self.pricer.tables, self.pricer.load.response);
        let mut chooser = Chooser::new(choice, self.pricer);
        let first = tables.tape(Shape::Best(choice.cap.min(PILOT_NODES)), response);
        let mut sums = Sums::new(tables.nested().requests());
        for replicate in 0..REPLICATES {
            // The first one also finds the throughput.
            let steps = match replicate {
                0 => self.steps(PILOT_ROUNDS).max(PILOT_STEPS),
                _ => self.steps(PILOT_ROUNDS / 4),
            };
            let rule = self.pilot(&mut chooser, &first, replicate, steps)?;
            let nodes = |roots: &Roots<'_>| Shape::Best(chooser.alone(&rule, roots).unwrap_or(0));
            let tape = Tape::new(tables, response, false, nodes);
            self.replicate(replicate, &tape, Some(&mut chooser), &mut sums)?;
        }
        Ok(sums.finish(self.pricer.cost.ranks()))
    }

    fn pilot(&self, chooser: &mut Chooser<'_>, tape: &Tape, replicate: u32, steps: u32) -> Result<Rule, BatchError> {
        // Behind the replicates of the figures: other phases.
        let line = self.line(tape, REPLICATES + replicate, steps)?;
        let (mut last, mut levels) = (None, Vec::new());
        for step in 0..steps {
            let mut rounds: Vec<Round> = line.step(step).map(|at| tape.rounds[at as usize]).collect();
            chooser.step(&mut rounds).ok_or_else(unusable)?;
            let rule = chooser.rule(&rounds);
            let price = self.pricer.price(&rounds);
            seen_positive(&price)?;
            chooser.observe(rounds.iter().map(|r| f64::from(r.emitted)).sum(), price.ms());
            if let Rule::Threshold(least) = rule {
                levels.push(least);
            }
            last = Some(rule);
        }
        // The typical threshold; the last curve holds the throughput that came to be.
        levels.sort_unstable_by(f32::total_cmp);
        let middle = levels.get(levels.len() / 2).map(|&l| Rule::Threshold(l));
        middle.or(last).ok_or_else(unusable)
    }
}

fn unusable() -> BatchError {
    BatchError::Value {
        key: "cost",
        value: "a step time that is no positive number".into(),
        rule: "every tree size has to have a price: see the model's breakdown",
    }
}

fn seen_positive(price: &StepPrice) -> Result<(), BatchError> {
    let ms = price.ms();
    if ms > 0.0 && ms.is_finite() { Ok(()) } else { Err(unusable()) }
}

/// Checks policy and load against the tables; answers the most nodes of a tree.
fn check(tables: &Tables<'_>, policy: &FastPolicy, load: &Load<'_>) -> Result<u32, BatchError> {
    let nested = tables.nested();
    let refuse = |key, value: String, rule| Err(BatchError::Value { key, value, rule });
    for (key, n) in [("concurrency", load.concurrency), ("request_rounds", load.request_rounds)] {
        if n == 0 {
            return refuse(key, "0".into(), "must be 1 or more");
        }
    }
    if load.draft_rows == 0 && *policy != FastPolicy::Plain {
        return refuse("draft_rows", "0".into(), "a draft pass has at least one row a request");
    }
    if load.response.is_some_and(|r| r < 2) {
        return refuse("response", "below 2".into(), "the first token comes from the prefill: give 2 or more");
    }
    let (most, spine) = match policy {
        FastPolicy::Plain => (0, None),
        FastPolicy::Chain { budget } => (*budget, None),
        FastPolicy::BestFirst { budget, spine } => (*budget, Some(*spine)),
        FastPolicy::Choose(choice) => {
            if choice.memory.is_nan() || choice.memory <= 1.0 {
                return refuse("memory", choice.memory.to_string(), "must be above 1 step");
            }
            (choice.cap, Some(0))
        }
    };
    if let Some(spine) = spine {
        if most > nested.max_nodes() {
            return refuse("budget", most.to_string(), "exceeds the nodes that the nested tables were built for");
        }
        // Every depth is a spine to a drafter that is no deeper.
        if spine.min(nested.depth()) != nested.spine().min(nested.depth()) {
            return refuse("spine", spine.to_string(), "the nested tables were built with another spine");
        }
    }
    Ok(most)
}

/// The requests to serve.
fn served<'r>(tables: &Tables<'_>, load: &Load<'r>) -> Result<Cow<'r, [u32]>, BatchError> {
    let all = tables.nested().requests() as u32;
    let Some(requests) = load.requests else { return Ok((0..all).collect()) };
    let refuse = |value: String, rule| Err(BatchError::Value { key: "requests", value, rule });
    match requests.iter().find(|r| **r >= all) {
        Some(bad) => refuse(bad.to_string(), "the trace has no request of this index"),
        None if requests.is_empty() => refuse("none".into(), "at least one request has to be served"),
        None => Ok(Cow::Borrowed(requests)),
    }
}
