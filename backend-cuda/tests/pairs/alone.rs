//! A policy whose rounds run staged, for tests and benches that set them against device rounds.

use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Round, TreePolicy};

/// A policy without its device program.
pub struct Alone<'p>(pub &'p mut dyn TreePolicy);

impl TreePolicy for Alone<'_> {
    fn kind(&self) -> &str {
        self.0.kind()
    }

    fn needs(&self, limits: &Limits) -> Needs {
        self.0.needs(limits)
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.0.ask(round, ask);
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.0.grow(round, drafts, forest, wave)
    }
}
