//! Steps and what they add up to.

use super::Tables;
use super::tape::Round;
use super::types::{FastResult, Load, RequestSums};
use crate::batch::Pricing;
use crate::batch::worth::Worth;
use crate::cost::{StepPrice, StepQuery};

/// Prices steps of one cell.
pub(super) struct Pricer<'c> {
    pub tables: &'c Tables<'c>,
    pub cost: &'c dyn Pricing,
    pub load: &'c Load<'c>,
    pub worth: Worth,
}

impl Pricer<'_> {
    /// Context of a root: where its response is placed, and the tokens of it.
    #[inline]
    pub fn context(&self, request: u32, index: u32) -> u64 {
        let prompt = self.load.context.unwrap_or_else(|| self.tables.nested().prompt_tokens(request as usize));
        u64::from(prompt) + u64::from(index)
    }

    /// What a step of these rounds costs.
    pub fn price(&self, rounds: &[Round]) -> StepPrice {
        let mut query = StepQuery { requests: rounds.len() as u32, rows: rounds.len() as u32, ..StepQuery::default() };
        let mut effective = 0.0;
        for round in rounds {
            query.rows += round.edges.nodes();
            query.context_sum += self.context(round.request, round.index);
            query.draft_requests += u32::from(round.drafted);
            effective += self.worth.of(round.edges, self.tables.factor(round.request));
        }
        query.draft_rows = query.draft_requests * self.load.draft_rows;
        query.effective_rows = self.worth.counts().then_some(effective);
        self.cost.price(&query)
    }
}

/// Sums over the steps of a cell.
pub(super) struct Sums {
    result: FastResult,
    rows: u64,
    cut: u64,
    padded: f64,
    experts: f64,
    counted: u64,
    joules: f64,
    /// (tokens, ms) of each replicate.
    replicates: Vec<(f64, f64)>,
}

impl Sums {
    pub fn new(requests: usize) -> Self {
        let per_request = vec![RequestSums::default(); requests];
        Self {
            result: FastResult { per_request, in_domain: true, ..FastResult::default() },
            rows: 0,
            cut: 0,
            padded: 0.0,
            experts: 0.0,
            counted: 0,
            joules: 0.0,
            replicates: Vec::new(),
        }
    }

    /// The next replicate begins.
    pub fn replicate(&mut self) {
        self.replicates.push((0.0, 0.0));
    }

    /// Takes in a step; answers its tokens.
    pub fn add(&mut self, rounds: &[Round], price: &StepPrice) -> f64 {
        let (r, ms) = (&mut self.result, price.ms());
        let share = ms / rounds.len() as f64;
        let mut tokens = 0;
        for round in rounds {
            let emitted = u64::from(round.emitted);
            tokens += emitted;
            self.rows += 1 + u64::from(round.edges.nodes());
            self.cut += u64::from(round.cut);
            let sums = &mut r.per_request[round.request as usize];
            sums.tokens += emitted as f64;
            sums.rounds += 1.0;
            sums.ms += share;
        }
        r.steps += 1;
        r.rounds += rounds.len() as u64;
        r.tokens += tokens;
        r.ms += ms;
        for (sum, ms) in r.phases.ms.iter_mut().zip(price.phases.ms) {
            *sum += ms;
        }
        r.in_domain &= price.in_domain;
        self.padded += f64::from(price.padded_rows);
        if let Some(experts) = price.experts {
            self.experts += experts;
            self.counted += 1;
        }
        self.joules += price.joules;
        if let Some(replicate) = self.replicates.last_mut() {
            replicate.0 += tokens as f64;
            replicate.1 += ms;
        }
        tokens as f64
    }

    /// The figures.
    pub fn finish(self, ranks: u32) -> FastResult {
        let mut r = self.result;
        let (steps, rounds, tokens) = (r.steps as f64, r.rounds as f64, r.tokens as f64);
        r.phases.ms.iter_mut().for_each(|ms| *ms /= steps);
        r.tau = tokens / rounds;
        r.step_ms = r.ms / steps;
        r.tok_s = tokens / r.ms * 1e3;
        r.rows_mean = self.rows as f64 / rounds;
        r.padded_rows_mean = self.padded / steps;
        r.experts_mean = (self.counted > 0).then(|| self.experts / self.counted as f64);
        r.watts = self.joules / (r.ms / 1e3);
        r.joules_per_token = self.joules * f64::from(ranks) / tokens;
        r.cut_share = self.cut as f64 / rounds;
        r.mc_error = relative_error(&self.replicates);
        r
    }
}

/// Relative standard error of the mean rate of independent replicates.
fn relative_error(replicates: &[(f64, f64)]) -> f64 {
    let n = replicates.len() as f64;
    let rates = || replicates.iter().map(|(tokens, ms)| tokens / ms);
    let mean = rates().sum::<f64>() / n;
    let square = rates().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (square / n).sqrt() / mean
}
