//! `{{name}}`: every prefix whose probability under the drafter reaches `least`, level by level.
//!
//! Yours from here: change [`Policy::plan`], keep the tests green, compare it with the built-in policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Limits, RequestPolicy, StepView, TreeBuilder, TreeError, TreePolicy};
use treeline_policies::{BuildError, PerRequest, PolicyConfig};

/// Parameters, as they stand beside `kind = "{{name}}"` in an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Smallest path probability of a node, in (0, 1].
    #[serde(default = "default_least")]
    pub least: f64,
}

fn default_least() -> f64 {
    0.02
}

impl PolicyConfig for Config {
    const KIND: &'static str = "{{name}}";
    const ABOUT: &'static str = "every prefix at least `least` probable, level by level";

    fn example() -> Self {
        Self { least: default_least() }
    }

    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        if !(self.least > 0.0 && self.least <= 1.0) {
            return Err(BuildError::value(Self::KIND, "least", "must be above 0 and at most 1"));
        }
        Ok(Box::new(PerRequest::new(Policy { ln_least: self.least.ln() })))
    }
}

/// The policy: sees one request's drafts and draws its tree.
#[derive(Debug)]
pub struct Policy {
    ln_least: f64,
}

impl RequestPolicy for Policy {
    fn kind(&self) -> &str {
        Config::KIND
    }

    fn width(&self, limits: &Limits) -> u32 {
        limits.width.min(limits.budget)
    }

    fn plan(&mut self, view: &StepView<'_>, tree: &mut TreeBuilder<'_>) -> Result<(), TreeError> {
        let mut level = 0..1;
        for depth in 0..view.depth() {
            let next = tree.tree().rows();
            for node in level {
                let above = tree.tree().scores()[node as usize];
                for (rank, &candidate) in (0..).zip(view.children(node, depth)) {
                    // Ranks descend. The comparison is false for NaN, so such a row ends here too.
                    let enough = above + f64::from(candidate.logp) >= self.ln_least;
                    if !enough || tree.left() == 0 {
                        break;
                    }
                    tree.add(node, rank, candidate)?;
                }
            }
            level = next..tree.tree().rows();
        }
        Ok(())
    }
}
