//! `spec-exec`: the best frontier nodes are expanded in beams, their probability discounted by depth, and the budget's
//! best nodes are kept (the form of SpecExec).
//!
//! A node's key is its path's log-probability plus depth · ln(decay). Each wave expands the `beam` best unexpanded nodes
//! of any depth that are among the budget's best keys so far; after `waves` waves, or when there are none, the budget's
//! best keys are the tree.

use crate::best_first::{check_beam, default_beam};
use crate::layers::{Layered, Pool, Pooled};
use crate::registry::{BuildError, PolicyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `spec-exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecExecConfig {
    /// Nodes expanded per request and wave.
    #[serde(default = "default_beam")]
    pub beam: u32,
    /// Factor on a path's probability per level, in (0, 1]; 1 = none.
    #[serde(default = "default_decay")]
    pub decay: f64,
    /// Most waves; as many as the drafter has levels unless given.
    #[serde(default)]
    pub waves: Option<u32>,
}

fn default_decay() -> f64 {
    0.9
}

impl PolicyConfig for SpecExecConfig {
    const KIND: &'static str = "spec-exec";
    const ABOUT: &'static str =
        "the best frontier nodes in beams, discounted by depth, trimmed to the budget (SpecExec)";

    fn example() -> Self {
        Self { beam: default_beam(), decay: default_decay(), waves: None }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        check_beam(Self::KIND, self.beam)?;
        if !(self.decay > 0.0 && self.decay <= 1.0) {
            return Err(BuildError::value(Self::KIND, "decay", "must be above 0 and at most 1"));
        }
        if self.waves == Some(0) {
            return Err(BuildError::value(Self::KIND, "waves", "must be 1 or more"));
        }
        let waves = self.waves.unwrap_or(limits.depth);
        Ok(Layered::boxed(Rule { beam: self.beam, ln_decay: self.decay.ln(), waves, best: Vec::new() }))
    }
}

#[derive(Debug)]
struct Rule {
    beam: u32,
    ln_decay: f64,
    waves: u32,
    best: Vec<u32>,
}

impl Pooled for Rule {
    fn kind(&self) -> &'static str {
        SpecExecConfig::KIND
    }

    fn width(&self, pool: &Pool) -> u32 {
        pool.budget
    }

    fn discount(&self) -> f64 {
        self.ln_decay
    }

    fn choose(&mut self, pool: &mut Pool, beam: &mut Vec<u32>) {
        if pool.waves >= self.waves {
            return;
        }
        pool.best_of_all(&mut self.best);
        // The last of a full tree has no room for a child.
        let inner = if self.best.len() as u32 == pool.budget { self.best.len() - 1 } else { self.best.len() };
        let open = |&i: &u32| !pool.get(i).expanded && pool.get(i).depth < pool.depth;
        beam.extend(self.best[..inner].iter().copied().filter(open).take(self.beam as usize));
    }

    fn select(&mut self, pool: &mut Pool, order: &mut Vec<u32>) {
        pool.best_of_all(order);
    }
}
