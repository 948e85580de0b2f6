//! What a round reports.

use crate::error::Fault;
use crate::law::Step;
use serde::{Deserialize, Serialize};

/// Parts of a run whose time is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Prompt tokens through target and drafter.
    Prefill,
    /// The drafter's forward passes, expansions included.
    Draft,
    /// Growing the trees.
    Tree,
    /// The target's forward pass.
    Verify,
    /// Judging the trees.
    Walk,
    /// KV gather and the features for the next draft.
    Commit,
    /// Everything else: admission, logging.
    Host,
}

impl Phase {
    /// All phases, in the order of [`PhaseTimes::ms`].
    pub const ALL: [Self; 7] =
        [Self::Prefill, Self::Draft, Self::Tree, Self::Verify, Self::Walk, Self::Commit, Self::Host];
}

/// Milliseconds per phase, filled by an engine that has a clock; NaN-free, 0 where a phase did not run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseTimes {
    /// In the order of [`Phase::ALL`].
    pub ms: [f64; 7],
}

impl PhaseTimes {
    /// Time of one phase in ms.
    #[must_use]
    pub fn of(&self, phase: Phase) -> f64 {
        self.ms[phase as usize]
    }

    /// Time of a decode round in ms: all phases but prefill.
    #[must_use]
    pub fn round(&self) -> f64 {
        self.ms.iter().sum::<f64>() - self.of(Phase::Prefill)
    }
}

/// What a model says of a round beside its times: modelled, never counted or measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Priced {
    /// Expected distinct routed experts per MoE layer; `None` for a target without experts.
    pub experts: Option<f64>,
    /// Rows that the step ran over, those that pad it to its graph included.
    pub padded_rows: u32,
    /// Mean board power per GPU over the round.
    pub watts: f64,
    /// Energy of the round over all GPUs, charged prefill included.
    pub joules: f64,
    /// Whether every figure lies within the supported domain of its table.
    pub in_domain: bool,
    /// Prefill time in ms that the round's requests waited for, where prefill is charged; it stands under
    /// [`Phase::Prefill`] too.
    pub charged_ms: f64,
}

/// One request's part of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Request id.
    pub request: u64,
    /// Index of the request in the run's list.
    pub index: usize,
    /// The engine's slot.
    pub slot: u32,
    /// Absolute position of the root before the round.
    pub start: u32,
    /// Verify steps of this request before this one.
    pub step: u32,
    /// Nodes that the policy was allowed.
    pub asked: u32,
    /// Rows really verified (root included).
    pub rows: u32,
    /// Depth of the tree.
    pub depth: u32,
    /// Φ: the surrogate's expectation of the accepted length.
    pub expected: f64,
    /// What came of it.
    pub result: Result<Step, Fault>,
}

/// One round of the whole batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoundLog {
    /// Rounds of the run before this one.
    pub round: u64,
    /// Per sequence, in batch order.
    pub entries: Vec<Entry>,
    /// Distinct routed experts touched by the real rows, per MoE layer; empty when the engine has none or cannot count.
    pub experts: Vec<u32>,
    /// Which captured graph ran; `None` = eager.
    pub graph: Option<u32>,
    /// Time by phase; `None` when the engine has no clock.
    pub times: Option<PhaseTimes>,
    /// What a cost model says of the round, where one priced it.
    pub priced: Option<Priced>,
    /// Waves of conditional expansion.
    pub waves: u32,
    /// Results in batch order, pushed by the engine's commit; the round protocol moves them into `entries`.
    pub results: Vec<Result<Step, Fault>>,
}

impl RoundLog {
    /// Rows verified in the round.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.entries.iter().map(|e| e.rows).sum()
    }

    /// Tokens emitted in the round.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.entries.iter().filter_map(|e| e.result.as_ref().ok()).map(|s| s.emitted.len() as u32).sum()
    }

    /// Time in ms that the round took from its requests: its decode phases, and prefill where that is charged. `None`
    /// without a clock.
    #[must_use]
    pub fn ms(&self) -> Option<f64> {
        Some(self.times?.round() + self.priced.map_or(0.0, |p| p.charged_ms))
    }

    /// Mean number of distinct experts over MoE layers, where it was counted.
    #[must_use]
    pub fn experts_counted(&self) -> Option<f64> {
        (!self.experts.is_empty())
            .then(|| self.experts.iter().map(|&e| f64::from(e)).sum::<f64>() / self.experts.len() as f64)
    }

    /// Mean number of distinct experts over MoE layers: counted, or else as modelled ([`RoundLog::experts_counted`] tells
    /// which).
    #[must_use]
    pub fn experts_mean(&self) -> Option<f64> {
        self.experts_counted().or_else(|| self.priced?.experts)
    }
}
