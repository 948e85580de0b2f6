//! Sums over rounds, from which every acceptance figure comes.

use super::compare::Tpot;
use crate::law::Step;
use crate::log::{Entry, PhaseTimes, RoundLog};
use crate::round::RoundView;
use std::collections::BTreeMap;

/// Sums of one request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestTally {
    /// Verify steps with a verdict.
    pub steps: u64,
    /// Tokens that they emitted, bonus included.
    pub tokens: u64,
    /// Accepted drafts among them.
    pub accepted: u64,
    /// Rows verified, roots included.
    pub rows: u64,
    /// Time of the rounds that it took part in, in ms; 0 without a clock.
    pub ms: f64,
}

impl RequestTally {
    /// Tokens per step; `None` without a step.
    #[must_use]
    pub fn tau(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.tokens as f64 / self.steps as f64)
    }
}

/// Acceptance at one depth, given that the depth before it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DepthCount {
    /// Steps whose walk stood at depth − 1 with the response not ended, and had candidates before it.
    pub reached: u64,
    /// Those that accepted one.
    pub accepted: u64,
}

impl DepthCount {
    /// accepted / reached; `None` when never reached.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.reached > 0).then(|| self.accepted as f64 / self.reached as f64)
    }
}

/// A mean in the making.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Sum of the values.
    pub sum: f64,
    /// Number of values.
    pub count: u64,
}

impl Point {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Mean; `None` without a value.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The surrogate's expectation against what was accepted, over steps that drafted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Phi {
    /// Σ Φ.
    pub expected: f64,
    /// Σ accepted.
    pub accepted: u64,
    /// Steps.
    pub steps: u64,
}

/// Adds up the rounds of one cell. Feed it every measured round once; leave warm-up rounds out and say so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    requests: Vec<RequestTally>,
    depths: Vec<DepthCount>,
    hits: Vec<Vec<u64>>,
    misses: Vec<u64>,
    emitted: Vec<u64>,
    rows: BTreeMap<u32, u64>,
    experts: BTreeMap<u32, Point>,
    ms: BTreeMap<u32, Point>,
    phi: Phi,
    phi_by_floor: BTreeMap<u32, Phi>,
    times: PhaseTimes,
    rounds: u64,
    timed_rounds: u64,
    waves: u64,
    proposed: u64,
    skipped: u64,
    faults: u64,
    barren: u64,
    barren_most: u64,
}

impl Tally {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one round. Without the trees, a depth counts as reached when the step's tree had that level at all; with them
    /// ([`Tally::add_view`]) when the very node that the walk stood at had children.
    pub fn add(&mut self, log: &RoundLog) {
        self.add_with(log, |_, entry, step| entry.depth > step.accepted());
    }

    /// Adds one round with its trees: as [`Tally::add`], the reached depths exact.
    pub fn add_view(&mut self, view: &RoundView<'_>) {
        if view.drafts.is_none() {
            // A fused round leaves its trees on the device.
            return self.add(view.log);
        }
        self.add_with(view.log, |seq, _, step| {
            let last = step.path.last().copied().unwrap_or(0);
            view.forest.tree(seq).children(last).next().is_some()
        });
    }

    /// `offered(sequence, entry, step)`: whether the node that the walk ended at had children.
    fn add_with(&mut self, log: &RoundLog, offered: impl Fn(usize, &Entry, &Step) -> bool) {
        self.rounds += 1;
        self.waves += u64::from(log.waves);
        let round_ms = log.times.map(|t| t.round());
        if let Some(times) = log.times {
            self.timed_rounds += 1;
            for (sum, ms) in self.times.ms.iter_mut().zip(times.ms) {
                *sum += ms;
            }
        }
        let rows = log.rows();
        if let Some(experts) = log.experts_mean() {
            self.experts.entry(rows).or_default().add(experts);
        }
        if let Some(ms) = round_ms {
            self.ms.entry(rows).or_default().add(ms);
        }
        for (seq, entry) in log.entries.iter().enumerate() {
            match &entry.result {
                Ok(step) => self.add_step(entry, step, round_ms, offered(seq, entry, step)),
                Err(_) => self.faults += 1,
            }
        }
    }

    fn add_step(&mut self, entry: &Entry, step: &Step, round_ms: Option<f64>, offered: bool) {
        if self.requests.len() <= entry.index {
            self.requests.resize(entry.index + 1, RequestTally::default());
        }
        let (tokens, accepted) = (step.emitted.len(), step.accepted());
        let request = &mut self.requests[entry.index];
        request.steps += 1;
        request.tokens += tokens as u64;
        request.accepted += u64::from(accepted);
        request.rows += u64::from(entry.rows);
        request.ms += round_ms.unwrap_or(0.0);
        bump(&mut self.emitted, tokens);
        *self.rows.entry(entry.rows).or_default() += 1;
        for (depth, rank) in step.truth_ranks.iter().enumerate() {
            match rank {
                Some(rank) => {
                    grow(&mut self.hits, depth);
                    bump(&mut self.hits[depth], *rank as usize);
                }
                None => bump(&mut self.misses, depth),
            }
        }
        // A step that drafted nothing is plain decoding: it says nothing about the drafter.
        if entry.rows <= 1 {
            self.skipped += 1;
            return;
        }
        self.proposed += u64::from(entry.rows - 1);
        for phi in [&mut self.phi, self.phi_by_floor.entry(entry.expected as u32).or_default()] {
            phi.expected += entry.expected;
            phi.accepted += u64::from(accepted);
            phi.steps += 1;
        }
        // A bonus was judged unless the response ended on an accepted token; only then is the next depth a miss.
        let missed = offered && tokens > accepted as usize;
        let reached = accepted as usize + usize::from(missed);
        grow(&mut self.depths, reached.max(1) - 1);
        for (depth, count) in self.depths[..reached].iter_mut().enumerate() {
            count.reached += 1;
            count.accepted += u64::from(depth < accepted as usize);
        }
        if accepted == 0 && step.end.is_none() {
            self.barren += 1;
            self.barren_most = self.barren_most.max(self.barren);
        } else if accepted > 0 {
            self.barren = 0;
        }
    }

    /// Sums per request, by its index in the run's list. Requests that never stepped hold zeros, or lie beyond the end.
    #[must_use]
    pub fn requests(&self) -> &[RequestTally] {
        &self.requests
    }

    /// (tokens, steps) per request: what [`super::Bootstrap::ratio`] needs for τ.
    #[must_use]
    pub fn tau_parts(&self) -> Vec<(f64, f64)> {
        self.requests.iter().map(|r| (r.tokens as f64, r.steps as f64)).collect()
    }

    /// (tokens, seconds) per request: what [`super::Bootstrap::ratio`] needs for tokens per second and user.
    #[must_use]
    pub fn rate_parts(&self) -> Vec<(f64, f64)> {
        self.requests.iter().map(|r| (r.tokens as f64, r.ms / 1e3)).collect()
    }

    /// (tokens, steps) of the same requests in two cells, for [`super::Bootstrap::paired_difference`].
    #[must_use]
    pub fn paired_tau(first: &Self, second: &Self) -> Vec<[(f64, f64); 2]> {
        first.tau_parts().into_iter().zip(second.tau_parts()).map(|(a, b)| [a, b]).collect()
    }

    /// Verify steps with a verdict.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.requests.iter().map(|r| r.steps).sum()
    }

    /// Tokens that verify steps emitted, bonus included.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.requests.iter().map(|r| r.tokens).sum()
    }

    /// Accepted drafts.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.requests.iter().map(|r| r.accepted).sum()
    }

    /// τ: tokens / verify steps over all responses, bonus included. `None` without a step.
    #[must_use]
    pub fn tau(&self) -> Option<f64> {
        (self.steps() > 0).then(|| self.tokens() as f64 / self.steps() as f64)
    }

    /// Unweighted mean of the per-response means (the form of DDTree's paper).
    #[must_use]
    pub fn tau_unweighted(&self) -> Option<f64> {
        let mut mean = Point::default();
        self.requests.iter().filter_map(RequestTally::tau).for_each(|tau| mean.add(tau));
        mean.mean()
    }

    /// Accepted / really verified drafts. It falls with the budget by arithmetic alone, so never rank by it; skipped
    /// drafting does not count as 0 %.
    #[must_use]
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.proposed > 0).then(|| self.accepted() as f64 / self.proposed as f64)
    }

    /// Conditional acceptance by depth; entry 0 is depth 1.
    #[must_use]
    pub fn depths(&self) -> &[DepthCount] {
        &self.depths
    }

    /// How often the true token had rank `r` in the drafter's row at depth `d`: `[d − 1][r]`, along accepted paths.
    #[must_use]
    pub fn hits(&self) -> &[Vec<u64>] {
        &self.hits
    }

    /// How often the row at depth `d` did not list the true token; entry `d − 1`, may be shorter than [`Tally::hits`].
    #[must_use]
    pub fn misses(&self) -> &[u64] {
        &self.misses
    }

    /// Steps by number of emitted tokens; entry 0 is none.
    #[must_use]
    pub fn emitted(&self) -> &[u64] {
        &self.emitted
    }

    /// Steps of a request by rows really verified.
    #[must_use]
    pub fn rows(&self) -> &BTreeMap<u32, u64> {
        &self.rows
    }

    /// Mean rows really verified per step and request, root included.
    #[must_use]
    pub fn rows_mean(&self) -> Option<f64> {
        let rows: u64 = self.requests.iter().map(|r| r.rows).sum();
        (self.steps() > 0).then(|| rows as f64 / self.steps() as f64)
    }

    /// Distinct experts per MoE layer (mean of a round) by rows of the whole round.
    #[must_use]
    pub fn experts(&self) -> &BTreeMap<u32, Point> {
        &self.experts
    }

    /// Mean distinct experts per MoE layer and round, where they were counted.
    #[must_use]
    pub fn experts_mean(&self) -> Option<f64> {
        whole(&self.experts).mean()
    }

    /// Round time in ms (prefill apart) by rows of the whole round.
    #[must_use]
    pub fn ms(&self) -> &BTreeMap<u32, Point> {
        &self.ms
    }

    /// Mean round time in ms (prefill apart), where there is a clock.
    #[must_use]
    pub fn ms_mean(&self) -> Option<f64> {
        whole(&self.ms).mean()
    }

    /// Σ of the phases' times over the rounds that had a clock, and their number.
    #[must_use]
    pub fn times(&self) -> (PhaseTimes, u64) {
        (self.times, self.timed_rounds)
    }

    /// Time per output token of one user at the given concurrency cap.
    #[must_use]
    pub fn tpot(&self, concurrency: u32) -> Tpot {
        Tpot { user_ms: self.requests.iter().map(|r| r.ms).sum(), tokens: self.tokens(), concurrency }
    }

    /// Φ against accepted over all steps that drafted.
    #[must_use]
    pub fn phi(&self) -> Phi {
        self.phi
    }

    /// The same by ⌊Φ⌋, so that a surrogate that is right on average only is seen.
    #[must_use]
    pub fn phi_by_floor(&self) -> &BTreeMap<u32, Phi> {
        &self.phi_by_floor
    }

    /// Rounds of the batch.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Waves of conditional expansion.
    #[must_use]
    pub fn waves(&self) -> u64 {
        self.waves
    }

    /// Steps that drafted nothing.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Steps that ended in a fault; they count nowhere else.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// The longest run of consecutive drafted steps that accepted nothing, over all requests in order of their steps.
    #[must_use]
    pub fn longest_barren(&self) -> u64 {
        self.barren_most
    }
}

fn whole(points: &BTreeMap<u32, Point>) -> Point {
    points.values().fold(Point::default(), |a, p| Point { sum: a.sum + p.sum, count: a.count + p.count })
}

fn grow<T: Default + Clone>(list: &mut Vec<T>, index: usize) {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
}

fn bump(list: &mut Vec<u64>, index: usize) {
    grow(list, index);
    list[index] += 1;
}
