//! Parameters of `adaptive`.

use super::Adaptive;
use crate::best_first::default_beam;
use crate::cost_aware::Objective;
use crate::knobs::{self, Knobs};
use crate::registry::{BuildError, PolicyConfig};
use crate::shape::MAX_NODES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `adaptive`. What a step costs is the experiment's `cost`, not a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveConfig {
    /// Budgets (nodes) to choose from, ascending; 0 = no draft. Give the ends of the graph buckets where steps are
    /// bucketed. Those above the run's budget are left out. Unless given: every budget from 0 to the run's.
    #[serde(default)]
    pub budgets: Option<Vec<u32>>,
    /// `ratio`: the budget of the highest long-run rate, tokens per ms. `renewal`: within rounds that draft, the budget of
    /// the highest Σ(1 + Φ) − g·C for this round's trees, g = the running throughput; "off" is still decided by the ratio.
    #[serde(default = "default_objective")]
    pub objective: Objective,
    /// Goodput: the most ms that a step may take for its tokens to count; no limit unless given. Where no budget respects
    /// it, the fastest one is taken.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// Relative gain of the rate above which the budget moves.
    #[serde(default = "knobs::margin")]
    pub margin: f64,
    /// Share of rounds that grow the largest tree to learn; at least 0.01.
    #[serde(default = "knobs::probe")]
    pub probe: f64,
    /// Memory of the posteriors and averages, in observations: each keeps 1 − 1/memory of the weight before it.
    #[serde(default = "knobs::memory")]
    pub memory: f64,
    /// Weight of the drafter's own claim in the posteriors, in pseudo-hits.
    #[serde(default = "knobs::prior")]
    pub prior: f64,
    /// Ranks with a posterior of their own; the last one stands for all ranks behind it.
    #[serde(default = "knobs::ranks")]
    pub ranks: u32,
    /// On a conditional drafter: nodes expanded per request in one forward. It changes the number of forwards and of
    /// wasted expansions, never the tree.
    #[serde(default = "default_beam")]
    pub beam: u32,
}

fn default_objective() -> Objective {
    Objective::Ratio
}

impl AdaptiveConfig {
    /// Rounds from one probe to the next.
    pub(super) fn probe_period(&self) -> u64 {
        (1.0 / self.probe).floor().max(1.0) as u64
    }

    fn check(&self) -> Result<(), BuildError> {
        let Self { latency_ms, margin, probe, memory, prior, ranks, beam, .. } = *self;
        Knobs { latency_ms, margin, probe, memory, prior, ranks, beam }.check(Self::KIND)
    }
}

impl PolicyConfig for AdaptiveConfig {
    const KIND: &'static str = "adaptive";
    const ABOUT: &'static str =
        "best-first by calibrated acceptance, its budget chosen by measured acceptance and step cost";

    fn example() -> Self {
        Self {
            budgets: None,
            objective: default_objective(),
            latency_ms: None,
            margin: knobs::margin(),
            probe: knobs::probe(),
            memory: knobs::memory(),
            prior: knobs::prior(),
            ranks: knobs::ranks(),
            beam: default_beam(),
        }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        self.check()?;
        let ends = match &self.budgets {
            None if limits.budget > MAX_NODES => {
                let why = format!("give a list: every budget up to {} is too many to compare", limits.budget);
                return Err(BuildError::value(Self::KIND, "budgets", why));
            }
            None => (0..=limits.budget).collect(),
            Some(budgets) => {
                if budgets.is_empty() || budgets.windows(2).any(|w| w[0] >= w[1]) {
                    return Err(BuildError::value(Self::KIND, "budgets", "give at least one budget, ascending"));
                }
                let mut ends: Vec<u32> = budgets.iter().copied().filter(|&b| b <= limits.budget).collect();
                if ends.is_empty() && limits.budget == 0 {
                    ends.push(0);
                }
                if ends.is_empty() {
                    let why = format!("all of them exceed the run's budget of {}", limits.budget);
                    return Err(BuildError::value(Self::KIND, "budgets", why));
                }
                ends
            }
        };
        Ok(Box::new(Adaptive::new(self, ends, limits)))
    }
}
