//! Sums over rounds, from which every acceptance figure comes.

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
    /// Time of the rounds that it took part in, in ms, charged prefill included; 0 without a clock.
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
    pub(super) fn add(&mut self, value: f64) {
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

/// Sums over the rounds that a cost model priced ([`RoundLog::priced`]).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PricedSum {
    /// Priced rounds.
    pub rounds: u64,
    /// Those with a figure outside the domain of its table.
    pub outside: u64,
    /// Those whose distinct experts are modelled, since none were counted.
    pub experts_modelled: u64,
    /// Σ rows with padding.
    pub padded_rows: u64,
    /// Σ energy over all GPUs.
    pub joules: f64,
    /// Σ prefill that was charged, in ms.
    pub charged_ms: f64,
}

impl PricedSum {
    fn add(&mut self, log: &RoundLog) {
        let Some(priced) = log.priced else { return };
        self.rounds += 1;
        self.outside += u64::from(!priced.in_domain);
        self.experts_modelled += u64::from(log.experts_counted().is_none() && priced.experts.is_some());
        self.padded_rows += u64::from(priced.padded_rows);
        self.joules += priced.joules;
        self.charged_ms += priced.charged_ms;
    }
}

/// Adds up the rounds of one cell. Feed it every measured round once; leave warm-up rounds out and say so.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    pub(super) requests: Vec<RequestTally>,
    pub(super) depths: Vec<DepthCount>,
    pub(super) hits: Vec<Vec<u64>>,
    pub(super) misses: Vec<u64>,
    pub(super) emitted: Vec<u64>,
    pub(super) rows: BTreeMap<u32, u64>,
    pub(super) experts: BTreeMap<u32, Point>,
    pub(super) ms: BTreeMap<u32, Point>,
    pub(super) phi: Phi,
    pub(super) phi_by_floor: BTreeMap<u32, Phi>,
    pub(super) times: PhaseTimes,
    pub(super) priced: PricedSum,
    pub(super) rounds: u64,
    pub(super) timed_rounds: u64,
    pub(super) waves: u64,
    pub(super) proposed: u64,
    pub(super) skipped: u64,
    pub(super) faults: u64,
    pub(super) barren: u64,
    pub(super) barren_most: u64,
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
            // Without drafts nothing is known of the trees.
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
        self.priced.add(log);
        let round_ms = log.ms();
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
