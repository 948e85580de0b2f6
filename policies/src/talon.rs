//! `talon`: level 1 keeps the `width` best tokens, deeper levels keep every child whose path probability reaches `mu`
//! times the level's best, until the budget is full (the form of TALON).
//!
//! A confident draft grows deep and narrow, an uncertain one shallow and wide.

use crate::layers::{Layered, Pool, Pooled};
use crate::registry::{BuildError, PolicyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `talon`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TalonConfig {
    /// Tokens kept at level 1.
    #[serde(default = "default_width")]
    pub width: u32,
    /// Share of the level's best path probability that a node at level 2 or deeper must reach, in (0, 1].
    #[serde(default = "default_mu")]
    pub mu: f64,
}

fn default_width() -> u32 {
    8
}

fn default_mu() -> f64 {
    0.1
}

impl PolicyConfig for TalonConfig {
    const KIND: &'static str = "talon";
    const ABOUT: &'static str =
        "per level every child close enough to the level's best, until the budget is full (TALON)";

    fn example() -> Self {
        Self { width: default_width(), mu: default_mu() }
    }

    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        if self.width == 0 {
            return Err(BuildError::value(Self::KIND, "width", "must be 1 or more"));
        }
        if !(self.mu > 0.0 && self.mu <= 1.0) {
            return Err(BuildError::value(Self::KIND, "mu", "must be above 0 and at most 1"));
        }
        Ok(Layered::boxed(Rule { width: self.width, ln_mu: self.mu.ln(), level: Vec::new() }))
    }
}

#[derive(Debug)]
struct Rule {
    width: u32,
    ln_mu: f64,
    level: Vec<u32>,
}

impl Pooled for Rule {
    fn kind(&self) -> &'static str {
        TalonConfig::KIND
    }

    fn width(&self, pool: &Pool) -> u32 {
        if pool.waves == 0 { self.width } else { pool.budget }
    }

    fn choose(&mut self, pool: &mut Pool, beam: &mut Vec<u32>) {
        self.level.clear();
        self.level.extend(pool.fresh());
        pool.best(&mut self.level, pool.budget as usize - pool.kept.len());
        let Some(&best) = self.level.first() else { return };
        if pool.waves > 1 {
            let least = pool.get(best).key + self.ln_mu;
            self.level.retain(|&i| pool.get(i).key >= least);
        }
        pool.kept.extend_from_slice(&self.level);
        if (pool.kept.len() as u32) < pool.budget {
            beam.extend(self.level.iter().copied().filter(|&i| pool.get(i).depth < pool.depth));
        }
    }

    fn select(&mut self, pool: &mut Pool, order: &mut Vec<u32>) {
        order.extend_from_slice(&pool.kept);
    }
}
