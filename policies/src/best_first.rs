//! `best-first`: the most probable prefixes (DDTree, arXiv 2604.12989).
//!
//! The `B` most probable prefixes maximise Σ q(u), the surrogate's expectation of the accepted length, and are
//! prefix-closed. Order of the nodes = order of selection: higher score first, ties to the lexicographically smaller rank
//! tuple, a prefix before its extension. Scores are f32 log-probabilities summed in f64 from the root; −∞ is never placed.

use crate::registry::{BuildError, PolicyConfig};
use crate::search::{Rule, Search};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Program, ProgramBudget, Round, TreePolicy};

/// Parameters of `best-first`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BestFirstConfig {
    /// `request`: every request gets the run's budget. `batch`: one heap over all requests; the globally best next node
    /// is taken until the batch holds `mean` nodes per request, none more than the run's budget.
    #[serde(default = "default_scope")]
    pub scope: Scope,
    /// With `scope = "batch"`: mean nodes per request. Must not be given otherwise.
    #[serde(default)]
    pub mean: Option<u32>,
    /// On a conditional drafter: nodes expanded per request in one forward. It changes the number of forwards and of
    /// wasted expansions, never the tree.
    #[serde(default = "default_beam")]
    pub beam: u32,
}

/// What one heap ranges over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// A heap per request.
    Request,
    /// One heap over the batch.
    Batch,
}

fn default_scope() -> Scope {
    Scope::Request
}

pub(crate) fn default_beam() -> u32 {
    8
}

pub(crate) fn check_beam(kind: &str, beam: u32) -> Result<(), BuildError> {
    if beam == 0 {
        return Err(BuildError::value(kind, "beam", "0 nodes per forward would never grow a tree: give 1 or more"));
    }
    Ok(())
}

impl PolicyConfig for BestFirstConfig {
    const KIND: &'static str = "best-first";
    const ABOUT: &'static str = "the most probable prefixes within the budget (DDTree), per request or batch-wide";

    fn example() -> Self {
        Self { scope: default_scope(), mean: None, beam: default_beam() }
    }

    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        check_beam(Self::KIND, self.beam)?;
        let per_request = match (self.scope, self.mean) {
            (Scope::Request, None) => limits.budget,
            (Scope::Request, Some(_)) => {
                let why = "only `scope = \"batch\"` reads it; per request the run's budget holds";
                return Err(BuildError::value(Self::KIND, "mean", why));
            }
            (Scope::Batch, None) => {
                let why = "`scope = \"batch\"` needs the mean nodes per request";
                return Err(BuildError::value(Self::KIND, "mean", why));
            }
            (Scope::Batch, Some(mean)) => mean,
        };
        let rule = Rule { spine: 0, beam: self.beam };
        Ok(BestFirst::boxed(Self::KIND, self.scope, per_request, rule))
    }
}

/// Best-first growth, behind a spine of `rule.spine` forced levels; what `best-first` and `spine-first` are made of.
#[derive(Debug)]
pub(crate) struct BestFirst {
    kind: &'static str,
    scope: Scope,
    per_request: u32,
    rule: Rule,
    search: Search,
}

impl BestFirst {
    /// The policy called `kind`; `per_request` nodes each, or on average in a batch.
    pub fn boxed(kind: &'static str, scope: Scope, per_request: u32, rule: Rule) -> Box<dyn TreePolicy> {
        Box::new(Self { kind, scope, per_request, rule, search: Search::default() })
    }
}

/// Ranks that a best-first tree of `budget` nodes can read: K_d = B − d + 1 at depth d, so at most B.
pub(crate) fn full_needs(limits: &Limits) -> Needs {
    Needs {
        depth: limits.depth.min(limits.budget),
        width: limits.width.min(limits.budget),
        waves: true,
        ..Needs::default()
    }
}

/// Asks for all levels that the caps allow, and as many ranks as a tree of that many nodes can read.
pub(crate) fn ask_full(round: &Round<'_>, ask: &mut Vec<Ask>) {
    ask.extend(round.caps.iter().map(|c| Ask {
        depth: c.depth.min(c.nodes),
        width: c.nodes.min(round.limits.width),
        draw: round.draw,
    }));
}

impl TreePolicy for BestFirst {
    fn kind(&self) -> &str {
        self.kind
    }

    fn needs(&self, limits: &Limits) -> Needs {
        full_needs(limits)
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.search.begin(round.batch.len());
        ask_full(round, ask);
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        match self.scope {
            Scope::Request => self.search.each(self.rule, |seq| round.caps[seq].nodes, drafts, forest, wave),
            Scope::Batch => {
                let total = self.per_request.saturating_mul(round.caps.len() as u32);
                self.search.shared(self.rule, total, drafts, forest, wave)
            }
        }
    }

    fn program(&self) -> Option<Program> {
        let budget = match self.scope {
            Scope::Request => ProgramBudget::Fixed(self.per_request),
            Scope::Batch => ProgramBudget::Shared(self.per_request),
        };
        Some(Program::BestFirst { spine: self.rule.spine, budget })
    }
}
