//! Distinct experts of a batch's rows, tabulated: a price must not sum over hundreds of experts.

/// Effective rows up to which every count is kept.
const EXACT: usize = 512;
const STEP: usize = 16;
const COARSE: usize = 496;
/// Rows of one request up to which the typical composition is kept.
const ROWS: usize = 1024;

/// Distinct experts by effective rows, and effective rows by a request's rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Distinct {
    /// By effective rows: every count up to [`EXACT`], then every [`STEP`]th.
    by_rows: Vec<f64>,
    /// Effective rows of one request by its rows.
    composition: Vec<f64>,
    experts: f64,
    top_k: f64,
}

impl Distinct {
    /// Tabulates `distinct(effective rows)` and `effective(rows of one request)`.
    pub(super) fn new(experts: u32, top_k: u32, distinct: impl Fn(f64) -> f64, effective: impl Fn(u32) -> f64) -> Self {
        let (e, k) = (f64::from(experts), f64::from(top_k));
        let clean = |x: f64, most: f64| if x.is_finite() { x.clamp(0.0, most) } else { 0.0 };
        let rows = (0..=EXACT).chain((1..=COARSE).map(|i| EXACT + i * STEP));
        Self {
            by_rows: rows.map(|r| if r == 0 { 0.0 } else { clean(distinct(r as f64), e) }).collect(),
            composition: (0..=ROWS as u32)
                .map(|r| if r == 0 { 0.0 } else { clean(effective(r), f64::from(r)) })
                .collect(),
            experts: e,
            top_k: k,
        }
    }

    /// Distinct experts of so many rows of independent text: linear between tabulated counts.
    pub(super) fn at(&self, effective: f64) -> f64 {
        if effective.is_nan() || effective <= 0.0 {
            return 0.0;
        }
        if effective < 1.0 {
            return self.top_k * effective;
        }
        let x =
            if effective <= EXACT as f64 { effective } else { EXACT as f64 + (effective - EXACT as f64) / STEP as f64 };
        let last = self.by_rows.len() - 1;
        let i = (x as usize).min(last);
        let j = (i + 1).min(last);
        let share = (x - i as f64).min(1.0);
        (self.by_rows[i] + share * (self.by_rows[j] - self.by_rows[i])).min(self.experts)
    }

    /// Effective rows of `requests` requests that share `rows` rows, requests independent of each other.
    pub(super) fn effective(&self, requests: f64, rows: f64) -> f64 {
        if requests <= 0.0 {
            return 0.0;
        }
        let each = rows / requests;
        let i = (each as usize).min(ROWS - 1);
        let (low, high) = (self.composition[i], self.composition[i + 1]);
        // Ragged requests lie between two counts; beyond the last the last row's novelty goes on.
        requests * (low + (each - i as f64) * (high - low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabulated_experts_follow_the_formula() {
        let exact = |rows: f64| 384.0 * (1.0 - (1.0 - 8.0 / 384.0_f64).powf(rows));
        let d = Distinct::new(384, 8, exact, f64::from);
        for rows in [1.0, 2.5, 8.0, 16.0, 65.0, 511.5, 600.0, 4000.0, 1e9] {
            assert!((d.at(rows) - exact(rows)).abs() < 0.05, "{rows}: {} against {}", d.at(rows), exact(rows));
        }
        // The table of the formula book.
        for (rows, experts) in [(8.0, 60.0), (16.0, 110.0), (17.0, 116.0), (33.0, 192.0), (65.0, 286.0)] {
            assert!((d.at(rows) - experts).abs() < 0.6, "{rows}");
        }
        assert_eq!(d.at(f64::NAN), 0.0);
        assert!((d.effective(4.0, 36.0) - 36.0).abs() < 1e-9);
        assert!((d.effective(3.0, 10.0) - 10.0).abs() < 1e-9, "ragged");
        assert!(d.effective(1.0, 1e9) > 1e8);
    }
}
