//! Measured distinct experts: points of a run in place of a formula.

use super::{Distinct, ExpertsError};

/// Mean distinct experts of a layer, measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What was run: `chain 7`.
    pub label: String,
    /// Requests of the step.
    pub requests: u32,
    /// Rows of each, root included; a mean.
    pub rows: f64,
    /// What the trees were made of, where that is known.
    pub composition: Option<super::Composition>,
    /// Distinct experts of a layer, mean over steps and layers.
    pub distinct: f64,
}

/// Effective rows of one request by its rows, from measured points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// (rows, effective rows), ascending in both, from (1, 1).
    knots: Vec<(f64, f64)>,
}

impl Curve {
    /// The curve through points of a model whose experts are prepared in `distinct`. Points of several requests count as
    /// independent requests; points of equal rows are averaged; a point below one of fewer rows is lifted to it.
    ///
    /// # Errors
    /// No point with more than one row; a point that no number of rows can reach.
    pub fn new(points: &[Point], distinct: &Distinct) -> Result<Self, ExpertsError> {
        let mut found: Vec<(f64, f64)> = Vec::new();
        for p in points {
            let each = distinct.rows_for(p.distinct) / f64::from(p.requests.max(1));
            let sound = p.rows.is_finite() && p.rows >= 1.0 && p.requests > 0 && p.distinct > 0.0;
            if !sound || !each.is_finite() {
                let problem =
                    format!("{} distinct experts from {} × {} rows cannot be", p.distinct, p.requests, p.rows);
                return Err(ExpertsError::new(&format!("points.{}", p.label), problem));
            }
            if p.rows > 1.0 {
                found.push((p.rows, each.clamp(1.0, p.rows)));
            }
        }
        if found.is_empty() {
            return Err(ExpertsError::new("points", "no point has more than one row a request"));
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut knots = vec![(1.0, 1.0)];
        for group in found.chunk_by(|a, b| (a.0 - b.0).abs() < 1e-6) {
            let mean = group.iter().map(|p| p.1).sum::<f64>() / group.len() as f64;
            let floor = knots[knots.len() - 1].1;
            knots.push((group[0].0, mean.max(floor)));
        }
        Ok(Self { knots })
    }

    /// Effective rows of a request with `rows` rows: straight between points in both logarithms, and on with the last slope.
    #[must_use]
    pub fn effective(&self, rows: f64) -> f64 {
        let rows = rows.max(1.0);
        let last = self.knots.len() - 1;
        let i = self.knots.partition_point(|k| k.0 <= rows).clamp(1, last);
        let (a, b) = (self.knots[i - 1], self.knots[i]);
        let slope = (b.1 / a.1).ln() / (b.0 / a.0).ln();
        (a.1.ln() + slope.min(1.0) * (rows / a.0).ln()).exp().min(rows)
    }

    /// Most rows of a request that were measured; beyond them the curve is carried on.
    #[must_use]
    pub fn measured_to(&self) -> f64 {
        self.knots[self.knots.len() - 1].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::Popularity;

    fn point(requests: u32, rows: f64, distinct: f64) -> Point {
        Point { label: format!("{requests} × {rows}"), requests, rows, composition: None, distinct }
    }

    #[test]
    fn the_curve_goes_through_its_points() {
        let even = Distinct::new(&Popularity::Even, 256, 8);
        let points = [point(1, 15.0, 58.9), point(1, 8.0, 39.4)];
        let curve = Curve::new(&points, &even).unwrap();
        for p in &points {
            assert!((even.at(curve.effective(p.rows)) - p.distinct).abs() < 1e-6);
        }
        assert_eq!(curve.effective(1.0), 1.0);
        assert!(curve.effective(64.0) > curve.effective(15.0) && curve.effective(64.0) < 64.0);
        assert_eq!(curve.measured_to(), 15.0);
    }

    #[test]
    fn points_that_cannot_be_are_refused() {
        let even = Distinct::new(&Popularity::Even, 32, 4);
        for wrong in [point(1, 8.0, 40.0), point(0, 8.0, 9.0), point(1, f64::NAN, 9.0), point(1, 8.0, f64::NAN)] {
            assert!(Curve::new(std::slice::from_ref(&wrong), &even).is_err(), "{wrong:?}");
        }
        assert!(Curve::new(&[point(4, 1.0, 12.0)], &even).unwrap_err().to_string().contains("more than one row"));
    }
}
