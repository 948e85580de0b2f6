//! A closed loop around a policy with one request: given drafts, given truth.

use serde_json::Value;
use treeline_core::{
    Ask, Batch, Candidate, Caps, Draw, Entry, Fault, Forest, Grow, Lattice, Limits, Round, RoundLog, Sampling, Seq,
    Step, StepCost, TreePolicy,
};
use treeline_policies::Registry;

/// A ranked row of these probabilities; token = rank.
pub fn row(p: &[f64]) -> Vec<Candidate> {
    (0..).zip(p).map(|(token, p)| Candidate { token, logp: p.ln() as f32 }).collect()
}

/// What one round did.
#[derive(Debug)]
pub struct Stepped {
    /// Levels asked for.
    pub asked: u32,
    /// Nodes of the tree.
    pub nodes: u32,
    /// The tree's own expectation of the accepted length.
    pub expected: f64,
    /// The same by the drafter's own claims.
    pub claimed: f64,
    /// The request's fault.
    pub fault: Option<Fault>,
}

/// A policy under test and its surroundings.
pub struct Drive {
    policy: Box<dyn TreePolicy>,
    limits: Limits,
    cost: Box<dyn StepCost>,
    forest: Forest,
    index: u64,
    was: u32,
    /// Takes the drafts away whenever the last tree was empty: probes out of "off" see nothing.
    pub blind_probes: bool,
}

impl Drive {
    /// A policy of this kind with these parameters.
    pub fn new(kind: &str, params: Value, budget: u32, depth: u32, width: u32, cost: Box<dyn StepCost>) -> Self {
        let limits = Limits { budget, depth, width, concurrency: 1 };
        let policy = Registry::builtin().build(kind, &params, &limits).unwrap();
        Self { policy, limits, cost, forest: Forest::default(), index: 0, was: u32::MAX, blind_probes: false }
    }

    /// One round. `truth(depth)` is the true token's rank below an accepted path of that depth.
    pub fn round(&mut self, rows: &[Vec<Candidate>], truth: impl Fn(usize) -> Option<u32>) -> Stepped {
        let seq = Seq {
            slot: 0,
            request: 0,
            index: 0,
            start: 10,
            root: 0,
            left: 1000,
            eos: std::sync::Arc::from([]),
            sampling: Sampling::GREEDY,
            round: 0,
        };
        let batch = Batch { seqs: vec![seq] };
        let caps = [Caps { nodes: self.limits.budget, depth: self.limits.depth }];
        let round = Round {
            index: self.index,
            batch: &batch,
            caps: &caps,
            limits: &self.limits,
            draw: Draw::Ranked,
            cost: Some(self.cost.as_ref()),
        };
        self.index += 1;
        self.forest.reset(&batch, &caps);
        let mut ask: Vec<Ask> = Vec::new();
        self.policy.ask(&round, &mut ask);
        if self.blind_probes && self.was == 0 {
            ask[0].depth = 0;
        }
        let mut drafts = Lattice::new(0);
        drafts.begin_seq();
        for row in rows.iter().take(ask[0].depth as usize) {
            drafts.push_row(&row[..row.len().min(ask[0].width as usize)], true, true);
        }
        let grown = self.policy.grow(&round, &drafts, &mut self.forest, &mut Vec::new());
        assert_eq!(grown, Grow::Done);
        let tree = self.forest.tree(0);
        let mut step = Step::default();
        let mut node = 0;
        loop {
            let depth = step.path.len();
            let rank = truth(depth);
            if depth < ask[0].depth as usize && depth < rows.len() {
                step.truth_ranks.push(rank);
            }
            step.emitted.push(rank.unwrap_or(u32::MAX));
            match tree.children(node).find(|&c| Some(tree.ranks()[c as usize]) == rank) {
                Some(child) => {
                    step.path.push(child);
                    node = child;
                }
                None => break,
            }
        }
        let claimed = (1..tree.rows())
            .map(|n| {
                let logp = |&n: &u32| {
                    f64::from(rows[tree.depths()[n as usize] as usize - 1][tree.ranks()[n as usize] as usize].logp)
                };
                tree.path(n).iter().map(logp).sum::<f64>().exp()
            })
            .sum();
        let nodes = tree.nodes();
        let stepped = Stepped {
            asked: ask[0].depth,
            nodes,
            expected: tree.expected_accepted(),
            claimed,
            fault: self.forest.fault(0).cloned(),
        };
        let entry = Entry {
            request: 0,
            index: 0,
            slot: 0,
            start: 10,
            step: 0,
            asked: self.limits.budget,
            rows: 1 + nodes,
            depth: tree.depth(),
            expected: stepped.expected,
            result: Ok(step),
        };
        let log = RoundLog { round: self.index, entries: vec![entry], ..RoundLog::default() };
        self.policy.observe(&log);
        self.was = nodes;
        stepped
    }
}
