//! The policies `cost-aware` and `batch-wide`: grow every tree best-first to its cap, then keep as many nodes as pay.
//!
//! On a block draft the first n nodes of a larger best-first tree are the tree of n, so growing first and cutting after the
//! choice is the published incremental growth without its early stop. No device form is published: the choice compares the
//! host's cost of all bucket ends at every step, which no program states.

use super::switch::Switch;
use super::{CalibrationKind, CostAwareConfig, Goal, Pool, Reliability, Throughput, choose, per_request, totals};
use crate::adaptive::{Learner, Memory, refuse_flat};
use crate::best_first::{ask_full, full_needs};
use crate::search::{Rule, Search};
use treeline_core::{
    Ask, DraftView, Fault, Forest, Grow, Limits, Needs, NodeRef, Round, RoundLog, StepCost, StepShape, TreePolicy,
};

/// What one choice ranges over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// One request, as if all others took as many nodes.
    Request,
    /// The batch.
    Batch,
}

/// Best-first trees sized by what the step costs.
#[derive(Debug)]
pub(super) struct CostAware {
    kind: &'static str,
    scope: Scope,
    goal: Goal,
    config: CostAwareConfig,
    reliability: Option<Reliability>,
    learner: Option<Learner>,
    search: Search,
    pool: Pool,
    /// Ends of this round in nodes, their rows, ms and Φ.
    ends: Vec<u32>,
    rows: Vec<u32>,
    ms: Vec<f64>,
    phi: Vec<f64>,
    /// Nodes that each request keeps.
    counts: Vec<u32>,
    /// g.
    run: Throughput,
    switch: Switch,
    drafting: bool,
    cost_checked: bool,
    /// ms of the step that was run, and of a plain one.
    step_ms: f64,
    plain_ms: f64,
}

impl CostAware {
    pub fn new(
        kind: &'static str,
        scope: Scope,
        config: CostAwareConfig,
        reliability: Option<Reliability>,
        limits: &Limits,
    ) -> Self {
        let CostAwareConfig { ranks, memory, prior, .. } = config;
        let learned = config.calibration == CalibrationKind::Learned;
        Self {
            kind,
            scope,
            goal: Goal { objective: config.objective, latency_ms: config.latency_ms },
            reliability,
            learner: learned.then(|| Learner::new(Memory { ranks, memory, prior }, limits)),
            search: Search::default(),
            pool: Pool::default(),
            ends: Vec::new(),
            rows: Vec::new(),
            ms: Vec::new(),
            phi: Vec::new(),
            counts: Vec::new(),
            run: Throughput::new(memory),
            switch: Switch::new(memory, config.margin, config.probe),
            drafting: true,
            cost_checked: false,
            step_ms: 0.0,
            plain_ms: 0.0,
            config,
        }
    }

    /// Decides how many nodes each tree keeps, and cuts the trees.
    fn size(&mut self, round: &Round<'_>, forest: &mut Forest) -> Result<(), String> {
        let cost = round.cost.ok_or("it needs a step cost, and the run has none")?;
        if !std::mem::replace(&mut self.cost_checked, true) {
            refuse_flat(cost)?;
        }
        let requests = round.batch.len() as u32;
        let context = round.batch.iter().map(|s| u64::from(s.start)).sum::<u64>() / u64::from(requests.max(1));
        let draft_rows = if self.drafting { round.caps.iter().map(|c| c.depth + 1).sum() } else { 0 };
        let shape = StepShape { requests, rows: requests, context: context as u32, draft_rows };
        self.plain_ms = cost.step(&StepShape { draft_rows: 0, ..shape }).total();
        self.counts.clear();
        if self.drafting {
            match self.scope {
                Scope::Request => self.each(cost, &shape, forest),
                Scope::Batch => self.shared(cost, &shape, forest),
            }
            .ok_or_else(|| format!("no step of {requests} requests has a cost that is a positive number"))?;
            for (seq, &nodes) in self.counts.iter().enumerate() {
                forest.tree_mut(seq).truncate(1 + nodes);
            }
        }
        let rows = requests + self.counts.iter().sum::<u32>();
        self.step_ms = cost.step(&StepShape { rows, ..shape }).total();
        Ok(())
    }

    /// Every request by itself. `None` = no usable end.
    fn each(&mut self, cost: &dyn StepCost, shape: &StepShape, forest: &Forest) -> Option<()> {
        let most = forest.trees().iter().map(treeline_core::Tree::nodes).max().unwrap_or(0);
        per_request(cost.bucket_ends(), shape.requests, most, &mut self.ends);
        self.rows.clear();
        self.rows.extend(self.ends.iter().map(|n| shape.requests * (1 + n)));
        self.price(cost, shape);
        let g = self.run.get().map(|g| g / f64::from(shape.requests));
        for tree in forest.trees() {
            let scores = &tree.scores()[1..];
            let (mut phi, mut nodes) = (0.0, 0);
            let ends = self.ends.iter().zip(&self.ms).map(|(&end, &ms)| {
                let end = (end as usize).min(scores.len());
                phi += scores[nodes..end].iter().map(|&s| probability(self.reliability.as_ref(), s)).sum::<f64>();
                nodes = end;
                (1.0 + phi, ms)
            });
            let chosen = choose(&self.goal, g, ends)?;
            self.counts.push(self.ends[chosen.end].min(tree.nodes()));
        }
        Some(())
    }

    /// The batch as a whole. `None` = no usable end.
    fn shared(&mut self, cost: &dyn StepCost, shape: &StepShape, forest: &Forest) -> Option<()> {
        self.pool.clear();
        for tree in forest.trees() {
            let reliability = self.reliability.as_ref();
            self.pool.push(tree.scores()[1..].iter().map(|&s| probability(reliability, s) as f32));
        }
        totals(cost.bucket_ends(), shape.requests, self.pool.nodes(), &mut self.ends);
        self.rows.clear();
        self.rows.extend(self.ends.iter().map(|n| shape.requests + n));
        self.price(cost, shape);
        self.phi.clear();
        self.phi.resize(self.ends.len(), 0.0);
        self.pool.phi(&self.ends, &mut self.phi);
        let tokens = self.phi.iter().map(|phi| f64::from(shape.requests) + phi);
        let chosen = choose(&self.goal, self.run.get(), tokens.zip(self.ms.iter().copied()))?;
        self.pool.counts(self.ends[chosen.end], &mut self.counts);
        Some(())
    }

    fn price(&mut self, cost: &dyn StepCost, shape: &StepShape) {
        self.ms.clear();
        self.ms.resize(self.rows.len(), 0.0);
        cost.curve(shape, &self.rows, &mut self.ms);
    }
}

fn probability(reliability: Option<&Reliability>, score: f64) -> f64 {
    reliability.map_or_else(|| score.exp(), |r| f64::from(r.probability(score as f32)))
}

impl TreePolicy for CostAware {
    fn kind(&self) -> &str {
        self.kind
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { cost: true, ..full_needs(limits) }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.search.begin(round.batch.len());
        if let Some(learner) = &mut self.learner {
            learner.begin(round.batch.len());
        }
        self.drafting = !self.config.off || self.switch.drafts();
        ask_full(round, ask);
        if !self.drafting {
            ask.iter_mut().for_each(|a| a.depth = 0);
        }
    }

    fn grow(
        &mut self,
        round: &Round<'_>,
        drafts: &dyn DraftView,
        forest: &mut Forest,
        wave: &mut Vec<NodeRef>,
    ) -> Grow {
        if self.drafting {
            let rule = Rule { spine: 0, beam: self.config.beam };
            let budget = |seq: usize| round.caps[seq].nodes;
            let grown = match &mut self.learner {
                Some(learner) => {
                    let calibrated = learner.calibrated(drafts, forest);
                    self.search.each(rule, budget, &calibrated, forest, wave)
                }
                None => self.search.each(rule, budget, drafts, forest, wave),
            };
            if grown == Grow::Expand {
                return grown;
            }
        }
        if let Err(why) = self.size(round, forest) {
            for seq in 0..forest.len() {
                forest.fail(seq, Fault::Policy(format!("{}: {why}", self.kind)));
            }
        }
        if let Some(learner) = &mut self.learner {
            learner.remember(forest);
        }
        Grow::Done
    }

    fn observe(&mut self, log: &RoundLog) {
        let tokens = f64::from(log.tokens());
        self.run.push(tokens, self.step_ms);
        if self.drafting {
            if let Some(learner) = &mut self.learner {
                learner.observe(log);
            }
            self.switch.learn(tokens, self.step_ms, log.entries.len() as f64, self.plain_ms);
        }
    }
}
