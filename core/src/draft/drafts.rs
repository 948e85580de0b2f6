//! The three forms of a round's drafts behind one type, for drafters that can give more than one of them.

use super::{Candidate, Conditional, DraftView, Drawn, Lattice, NodeRef};
use crate::error::Fault;

/// A round's drafts. `N` is what a conditional drafter notes in order to go on expanding.
#[derive(Debug)]
pub enum Drafts<N> {
    /// Ranked rows by level.
    Ranked(Lattice),
    /// Draws by node, from a block drafter's levels.
    Drawn(Drawn<Lattice>),
    /// Rows by node.
    Conditional(Conditional, N),
}

impl<N> Drafts<N> {
    fn view(&self) -> &dyn DraftView {
        match self {
            Self::Ranked(drafts) => drafts,
            Self::Drawn(drafts) => drafts,
            Self::Conditional(drafts, _) => drafts,
        }
    }
}

impl<N> DraftView for Drafts<N> {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.view().children(at)
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.view().level(seq, depth)
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        self.view().dist(at)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.view().depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.view().fault(seq)
    }
}
