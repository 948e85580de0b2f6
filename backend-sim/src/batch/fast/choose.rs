//! Trees as large as pays: the choosers of the cost-aware policies over the roots of one step.

use super::sums::Pricer;
use super::tape::{Round, Shape, round};
use super::types::{Choice, Scope};
use crate::batch::worth::Counter;
use crate::nested::Roots;
use std::collections::HashMap;
use treeline_core::StepShape;
use treeline_policies::cost_aware::{Pool, Throughput, choose, per_request, totals};

/// Chooses step by step. Working memory is reused, and a curve is asked for once per mean context.
pub(super) struct Chooser<'c> {
    choice: &'c Choice,
    pricer: &'c Pricer<'c>,
    tokens: u32,
    run: Throughput,
    pool: Pool,
    ends: Vec<u32>,
    rows: Vec<u32>,
    phi: Vec<f64>,
    counts: Vec<u32>,
    /// ms by end, by (context, draft rows, most nodes). Only ever looked up.
    curves: HashMap<(u32, u32, u32), Vec<f64>>,
    /// Key of the last step's.
    last: (u32, u32, u32),
    counter: Counter,
}

/// What a step came to choose, in the form of a rule for a single root.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rule {
    /// The end that pays by this curve.
    Curve {
        /// Nodes.
        ends: Vec<u32>,
        /// ms of a step in which everyone takes so many.
        ms: Vec<f64>,
        /// Throughput of one request.
        g: Option<f64>,
    },
    /// Every node whose probability reaches this.
    Threshold(f32),
}

impl<'c> Chooser<'c> {
    pub fn new(choice: &'c Choice, pricer: &'c Pricer<'c>) -> Self {
        Self {
            choice,
            pricer,
            tokens: pricer.load.response.unwrap_or(u32::MAX),
            run: Throughput::new(choice.memory),
            pool: Pool::default(),
            ends: Vec::new(),
            rows: Vec::new(),
            phi: Vec::new(),
            counts: Vec::new(),
            curves: HashMap::new(),
            last: (0, 0, 0),
            counter: Counter::default(),
        }
    }

    /// A step took `ms` and gave `tokens`.
    pub fn observe(&mut self, tokens: f64, ms: f64) {
        self.run.push(tokens, ms);
    }

    fn throughput(&self) -> Option<f64> {
        self.choice.throughput.or_else(|| self.run.get())
    }

    fn probability(&self, weight: f32) -> f32 {
        self.choice.reliability.as_ref().map_or(weight, |r| r.probability(weight.ln()))
    }

    fn tokens_of(&self, request: usize) -> u32 {
        self.tokens.min(self.pricer.tables.nested().emitted(request))
    }

    /// Gives the requests of a step (their rounds hold request and root) the trees that pay. `None` when no end has a usable
    /// cost.
    pub fn step(&mut self, rounds: &mut [Round]) -> Option<()> {
        let nested = self.pricer.tables.nested();
        let (mut context, mut draft_rows, mut most) = (0, 0, 0);
        for r in rounds.iter() {
            let roots = nested.root(r.request as usize, r.index);
            context += self.pricer.context(r.request, r.index);
            draft_rows += roots.levels + 1;
            most = most.max((roots.weights.len() as u32).min(self.choice.cap));
        }
        let requests = rounds.len() as u32;
        let context = (context / u64::from(requests.max(1))) as u32;
        let shape = StepShape { requests, rows: requests, context, draft_rows };
        match self.choice.scope {
            // Alone the two are the same; the heap of one request needs no sorting.
            Scope::BatchWide if requests > 1 => self.shared(rounds, &shape)?,
            Scope::BatchWide | Scope::PerRequest => self.each(rounds, &shape, most)?,
        }
        for (i, r) in rounds.iter_mut().enumerate() {
            let (request, index) = (r.request as usize, r.index);
            let (roots, tokens) = (nested.root(request, index), self.tokens_of(request));
            let shape = Shape::Best(self.counts[i]);
            *r = round(self.pricer.tables, request, index, &roots, shape, tokens, Some(&mut self.counter));
        }
        Some(())
    }

    /// What the last step came to, as a rule for single roots; `rounds` are its requests.
    pub fn rule(&self, rounds: &[Round]) -> Rule {
        if self.choice.scope == Scope::PerRequest || rounds.len() == 1 {
            let ms = self.curves.get(&self.last).cloned().unwrap_or_default();
            return Rule::Curve { ends: self.ends.clone(), ms, g: self.share(rounds.len() as u32) };
        }
        // The least probable node that was kept.
        let nested = self.pricer.tables.nested();
        let kept = rounds.iter().zip(&self.counts).filter_map(|(r, &n)| {
            let weights = nested.weights(r.request as usize, r.index);
            weights.get((n as usize).checked_sub(1)?).copied()
        });
        let least = kept.fold(f32::INFINITY, f32::min);
        // Nobody kept a node: no probability is enough.
        Rule::Threshold(if least.is_finite() { self.probability(least) } else { f32::INFINITY })
    }

    /// One request's part of the running throughput.
    fn share(&self, requests: u32) -> Option<f64> {
        self.throughput().map(|g| g / f64::from(requests))
    }

    fn each(&mut self, rounds: &[Round], shape: &StepShape, most: u32) -> Option<()> {
        per_request(self.pricer.cost.bucket_ends(), shape.requests, most, &mut self.ends);
        self.rows.clear();
        self.rows.extend(self.ends.iter().map(|n| shape.requests * (1 + n)));
        self.curve(shape, most);
        let nested = self.pricer.tables.nested();
        let (g, ms) = (self.share(shape.requests), &self.curves[&self.last]);
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        for r in rounds {
            let roots = nested.root(r.request as usize, r.index);
            counts.push(self.pays(&self.ends, ms, g, &roots)?);
        }
        self.counts = counts;
        Some(())
    }

    fn shared(&mut self, rounds: &[Round], shape: &StepShape) -> Option<()> {
        let nested = self.pricer.tables.nested();
        self.pool.clear();
        for r in rounds {
            let weights = nested.weights(r.request as usize, r.index);
            let kept = &weights[..weights.len().min(self.choice.cap as usize)];
            match &self.choice.reliability {
                None => self.pool.push(kept.iter().copied()),
                Some(map) => self.pool.push(kept.iter().map(|w| map.probability(w.ln()))),
            }
        }
        let most = self.pool.nodes();
        totals(self.pricer.cost.bucket_ends(), shape.requests, most, &mut self.ends);
        self.rows.clear();
        self.rows.extend(self.ends.iter().map(|n| shape.requests + n));
        self.curve(shape, most);
        self.phi.clear();
        self.phi.resize(self.ends.len(), 0.0);
        self.pool.phi(&self.ends, &mut self.phi);
        let tokens = self.phi.iter().map(|phi| f64::from(shape.requests) + phi);
        let ms = self.curves[&self.last].iter().copied();
        let chosen = choose(&self.choice.goal, self.throughput(), tokens.zip(ms))?;
        self.pool.counts(self.ends[chosen.end], &mut self.counts);
        Some(())
    }

    /// The curve over `self.rows`, asked for once; `self.last` names it.
    fn curve(&mut self, shape: &StepShape, most: u32) {
        self.last = (shape.context, shape.draft_rows, most);
        let (rows, cost) = (&self.rows, self.pricer.cost);
        self.curves.entry(self.last).or_insert_with(|| {
            let mut ms = vec![0.0; rows.len()];
            cost.curve(shape, rows, &mut ms);
            ms
        });
    }

    /// The nodes of a root on its own by a rule.
    pub fn alone(&self, rule: &Rule, roots: &Roots<'_>) -> Option<u32> {
        match rule {
            Rule::Curve { ends, ms, g } => self.pays(ends, ms, *g, roots),
            Rule::Threshold(least) => {
                let weights = &roots.weights[..roots.weights.len().min(self.choice.cap as usize)];
                Some(weights.iter().take_while(|w| self.probability(**w) >= *least).count() as u32)
            }
        }
    }

    /// The end that pays most for one root, when everyone takes as many nodes.
    fn pays(&self, ends: &[u32], ms: &[f64], g: Option<f64>, roots: &Roots<'_>) -> Option<u32> {
        let weights = &roots.weights[..roots.weights.len().min(self.choice.cap as usize)];
        let (mut phi, mut nodes) = (0.0, 0);
        let values = ends.iter().zip(ms).map(|(&end, &ms)| {
            let end = (end as usize).min(weights.len());
            phi += weights[nodes..end].iter().map(|&w| f64::from(self.probability(w))).sum::<f64>();
            nodes = end;
            (1.0 + phi, ms)
        });
        let chosen = choose(&self.choice.goal, g, values)?;
        Some(ends[chosen.end].min(weights.len() as u32))
    }
}
