//! The roots that a chain's run visits, and their rows.

use super::curve::share;
use super::{Estimate, FitError};
use treeline_core::trace::{Position, Trace};

/// A root of the walk.
pub(super) struct Root<'a> {
    pub request: usize,
    pub at: &'a Position,
}

/// The walk over a trace with the rates that it shows.
pub(super) struct Walked<'a> {
    pub roots: Vec<Root<'a>>,
    pub requests: usize,
    pub rates: Vec<f64>,
    pub rate_errors: Vec<f64>,
    pub tau: f64,
}

/// One level of one root, its probabilities as the drafter would have to report them to be right.
pub(super) struct Row {
    pub request: usize,
    pub root: usize,
    pub level: usize,
    /// Probability of the first choice.
    pub first: f64,
    /// Log-probabilities of ranks 1, 2, ….
    pub rest: Vec<f64>,
    /// Share of 1 − `first` that the listed ranks hold.
    pub listed: f64,
    pub truth: Option<u32>,
}

impl<'a> Walked<'a> {
    pub fn of(trace: &'a Trace) -> Result<Self, FitError> {
        let depth = trace.meta.depth as usize;
        let (mut reached, mut right) = (vec![0u64; depth], vec![0u64; depth]);
        let mut roots = Vec::new();
        let (mut tokens, mut requests) = (0u64, 0);
        for (request, r) in trace.requests.iter().enumerate() {
            let mut index = 0;
            while let Some(at) = r.positions.get(index).filter(|p| !p.truth.is_empty()) {
                let chain = at.truth.iter().take_while(|t| **t == Some(0)).count();
                for d in 0..at.truth.len().min(chain + 1) {
                    reached[d] += 1;
                    right[d] += u64::from(d < chain);
                }
                tokens += chain as u64 + 1;
                roots.push(Root { request, at });
                index += chain + 1;
            }
            requests += usize::from(index > 0);
        }
        if requests < 2 {
            return Err(FitError::TooLittle("a fit needs at least two requests with drafts".into()));
        }
        if let Some(d) = reached.iter().position(|&n| n == 0) {
            let why = format!("no root of the chain's walk reaches depth {}: the trace is too short to fit it", d + 1);
            return Err(FitError::TooLittle(why));
        }
        let shares = right.iter().zip(&reached).map(|(&k, &n)| share(k, n));
        let (rates, rate_errors) = shares.map(|e| (e.value, e.error)).unzip();
        let tau = tokens as f64 / roots.len() as f64;
        Ok(Self { roots, requests, rates, rate_errors, tau })
    }

    /// All rows that the truth judges, probabilities raised to `temper` and normalised, what is not listed as one lump.
    pub fn rows(&self, temper: f64) -> Vec<Row> {
        let mut rows = Vec::new();
        for (root, r) in self.roots.iter().enumerate() {
            for (level, &truth) in r.at.truth.iter().enumerate() {
                let row = r.at.row(level as u32 + 1);
                let whole = log_whole(row, temper);
                let Some((&first, rest)) = row.split_first() else { continue };
                let first = (temper * f64::from(first) - whole).exp().clamp(1e-9, 1.0 - 1e-9);
                let rest: Vec<f64> = rest.iter().map(|&l| temper * f64::from(l) - whole).collect();
                let sum: f64 = rest.iter().map(|l| l.exp()).sum();
                let listed = (sum / (1.0 - first)).min(1.0);
                rows.push(Row { request: r.request, root, level, first, rest, listed, truth });
            }
        }
        rows
    }
}

/// ln Σ q^t over the listed ranks and the lump of the rest.
pub(super) fn log_whole(row: &[f32], t: f64) -> f64 {
    let listed: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
    let rest = (1.0 - listed).max(1e-9);
    (row.iter().map(|&l| (t * f64::from(l)).exp()).sum::<f64>() + rest.powf(t)).ln()
}

/// Mean and standard error of the mean's square root: a standard deviation with `freedom` degrees of freedom.
pub(super) fn deviation(variance: f64, freedom: f64) -> Estimate {
    let value = variance.max(0.0).sqrt();
    Estimate { value, error: value.max(1e-3) / (2.0 * freedom.max(1.0)).sqrt() }
}
