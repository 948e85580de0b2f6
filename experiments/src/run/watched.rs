//! A policy under observation: the drafter is asked for all ranks that the experiment keeps, the policy sees what it asked.
//!
//! Where the truth ranks in the whole row is what tells "the drafter did not know" from "the tree did not hold it"; a
//! policy that asks for one rank must not make the drafter look ignorant. The tree is the policy's own either way.

use super::observations::Observations;
use treeline_core::{
    Ask, Candidate, DraftView, Draw, Fault, Forest, Grow, Limits, Needs, NodeRef, Program, Round, RoundLog, TreePolicy,
};

/// Wraps the policy of a cell.
pub(super) struct Watched<'p> {
    /// The policy.
    pub inner: &'p mut dyn TreePolicy,
    /// Ranks per row to ask for, where the policy asks for fewer.
    pub width: u32,
    /// Times that the policy sees, for policies that read them.
    pub observations: Option<&'p mut Observations>,
    asked: Vec<Ask>,
}

impl<'p> Watched<'p> {
    /// Watches `inner`.
    pub fn new(inner: &'p mut dyn TreePolicy, width: u32, observations: Option<&'p mut Observations>) -> Self {
        Self { inner, width, observations, asked: Vec::new() }
    }
}

impl TreePolicy for Watched<'_> {
    fn kind(&self) -> &str {
        self.inner.kind()
    }

    fn needs(&self, limits: &Limits) -> Needs {
        self.inner.needs(limits)
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.inner.ask(round, ask);
        self.asked.clone_from(ask);
        // Drawn candidates depend on how many are drawn, so those stay as asked.
        if round.draw == Draw::Ranked {
            ask.iter_mut().filter(|a| a.depth > 0).for_each(|a| a.width = a.width.max(self.width));
        }
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        self.inner.grow(round, &Cut { drafts, asked: &self.asked }, forest, wave)
    }

    fn observe(&mut self, log: &RoundLog) {
        let mut seen = log.clone();
        for (entry, ask) in seen.entries.iter_mut().zip(&self.asked) {
            if let Ok(step) = &mut entry.result {
                step.truth_ranks.iter_mut().for_each(|rank| *rank = rank.filter(|&r| r < ask.width));
            }
        }
        match &mut self.observations {
            Some(observations) => observations.pass(&mut seen),
            // A policy that declares no need of time gets none.
            None => seen.times = None,
        }
        self.inner.observe(&seen);
    }

    fn program(&self) -> Option<Program> {
        self.inner.program()
    }
}

/// Rows cut to what was asked.
struct Cut<'d> {
    drafts: &'d dyn DraftView,
    asked: &'d [Ask],
}

impl Cut<'_> {
    fn cut<'r>(&self, seq: u32, row: &'r [Candidate]) -> &'r [Candidate] {
        let width = self.asked.get(seq as usize).map_or(0, |a| a.width as usize);
        row.get(..width).unwrap_or(row)
    }
}

impl DraftView for Cut<'_> {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.cut(at.seq, self.drafts.children(at))
    }

    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        self.drafts.level(seq, depth).map(|row| self.cut(seq, row))
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        self.drafts.dist(at)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.drafts.depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.drafts.fault(seq)
    }
}
