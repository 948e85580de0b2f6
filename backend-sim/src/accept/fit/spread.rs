//! Spreads by moments: how far logits lie apart between requests, positions and levels.

use super::Estimate;
use super::likelihood::each;
use super::walk::{Row, deviation};
use crate::accept::chain::Penalties;
use std::collections::BTreeMap;

/// Logits beyond this are all but certain; how far beyond says nothing about acceptance.
const SURE: f64 = 8.0;

pub(super) struct Spreads {
    pub request: Estimate,
    pub position: Estimate,
    pub confidence: Estimate,
}

/// Nested analysis of variance of the spine's logits, means of the levels taken off. Only roots with all levels count.
pub(super) fn spreads(rows: &[Row], all: &Penalties) -> Spreads {
    let depth = rows.iter().map(|r| r.level + 1).max().unwrap_or(1);
    let mut roots: BTreeMap<usize, (usize, Vec<f64>)> = BTreeMap::new();
    each(rows, all, |row, logit, _| {
        roots.entry(row.root).or_insert((row.request, Vec::new())).1.push(logit.clamp(-SURE, SURE));
    });
    let mut full: Vec<(usize, Vec<f64>)> = roots.into_values().filter(|(_, x)| x.len() == depth).collect();
    let count = full.len().max(1) as f64;
    for level in 0..depth {
        let mean = full.iter().map(|(_, x)| x[level]).sum::<f64>() / count;
        full.iter_mut().for_each(|(_, x)| x[level] -= mean);
    }
    let means: Vec<f64> = full.iter().map(|(_, x)| x.iter().sum::<f64>() / depth as f64).collect();
    let within: f64 = full.iter().zip(&means).map(|((_, x), m)| x.iter().map(|v| (v - m).powi(2)).sum::<f64>()).sum();
    let levels = ((depth - 1) as f64 * count).max(1.0);
    let confidence = within / levels;
    let mut requests: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    full.iter().zip(&means).for_each(|((request, _), m)| requests.entry(*request).or_default().push(*m));
    let groups = requests.len() as f64;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len().max(1) as f64;
    let inside: f64 = requests.values().map(|x| x.iter().map(|v| (v - mean(x)).powi(2)).sum::<f64>()).sum();
    let freedom = (count - groups).max(1.0);
    let block = inside / freedom;
    let whole = means.iter().sum::<f64>() / count;
    let between: f64 =
        requests.values().map(|x| x.len() as f64 * (mean(x) - whole).powi(2)).sum::<f64>() / (groups - 1.0).max(1.0);
    let squares: f64 = requests.values().map(|x| (x.len() as f64).powi(2)).sum();
    // The usual mean size of unequal groups.
    let size = ((count - squares / count) / (groups - 1.0).max(1.0)).max(1.0);
    Spreads {
        request: deviation((between - block) / size, groups - 1.0),
        position: deviation(block - confidence / depth as f64, freedom),
        confidence: deviation(confidence, levels),
    }
}

/// How far the exponents of rows lie from a line over the logit below even odds: the slope of a row's own log-probabilities
/// over its first ranks. Rows whose rank 1 all but equals the first choice say how flat they had to be, not how steep.
pub(super) fn exponents(rows: &[Row]) -> Estimate {
    let own = |row: &Row| {
        let used = &row.rest[..row.rest.len().min(15)];
        if used.len() < 3 || used.iter().any(|l| !l.is_finite()) || used[0] > row.first.ln() - 0.1 {
            return None;
        }
        let x: Vec<f64> = (1..=used.len()).map(|k| (k as f64).ln()).collect();
        let (mx, my) = (x.iter().sum::<f64>() / x.len() as f64, used.iter().sum::<f64>() / x.len() as f64);
        let rise: f64 = x.iter().zip(used).map(|(x, y)| (x - mx) * (y - my)).sum();
        let run: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
        Some(((row.first / (1.0 - row.first)).ln().min(0.0), -rise / run))
    };
    let points: Vec<(f64, f64)> = rows.iter().filter_map(own).collect();
    let n = points.len().max(1) as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let run: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / run.max(1e-9);
    let rest: f64 = points.iter().map(|p| (p.1 - my - slope * (p.0 - mx)).powi(2)).sum();
    deviation(rest / n, n)
}
