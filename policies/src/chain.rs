//! `chain`: the drafter's rank-0 path, a tree of width 1.

use crate::registry::{BuildError, PolicyConfig};
use crate::shape::{Shape, Shaped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Program, Round, TreePolicy};

/// Parameters of `chain`: none. Its length is the run's budget, at most the drafter's depth.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainConfig {}

impl PolicyConfig for ChainConfig {
    const KIND: &'static str = "chain";
    const ABOUT: &'static str = "the drafter's most probable token at every depth, no branches";

    fn example() -> Self {
        Self {}
    }

    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        Ok(Box::new(Chain::default()))
    }
}

/// The chain policy. Accepts drawn candidates: the path of every node's first draw.
#[derive(Debug, Default)]
pub struct Chain {
    shape: Shape,
    shaped: Shaped,
}

impl TreePolicy for Chain {
    fn kind(&self) -> &str {
        ChainConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth.min(limits.budget), width: 1, draws: true, waves: true, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.shaped.begin(round.batch.len());
        let longest = round.caps.iter().map(|c| c.depth.min(c.nodes)).max().unwrap_or(0);
        self.shape.extend_chain(longest);
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth.min(c.nodes), width: 1, draw: round.draw }));
    }

    fn grow(
        &mut self,
        _round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.shaped.grow(|_| &self.shape, drafts, forest, wave)
    }

    fn program(&self) -> Option<Program> {
        Some(Program::Chain)
    }
}
