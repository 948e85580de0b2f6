//! Parameters of `cost-aware` and `batch-wide`.

use super::policy::{CostAware, Scope};
use super::{Objective, Reliability};
use crate::best_first::default_beam;
use crate::knobs::{self, Knobs};
use crate::registry::{BuildError, PolicyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `cost-aware`, and of `batch-wide`. What a step costs is the experiment's, not a parameter; the budget is
/// the most nodes that a request may get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostAwareConfig {
    /// `renewal`: the highest Σ(1 + Φ) − g·C with g = the running throughput, the long-run optimum. `ratio`: the highest
    /// (1 + Φ)/C of this step (CaDDTree's and BASTION's form). Both compare all bucket ends.
    #[serde(default = "default_objective")]
    pub objective: Objective,
    /// Goodput: the most ms that a step may take for its tokens to count; no limit unless given. Where no end respects it,
    /// the fastest one is taken.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// What the drafter's claims are taken for. `claimed`: as they are. `learned`: corrected by outcomes, per depth and
    /// rank, as in `adaptive`. `given`: corrected by `reliability`.
    #[serde(default = "default_calibration")]
    pub calibration: CalibrationKind,
    /// With `calibration = "given"`: points [ln q, probability], ascending in both: how often paths of that claimed
    /// log-probability were accepted. Must not be given otherwise.
    #[serde(default)]
    pub reliability: Option<Vec<[f64; 2]>>,
    /// Whether drafting stops while plain decoding has the higher long-run rate.
    #[serde(default = "default_off")]
    pub off: bool,
    /// Relative gain above which drafting stops or begins again.
    #[serde(default = "knobs::margin")]
    pub margin: f64,
    /// Share of rounds that draft while drafting is off; at least 0.01.
    #[serde(default = "knobs::probe")]
    pub probe: f64,
    /// Memory of running averages and posteriors, in rounds or observations: each keeps 1 − 1/memory of the weight before
    /// it.
    #[serde(default = "knobs::memory")]
    pub memory: f64,
    /// With `calibration = "learned"`: weight of the drafter's own claim, in pseudo-hits.
    #[serde(default = "knobs::prior")]
    pub prior: f64,
    /// With `calibration = "learned"`: ranks with a posterior of their own; the last one stands for all ranks behind it.
    #[serde(default = "knobs::ranks")]
    pub ranks: u32,
    /// On a conditional drafter, where all trees are drafted to the budget before the choice: nodes expanded per request
    /// in one forward. It changes the number of forwards and of wasted expansions, never the tree.
    #[serde(default = "default_beam")]
    pub beam: u32,
}

/// What claims are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CalibrationKind {
    /// As they are.
    Claimed,
    /// Corrected by outcomes, per depth and rank.
    Learned,
    /// Corrected by a reliability curve.
    Given,
}

fn default_objective() -> Objective {
    Objective::Renewal
}

fn default_calibration() -> CalibrationKind {
    CalibrationKind::Learned
}

fn default_off() -> bool {
    true
}

impl CostAwareConfig {
    fn defaults() -> Self {
        Self {
            objective: default_objective(),
            latency_ms: None,
            calibration: default_calibration(),
            reliability: None,
            off: default_off(),
            margin: knobs::margin(),
            probe: knobs::probe(),
            memory: knobs::memory(),
            prior: knobs::prior(),
            ranks: knobs::ranks(),
            beam: default_beam(),
        }
    }

    fn policy(self, kind: &'static str, scope: Scope, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        let bad = |key: &str, why: &str| Err(BuildError::value(kind, key, why));
        let Self { latency_ms, margin, probe, memory, prior, ranks, beam, .. } = self;
        Knobs { latency_ms, margin, probe, memory, prior, ranks, beam }.check(kind)?;
        let reliability = match (self.calibration, &self.reliability) {
            (CalibrationKind::Given, Some(points)) => {
                Some(Reliability::through(points).map_err(|why| BuildError::value(kind, "reliability", why))?)
            }
            (CalibrationKind::Given, None) => {
                return bad("reliability", "`calibration = \"given\"` needs its points");
            }
            (_, Some(_)) => return bad("reliability", "only `calibration = \"given\"` reads it"),
            (_, None) => None,
        };
        Ok(Box::new(CostAware::new(kind, scope, self, reliability, limits)))
    }
}

impl PolicyConfig for CostAwareConfig {
    const KIND: &'static str = "cost-aware";
    const ABOUT: &'static str =
        "best-first, each request's size chosen by what its step costs (CaDDTree, BASTION); all bucket ends compared";

    fn example() -> Self {
        Self::defaults()
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        self.policy(Self::KIND, Scope::Request, limits)
    }
}

/// Parameters of `batch-wide`: those of `cost-aware`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BatchWideConfig(pub CostAwareConfig);

impl PolicyConfig for BatchWideConfig {
    const KIND: &'static str = "batch-wide";
    const ABOUT: &'static str =
        "the best nodes over all requests, as many as the cost of the shared step makes worth while";

    fn example() -> Self {
        Self(CostAwareConfig::defaults())
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        self.0.policy(Self::KIND, Scope::Batch, limits)
    }
}
