//! `adaptive`: best-first by calibrated probabilities, its budget chosen by measured acceptance and the cost of a step.
//!
//! 1. Outcomes give, per depth and rank, a Beta posterior of acceptance with decay; it turns the drafter's claims q into
//!    calibrated q̂, and the tree is best-first in q̂.
//! 2. Φ̂(n), the expected accepted length of the first n nodes, is averaged over requests and rounds, with decay.
//! 3. The budget is the bucket end with the highest long-run rate (1 + Φ̂(n)) / C(n). Every end is compared. It moves only
//!    for a gain above `margin`; at least every 1/`probe`-th round grows the largest tree, also out of "off" (budget 0, no
//!    draft), and a probe out of "off" that pays is followed by another one, so no state is for ever.
//!
//! Acceptance alone is a poor signal, and the first end that does not improve is the best one only for convex costs, which
//! verification of mixtures of experts does not have (CaDDTree arXiv 2606.01813 and BASTION arXiv 2605.29727 stop there).

mod calibrate;
mod choose;
mod config;
mod learner;

pub use crate::cost_aware::Objective;
pub(crate) use choose::refuse_flat;
pub use choose::{best_end, best_renewal, with_hysteresis};
pub use config::AdaptiveConfig;
pub(crate) use learner::{Learner, Memory};

use crate::best_first::{ask_full, full_needs};
use crate::registry::PolicyConfig;
use crate::search::{Rule, Search};
use choose::{Prices, limit_latency};
use treeline_core::{Ask, DraftView, Fault, Forest, Grow, Limits, Needs, NodeRef, Round, RoundLog, TreePolicy};

/// What a round does with its drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No draft.
    Off,
    /// The standing budget.
    Steady,
    /// The largest budget, to learn.
    Probe,
}

/// The adaptive policy.
pub struct Adaptive {
    config: AdaptiveConfig,
    /// Budgets to choose from, ascending.
    ends: Vec<u32>,
    learner: Learner,
    search: Search,
    prices: Prices,
    /// Decayed sum and weight of Φ̂ by end.
    phi: Vec<(f64, f64)>,
    phi_mean: Vec<Option<f64>>,
    /// Σ over requests of this round's 1 + Φ̂ by end.
    tokens: Vec<f64>,
    current: Option<usize>,
    mode: Mode,
    since_probe: u64,
    probe_again: bool,
    /// Decayed expected tokens and ms of the rounds run: g is their ratio.
    run: (f64, f64),
    cost_checked: bool,
    /// ms of one plain step and of the step that was run, for judging probes.
    plain_ms: f64,
    step_ms: f64,
}

impl Adaptive {
    fn new(config: AdaptiveConfig, ends: Vec<u32>, limits: &Limits) -> Self {
        Self {
            learner: Learner::new(Memory { ranks: config.ranks, memory: config.memory, prior: config.prior }, limits),
            search: Search::default(),
            prices: Prices::new(ends.len()),
            phi: vec![(0.0, 0.0); ends.len()],
            phi_mean: vec![None; ends.len()],
            tokens: vec![0.0; ends.len()],
            current: None,
            mode: Mode::Steady,
            since_probe: 0,
            probe_again: false,
            run: (0.0, 0.0),
            cost_checked: false,
            plain_ms: 0.0,
            step_ms: 0.0,
            ends,
            config,
        }
    }

    /// The standing budget; `None` before the first round.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        self.current.map(|i| self.ends[i])
    }

    fn largest(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Nodes to grow before the choice: on a block draft all of them, since the first n of a larger tree are the tree of
    /// n; on a conditional one, whose nodes cost forwards, what the round is going to use.
    fn grown(&self, block: bool) -> u32 {
        match self.current {
            Some(i) if !block && self.mode == Mode::Steady => self.ends[i],
            _ => self.largest(),
        }
    }

    /// Averages Φ̂ of the grown trees into the long run.
    fn learn_phi(&mut self, round: &Round<'_>, drafts: &dyn DraftView, forest: &Forest) {
        let keep = 1.0 - 1.0 / self.config.memory;
        self.tokens.fill(0.0);
        for (seq, caps) in round.caps.iter().enumerate() {
            if forest.fault(seq).is_some() {
                continue;
            }
            let block = drafts.level(seq as u32, 1).is_some();
            let grown = self.grown(block);
            // A tree that the end of a response cuts says little about the others.
            let whole = caps.nodes >= self.largest() && caps.depth >= round.limits.depth.min(self.largest());
            let mut scores = forest.tree(seq).scores()[1..].iter();
            let (mut phi, mut nodes) = (0.0, 0);
            for (i, &end) in self.ends.iter().enumerate() {
                for score in scores.by_ref().take((end - nodes) as usize) {
                    phi += score.exp();
                }
                nodes = end;
                self.tokens[i] += 1.0 + phi;
                if end <= grown && (whole || self.phi[i].1 == 0.0) {
                    let (sum, weight) = self.phi[i];
                    self.phi[i] = (sum * keep + phi, weight * keep + 1.0);
                    self.phi_mean[i] = Some(self.phi[i].0 / self.phi[i].1);
                }
            }
        }
    }

    fn price(&mut self, round: &Round<'_>) -> Result<(), String> {
        let cost = round.cost.ok_or("it needs a step cost, and the run has none")?;
        if !self.cost_checked {
            refuse_flat(cost)?;
            self.cost_checked = true;
        }
        let requests = round.batch.len() as u32;
        let context = round.batch.iter().map(|s| u64::from(s.start)).sum::<u64>() / u64::from(requests.max(1));
        let draft_rows = round.caps.iter().map(|c| c.depth + 1).sum();
        self.prices.update(cost, &self.ends, requests, context as u32, draft_rows)?;
        limit_latency(&mut self.prices.ms, self.config.latency_ms);
        self.plain_ms = cost
            .step(&treeline_core::StepShape { requests, rows: requests, context: context as u32, draft_rows: 0 })
            .total();
        Ok(())
    }

    /// Chooses this round's end and cuts the trees to it.
    fn choose(&mut self, round: &Round<'_>, drafts: &dyn DraftView, forest: &mut Forest) {
        if let Err(why) = self.price(round) {
            for seq in 0..forest.len() {
                forest.fail(seq, Fault::Policy(format!("{}: {why}", AdaptiveConfig::KIND)));
            }
            return;
        }
        let mut used = 0;
        if self.mode != Mode::Off {
            self.learn_phi(round, drafts, forest);
            self.current = with_hysteresis(self.current, &self.phi_mean, &self.prices.ms, self.config.margin);
            used = match (self.mode, self.config.objective) {
                // A probe keeps to the limit too: the largest end that does.
                (Mode::Probe, _) => self.prices.ms.iter().rposition(|ms| ms.is_finite()).unwrap_or(0),
                (_, Objective::Renewal) if self.current.is_some_and(|c| self.ends[c] > 0) && self.run.1 > 0.0 => {
                    let known = self.ends.partition_point(|&end| end <= self.grown_everywhere(round, drafts));
                    let (tokens, ms) = (&self.tokens[..known], &self.prices.ms[..known]);
                    best_renewal(tokens, ms, self.run.0 / self.run.1).unwrap_or(0)
                }
                _ => self.current.unwrap_or(0),
            };
            for seq in 0..forest.len() {
                forest.tree_mut(seq).truncate(1 + self.ends[used]);
            }
        }
        let keep = 1.0 - 1.0 / self.config.memory;
        let tokens = if self.mode == Mode::Off { round.batch.len() as f64 } else { self.tokens[used] };
        self.step_ms = self.prices.ms[used];
        self.run = (self.run.0 * keep + tokens, self.run.1 * keep + self.step_ms);
    }

    /// What every tree of this round was grown to.
    fn grown_everywhere(&self, round: &Round<'_>, drafts: &dyn DraftView) -> u32 {
        let grown = |seq: usize| self.grown(drafts.level(seq as u32, 1).is_some());
        (0..round.caps.len()).map(grown).min().unwrap_or(0)
    }
}

impl TreePolicy for Adaptive {
    fn kind(&self) -> &str {
        AdaptiveConfig::KIND
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { cost: true, ..full_needs(limits) }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        self.search.begin(round.batch.len());
        self.learner.begin(round.batch.len());
        self.since_probe += 1;
        let due = self.probe_again || self.since_probe >= self.config.probe_period();
        self.mode = match self.current {
            None => Mode::Steady,
            Some(_) if due => Mode::Probe,
            Some(i) if self.ends[i] == 0 => Mode::Off,
            Some(_) => Mode::Steady,
        };
        if self.mode == Mode::Probe {
            self.since_probe = 0;
        }
        self.probe_again = false;
        ask_full(round, ask);
        if self.mode == Mode::Off {
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
        if self.mode != Mode::Off {
            let rule = Rule { spine: 0, beam: self.config.beam };
            let (steady, largest) = (self.grown(false), self.largest());
            let grown = |seq: usize| {
                let all = if drafts.level(seq as u32, 1).is_some() { largest } else { steady };
                all.min(round.caps[seq].nodes)
            };
            let calibrated = self.learner.calibrated(drafts, forest);
            if self.search.each(rule, grown, &calibrated, forest, wave) == Grow::Expand {
                return Grow::Expand;
            }
        }
        self.choose(round, drafts, forest);
        self.learner.remember(forest);
        Grow::Done
    }

    fn observe(&mut self, log: &RoundLog) {
        if self.mode == Mode::Off {
            return;
        }
        self.learner.observe(log);
        let off = self.current.is_some_and(|i| self.ends[i] == 0);
        if self.mode == Mode::Probe && off && self.step_ms > 0.0 {
            let plain = log.entries.len() as f64 / self.plain_ms;
            self.probe_again = f64::from(log.tokens()) / self.step_ms > plain;
        }
    }
}
