//! Steps and what they add up to.

use super::Tables;
use super::tape::{Round, Tape};
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
///
/// What a round emits on the line that the steps stand on is known for all of it, so it is not sampled: only the time of the
/// steps is, and what the trees of a chooser emit beyond (or below) the line's own. Neighbouring budgets then differ by what
/// their trees accept and not by where their steps happened to stand.
pub(super) struct Sums {
    result: FastResult,
    rows: u64,
    cut: u64,
    padded: f64,
    experts: f64,
    counted: u64,
    joules: f64,
    /// By request, over its visits.
    visits: Vec<Visits>,
    replicates: Vec<Replicate>,
}

/// What the visits of one request came to.
#[derive(Debug, Clone, Copy, Default)]
struct Visits {
    count: f64,
    /// Tokens beyond the line's.
    beyond: i64,
    ms: f64,
}

/// Sums over one repetition.
#[derive(Debug, Clone, Copy, Default)]
struct Replicate {
    /// Tokens of its visits, had they been as those of all rounds of its line.
    tokens: f64,
    beyond: i64,
    ms: f64,
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
            visits: vec![Visits::default(); requests],
            replicates: Vec::new(),
        }
    }

    /// The next replicate begins: `visits` rounds on the line that `tape` is of `requests`.
    pub fn replicate(&mut self, tape: &Tape, requests: &[u32], visits: u64) {
        let rounds_of = |r: u32| f64::from(tape.of(r as usize).len() as u32);
        let scale = visits as f64 / requests.iter().map(|&r| rounds_of(r)).sum::<f64>();
        let mut replicate = Replicate::default();
        for &request in requests {
            let sums = &mut self.result.per_request[request as usize];
            let tokens = f64::from(tape.tokens[request as usize]) * scale;
            sums.rounds += rounds_of(request) * scale;
            sums.tokens += tokens;
            replicate.tokens += tokens;
        }
        self.replicates.push(replicate);
    }

    /// Takes in a step whose rounds emit `walked` tokens on the line; answers its tokens.
    pub fn add(&mut self, rounds: &[Round], walked: &[u16], price: &StepPrice) -> f64 {
        let (r, ms) = (&mut self.result, price.ms());
        let share = ms / rounds.len() as f64;
        let (mut tokens, mut beyond) = (0, 0);
        for (round, walked) in rounds.iter().zip(walked) {
            tokens += u64::from(round.emitted);
            self.rows += 1 + u64::from(round.edges.nodes());
            self.cut += u64::from(round.cut);
            let more = i64::from(round.emitted) - i64::from(*walked);
            beyond += more;
            let own = &mut self.visits[round.request as usize];
            own.count += 1.0;
            own.beyond += more;
            own.ms += share;
        }
        r.steps += 1;
        r.rounds += rounds.len() as u64;
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
            replicate.beyond += beyond;
            replicate.ms += ms;
        }
        tokens as f64
    }

    /// The figures.
    pub fn finish(mut self, ranks: u32) -> FastResult {
        self.per_request();
        let mut r = self.result;
        let (steps, rounds) = (r.steps as f64, r.rounds as f64);
        r.tokens = r.per_request.iter().map(|s| s.tokens).sum();
        r.phases.ms.iter_mut().for_each(|ms| *ms /= steps);
        r.tau = r.tokens / rounds;
        r.step_ms = r.ms / steps;
        r.tok_s = r.tokens / r.ms * 1e3;
        r.rows_mean = self.rows as f64 / rounds;
        r.padded_rows_mean = self.padded / steps;
        r.experts_mean = (self.counted > 0).then(|| self.experts / self.counted as f64);
        r.watts = self.joules / (r.ms / 1e3);
        r.joules_per_token = self.joules * f64::from(ranks) / r.tokens;
        r.cut_share = self.cut as f64 / rounds;
        r.mc_error = relative_error(&self.replicates);
        r
    }

    /// Adds what the visits of each request came to, in the proportion of its rounds; a request without a visit has the mean
    /// of all.
    fn per_request(&mut self) {
        let FastResult { per_request, rounds, ms, .. } = &mut self.result;
        let beyond = self.visits.iter().map(|v| v.beyond).sum();
        let all = Visits { count: *rounds as f64, beyond, ms: *ms };
        for (sums, own) in per_request.iter_mut().zip(&self.visits) {
            let of = if own.count > 0.0 { own } else { &all };
            sums.tokens += sums.rounds * of.beyond as f64 / of.count;
            sums.ms = sums.rounds * of.ms / of.count;
        }
        // Their sum stays the time of all steps.
        let to_all = *ms / per_request.iter().map(|s| s.ms).sum::<f64>();
        per_request.iter_mut().for_each(|s| s.ms *= to_all);
    }
}

/// Relative standard error of the mean rate of independent replicates.
fn relative_error(replicates: &[Replicate]) -> f64 {
    let n = replicates.len() as f64;
    let rates = || replicates.iter().map(|r| (r.tokens + r.beyond as f64) / r.ms);
    let mean = rates().sum::<f64>() / n;
    let square = rates().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (square / n).sqrt() / mean
}
