//! `opt-tree`: the best nodes of every level by path weight, until a level adds too little (the form of OPT-Tree).
//!
//! With budget n, every level expands its nodes among the n largest path weights seen so far; growth stops when a level
//! raises the sum of the n largest weights (the surrogate's expectation of the accepted length) by less than `delta`. The
//! tree is the n largest. The original expands the n best of each level; those outside the n best of all have no
//! descendant in the tree, so leaving them out changes the number of expansions only.

use crate::layers::{Layered, Pool, Pooled};
use crate::registry::{BuildError, PolicyConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `opt-tree`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptTreeConfig {
    /// Smallest gain in expected accepted tokens for which another level is drafted; 0 = all levels.
    #[serde(default = "default_delta")]
    pub delta: f64,
}

fn default_delta() -> f64 {
    0.05
}

impl PolicyConfig for OptTreeConfig {
    const KIND: &'static str = "opt-tree";
    const ABOUT: &'static str = "the best per level until a level adds too little (OPT-Tree)";

    fn example() -> Self {
        Self { delta: default_delta() }
    }

    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        if !(self.delta >= 0.0 && self.delta.is_finite()) {
            return Err(BuildError::value(Self::KIND, "delta", "must be 0 or more expected tokens"));
        }
        Ok(Layered::boxed(Rule { delta: self.delta, best: Vec::new() }))
    }
}

#[derive(Debug)]
struct Rule {
    delta: f64,
    best: Vec<u32>,
}

impl Pooled for Rule {
    fn kind(&self) -> &'static str {
        OptTreeConfig::KIND
    }

    fn width(&self, pool: &Pool) -> u32 {
        pool.budget
    }

    fn choose(&mut self, pool: &mut Pool, beam: &mut Vec<u32>) {
        pool.best_of_all(&mut self.best);
        let expected: f64 = self.best.iter().map(|&i| pool.get(i).key.exp()).sum();
        let gain = expected - pool.value;
        pool.value = expected;
        if pool.waves > 1 && gain < self.delta {
            return;
        }
        let fresh = pool.fresh();
        // The last of a full tree has no room for a child.
        let inner = if self.best.len() as u32 == pool.budget { self.best.len() - 1 } else { self.best.len() };
        let open = |&i: &u32| fresh.contains(&i) && pool.get(i).depth < pool.depth;
        beam.extend(self.best[..inner].iter().copied().filter(open));
    }

    fn select(&mut self, pool: &mut Pool, order: &mut Vec<u32>) {
        pool.best_of_all(order);
    }
}
