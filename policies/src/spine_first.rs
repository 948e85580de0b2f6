//! `spine-first`: the rank-0 path first, then best-first with what is left of the budget.
//!
//! With a budget of at least the drafter's depth the tree contains the chain, so at every position it accepts at least as
//! many tokens as the chain does (set inclusion).

use crate::best_first::{BestFirst, Scope, check_beam, default_beam};
use crate::registry::{BuildError, PolicyConfig};
use crate::search::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, TreePolicy};

/// Parameters of `spine-first`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpineFirstConfig {
    /// Levels of the rank-0 path that are placed first; all that the drafter and the budget reach unless given.
    #[serde(default)]
    pub spine: Option<u32>,
    /// On a conditional drafter: nodes expanded per request in one forward. It changes the number of forwards and of
    /// wasted expansions, never the tree.
    #[serde(default = "default_beam")]
    pub beam: u32,
}

impl PolicyConfig for SpineFirstConfig {
    const KIND: &'static str = "spine-first";
    const ABOUT: &'static str = "the whole rank-0 path, then the most probable prefixes with what is left";

    fn example() -> Self {
        Self { spine: None, beam: default_beam() }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        check_beam(Self::KIND, self.beam)?;
        let rule = Rule { spine: self.spine.unwrap_or(limits.depth), beam: self.beam };
        Ok(BestFirst::boxed(Self::KIND, Scope::Request, limits.budget, rule))
    }
}
