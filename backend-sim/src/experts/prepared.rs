//! An expert model compiled for one target: look-ups in place of sums.

use super::{Distinct, Experts};

/// [`Experts`] for one model, for millions of queries.
#[derive(Debug, Clone)]
pub struct Prepared {
    distinct: Distinct,
    /// Effective rows of one request with 1, 2, … rows.
    each: Vec<f64>,
    experts: Experts,
}

impl Prepared {
    /// Prepares for `total` experts, `top_k` a row, and up to `rows` rows a request; more are computed when asked for.
    #[must_use]
    pub fn new(experts: &Experts, total: u32, top_k: u32, rows: u32) -> Self {
        let each = (1..=rows.max(2)).map(|r| experts.effective_of(f64::from(r), None)).collect();
        Self { distinct: Distinct::new(experts.popularity(), total, top_k), each, experts: experts.clone() }
    }

    /// As [`Experts::distinct`].
    #[must_use]
    pub fn distinct(&self, effective_rows: f64) -> f64 {
        self.distinct.at(effective_rows)
    }

    /// As [`Experts::effective_rows`], straight between whole rows a request.
    #[must_use]
    pub fn effective_rows(&self, requests: u32, rows: u32) -> f64 {
        if requests == 0 || rows <= requests {
            return f64::from(if requests == 0 { 0 } else { rows });
        }
        let (whole, part) = (rows / requests, f64::from(rows % requests) / f64::from(requests));
        let at = |r: u32| {
            let known = self.each.get(r as usize - 1).copied();
            known.unwrap_or_else(|| self.experts.effective_of(f64::from(r), None))
        };
        let low = at(whole);
        let each = if part > 0.0 { low + part * (at(whole + 1) - low) } else { low };
        f64::from(requests) * each
    }
}
