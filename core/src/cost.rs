//! A step cost given as points of a curve rows → ms.

use crate::seams::{StepCost, StepShape, StepTime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Milliseconds of a whole step by verified rows, linear between the points. Outside the points the end segments' values
/// are kept flat on the left and continued with the last slope on the right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CurvePoints", into = "CurvePoints")]
pub struct CostCurve {
    rows: Vec<u32>,
    ms: Vec<f64>,
}

/// The points as they stand in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurvePoints {
    rows: Vec<u32>,
    ms: Vec<f64>,
}

/// Why points are no curve.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CurveError {
    /// Lists of different length, or fewer than two points: a flat or empty table would pin every choice.
    #[error("a cost curve needs at least two points and as many `ms` as `rows` (got {rows} rows, {ms} ms)")]
    Length {
        /// Number of row counts.
        rows: usize,
        /// Number of times.
        ms: usize,
    },
    /// Row counts do not ascend, or start below 1.
    #[error("`rows` must ascend and start at 1 or more; entry {0} does not")]
    Order(usize),
    /// A time that is not a positive number.
    #[error("`ms` must be positive numbers; entry {0} is not")]
    Value(usize),
    /// Steps of the most rows take no longer than steps of the fewest.
    #[error(
        "`ms` end no higher than they begin: by a cost that is flat or falls, the largest tree would always be chosen; measure the curve"
    )]
    Flat,
}

impl CostCurve {
    /// A curve through the given points.
    ///
    /// # Errors
    /// [`CurveError`] names the entry that is wrong.
    pub fn new(rows: Vec<u32>, ms: Vec<f64>) -> Result<Self, CurveError> {
        if rows.len() != ms.len() || rows.len() < 2 {
            return Err(CurveError::Length { rows: rows.len(), ms: ms.len() });
        }
        if rows[0] == 0 {
            return Err(CurveError::Order(0));
        }
        if let Some(i) = rows.windows(2).position(|w| w[0] >= w[1]) {
            return Err(CurveError::Order(i + 1));
        }
        if let Some(i) = ms.iter().position(|x| !x.is_finite() || *x <= 0.0) {
            return Err(CurveError::Value(i));
        }
        // A dip between the ends is noise of the measurement; a curve that falls as a whole decides like a flat one.
        if ms[ms.len() - 1] <= ms[0] {
            return Err(CurveError::Flat);
        }
        Ok(Self { rows, ms })
    }

    /// Milliseconds of a step over `rows` rows.
    #[must_use]
    pub fn at(&self, rows: u32) -> f64 {
        let last = self.rows.len() - 1;
        let i = self.rows.partition_point(|&r| r <= rows);
        if i == 0 {
            return self.ms[0];
        }
        let i = i.min(last);
        let (r0, r1) = (f64::from(self.rows[i - 1]), f64::from(self.rows[i]));
        let (m0, m1) = (self.ms[i - 1], self.ms[i]);
        let t = (f64::from(rows) - r0) / (r1 - r0);
        // Beyond the last point a falling end segment would run below zero.
        if t > 1.0 { m1 + (m1 - m0).max(0.0) * (t - 1.0) } else { m0 + (m1 - m0) * t }
    }

    /// Row counts of the points.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Times of the points in ms.
    #[must_use]
    pub fn ms(&self) -> &[f64] {
        &self.ms
    }
}

impl StepCost for CostCurve {
    fn step(&self, shape: &StepShape) -> StepTime {
        StepTime { verify_ms: self.at(shape.rows), ..StepTime::default() }
    }
}

impl TryFrom<CurvePoints> for CostCurve {
    type Error = CurveError;

    fn try_from(p: CurvePoints) -> Result<Self, CurveError> {
        Self::new(p.rows, p.ms)
    }
}

impl From<CostCurve> for CurvePoints {
    fn from(c: CostCurve) -> Self {
        Self { rows: c.rows, ms: c.ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_interpolates_and_continues() {
        let c = CostCurve::new(vec![1, 3, 5], vec![10.0, 20.0, 22.0]).unwrap();
        let at: Vec<f64> = [0, 1, 2, 3, 4, 5, 7].iter().map(|&r| c.at(r)).collect();
        assert_eq!(at, [10.0, 10.0, 15.0, 20.0, 21.0, 22.0, 24.0]);
    }

    /// Public fault 44: a flat or empty cost table pins the choice, so it is refused.
    #[test]
    fn fault_44_flat_and_empty_curves_are_refused() {
        let bad = |rows: &[u32], ms: &[f64]| CostCurve::new(rows.to_vec(), ms.to_vec()).unwrap_err();
        assert_eq!(bad(&[], &[]), CurveError::Length { rows: 0, ms: 0 });
        assert_eq!(bad(&[1, 2], &[3.0, 3.0]), CurveError::Flat);
        assert_eq!(bad(&[1, 8, 64], &[3.0, 4.0, 2.0]), CurveError::Flat);
        assert!(CostCurve::new(vec![1, 8, 64], vec![3.0, 2.9, 4.0]).is_ok(), "a dip is noise");
        assert_eq!(bad(&[1, 1], &[3.0, 4.0]), CurveError::Order(1));
        assert_eq!(bad(&[0, 1], &[3.0, 4.0]), CurveError::Order(0));
        assert_eq!(bad(&[1, 2], &[3.0, f64::NAN]), CurveError::Value(1));
        // Control: by a flat cost, every extra node pays, however unlikely.
        let flat = |_: u32| 3.0;
        let real = CostCurve::new(vec![1, 17], vec![3.0, 12.0]).unwrap();
        let best = |cost: &dyn Fn(u32) -> f64| {
            let rate = |nodes: u32| (1.0 + (1..=nodes).map(|n| 0.5f64.powi(n as i32)).sum::<f64>()) / cost(1 + nodes);
            (0..=16).max_by(|&a, &b| rate(a).total_cmp(&rate(b)))
        };
        assert_eq!((best(&flat), best(&|rows| real.at(rows))), (Some(16), Some(2)));
    }
}
