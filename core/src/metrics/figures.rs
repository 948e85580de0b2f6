//! The figures that a tally gives.

use super::compare::Tpot;
use super::tally::{DepthCount, Phi, Point, PricedSum, RequestTally, Tally};
use crate::log::PhaseTimes;
use std::collections::BTreeMap;

impl Tally {
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

    /// Distinct experts per MoE layer (mean of a round) by rows of the whole round: counted, or as a cost model has them
    /// ([`PricedSum::experts_modelled`] of [`Tally::priced`] tells how many rounds are).
    #[must_use]
    pub fn experts(&self) -> &BTreeMap<u32, Point> {
        &self.experts
    }

    /// Mean distinct experts per MoE layer and round, where they were counted or modelled.
    #[must_use]
    pub fn experts_mean(&self) -> Option<f64> {
        whole(&self.experts).mean()
    }

    /// Sums over the rounds that a cost model priced.
    #[must_use]
    pub fn priced(&self) -> PricedSum {
        self.priced
    }

    /// Round time in ms (prefill apart unless charged) by rows of the whole round.
    #[must_use]
    pub fn ms(&self) -> &BTreeMap<u32, Point> {
        &self.ms
    }

    /// Mean round time in ms (prefill apart unless charged), where there is a clock.
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
