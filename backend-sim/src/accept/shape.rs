//! From the rates that a run shows to the logits that make it show them.
//!
//! Counters of an engine pool rounds. A request of many rounds (a hard one) weighs more there than an easy one of as many
//! tokens, and within a round a deeper position is only reached where the ones before were accepted. Both are integrals
//! over the request's and the position's easiness, solved position by position.

use super::process::{Process, ProcessError};

/// 1 / (1 + e^−x).
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// ln(p / (1 − p)).
pub(super) fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

/// Nodes of the rule for a standard normal variable: equal steps over ±5, which converges exponentially there.
const NODES: usize = 21;

fn normal_rule() -> [(f64, f64); NODES] {
    let mut rule = [(0.0, 0.0); NODES];
    let mut sum = 0.0;
    for (i, (x, w)) in rule.iter_mut().enumerate() {
        *x = -5.0 + 10.0 * i as f64 / (NODES - 1) as f64;
        *w = (-0.5 * *x * *x).exp();
        sum += *w;
    }
    rule.iter_mut().for_each(|(_, w)| *w /= sum);
    rule
}

/// E σ(m + spread·ε) as a table over m.
struct Mean {
    values: Vec<f64>,
}

const EDGE: f64 = 60.0;
const STEP: f64 = 0.02;

impl Mean {
    fn new(spread: f64) -> Self {
        let rule = normal_rule();
        let at = |m: f64| rule.iter().map(|(x, w)| w * logistic(m + spread * x)).sum();
        let count = (2.0 * EDGE / STEP) as usize + 2;
        Self { values: (0..count).map(|i| at(-EDGE + STEP * i as f64)).collect() }
    }

    fn at(&self, m: f64) -> f64 {
        let place = (m.clamp(-EDGE, EDGE) + EDGE) / STEP;
        let i = (place as usize).min(self.values.len() - 2);
        let f = place - i as f64;
        self.values[i] * (1.0 - f) + self.values[i + 1] * f
    }
}

/// The solved logits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// μ_1 … μ_L.
    pub mean: Vec<f64>,
}

impl Shape {
    /// Solves the μ_d of a process.
    pub fn of(process: &Process) -> Result<Self, ProcessError> {
        let rates = &process.conditional.values;
        let (a, b) = (process.request_spread.value, process.position_spread.value);
        let mean_of = Mean::new(process.confidence_spread.value);
        let rule = normal_rule();
        // Rows: the request's easiness; columns: the position's. `weight` pools rounds, so it is 1/τ of the request.
        let mut weight: Vec<f64> = rule.iter().map(|r| r.1).collect();
        let mut mean: Vec<f64> = rates.iter().map(|r| logit(*r)).collect();
        for _ in 0..40 {
            let mut alive: Vec<f64> = weight.iter().flat_map(|w| rule.iter().map(move |r| w * r.1)).collect();
            let mut tau = vec![1.0; NODES];
            let shift = |at: usize| a * rule[at / NODES].0 + b * rule[at % NODES].0;
            for (mu, rate) in mean.iter_mut().zip(rates) {
                let total: f64 = alive.iter().sum();
                let share = |mu: f64| -> f64 {
                    alive.iter().enumerate().map(|(i, w)| w * mean_of.at(mu + shift(i))).sum::<f64>() / total
                };
                *mu = solve(*mu, *rate, share);
                for (i, w) in alive.iter_mut().enumerate() {
                    *w *= mean_of.at(*mu + shift(i));
                }
                for (z, t) in tau.iter_mut().enumerate() {
                    *t += alive[z * NODES..(z + 1) * NODES].iter().sum::<f64>() / weight[z];
                }
            }
            let mut next: Vec<f64> = rule.iter().zip(&tau).map(|(r, t)| r.1 / t).collect();
            let sum: f64 = next.iter().sum();
            next.iter_mut().for_each(|w| *w /= sum);
            let moved: f64 = next.iter().zip(&weight).map(|(x, y)| (x - y).abs()).sum();
            weight = next;
            if moved < 1e-8 {
                break;
            }
        }
        if mean.iter().any(|m| !m.is_finite() || m.abs() > 38.0) {
            return Err(
                process.value("conditional", "no process of these spreads shows such rates: make the spreads smaller")
            );
        }
        Ok(Self { mean })
    }
}

/// Where the rising `share` is `rate`: secant steps within a shrinking bracket.
fn solve(start: f64, rate: f64, share: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (start - 60.0, start + 60.0);
    let (mut at, mut slope) = (start, 0.2);
    let mut last: Option<(f64, f64)> = None;
    for _ in 0..80 {
        let miss = share(at) - rate;
        if miss.abs() < 1e-11 {
            break;
        }
        if miss < 0.0 {
            low = at
        } else {
            high = at
        }
        if let Some((x, y)) = last
            && (at - x).abs() > 1e-12
        {
            slope = ((miss - y) / (at - x)).max(1e-12);
        }
        last = Some((at, miss));
        let next = at - miss / slope;
        at = if next > low && next < high { next } else { 0.5 * (low + high) };
    }
    at
}
