//! The adapter that makes a [`TreePolicy`] of a [`RequestPolicy`].

use treeline_core::{
    Ask, DraftView, Fault, Forest, Grow, Limits, Needs, NodeRef, RequestPolicy, Round, RoundLog, StepView, TreeBuilder,
    TreePolicy,
};

/// Runs a [`RequestPolicy`] on every request of the batch. It asks for all levels and for the policy's width; a failure
/// of one request is that request's fault. Block drafters only: a policy that plans a tree in one go cannot wait for rows
/// that depend on the path, and a request on a conditional drafter is failed with a message that says so.
#[derive(Debug, Clone, Default)]
pub struct PerRequest<P> {
    policy: P,
}

impl<P: RequestPolicy> PerRequest<P> {
    /// Wraps a policy.
    pub fn new(policy: P) -> Self {
        Self { policy }
    }

    /// The wrapped policy.
    pub fn inner(&self) -> &P {
        &self.policy
    }
}

impl<P: RequestPolicy> TreePolicy for PerRequest<P> {
    fn kind(&self) -> &str {
        self.policy.kind()
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth, width: self.policy.width(limits).min(limits.width), ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        let width = self.policy.width(round.limits);
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth, width, draw: round.draw }));
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        _wave: &mut Vec<NodeRef>,
    ) -> Grow {
        for seq in 0..forest.len() {
            if forest.fault(seq).is_some() {
                continue;
            }
            let view = StepView { seq: seq as u32, round: *round, drafts };
            if view.depth() == 0 || view.budget() == 0 {
                continue;
            }
            let planned = if drafts.level(seq as u32, 1).is_none() {
                Err("it plans whole trees at once and needs a block drafter".to_owned())
            } else {
                let mut builder = TreeBuilder::new(forest.tree_mut(seq));
                self.policy.plan(&view, &mut builder).map_err(|e| e.to_string())
            };
            if let Err(why) = planned {
                forest.fail(seq, Fault::Policy(format!("{}: {why}", self.policy.kind())));
            }
        }
        Grow::Done
    }

    fn observe(&mut self, log: &RoundLog) {
        self.policy.observe(log);
    }
}
