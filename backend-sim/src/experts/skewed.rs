//! Popularity of experts: how unevenly a router chooses.

use super::{ExpertsError, uniform};

/// How likely each expert is to be among the `top_k` of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Popularity {
    /// All the same.
    Even,
    /// Falling as rank^−exponent; an expert that every row would choose more than once is chosen by every row, and the
    /// others share what is left.
    Zipf {
        /// 0: even.
        exponent: f64,
    },
    /// Relative weights, one an expert, in any order: counts of a run, for example. Capped as under Zipf.
    List(Vec<f64>),
}

impl Popularity {
    /// Checks the numbers against a model with `total` experts.
    ///
    /// # Errors
    /// A weight that is negative or not finite, a list of another length, fewer than `top_k` weights above zero.
    pub fn check(&self, total: u32, top_k: u32) -> Result<(), ExpertsError> {
        match self {
            Self::Even => Ok(()),
            Self::Zipf { exponent } if exponent.is_finite() && *exponent >= 0.0 => Ok(()),
            Self::Zipf { exponent } => {
                Err(ExpertsError::new("popularity.exponent", format!("is {exponent}; it must be zero or more")))
            }
            Self::List(list) if list.len() != total as usize => {
                let problem = format!("has {} weights, but the model has {total} experts a layer", list.len());
                Err(ExpertsError::new("popularity", problem))
            }
            Self::List(list) => match list.iter().position(|w| !w.is_finite() || *w < 0.0) {
                Some(i) => Err(ExpertsError::new("popularity", format!("weight {i} is {}", list[i]))),
                None if list.iter().filter(|w| **w > 0.0).count() < top_k as usize => {
                    Err(ExpertsError::new("popularity", format!("has fewer than {top_k} weights above zero")))
                }
                None => Ok(()),
            },
        }
    }

    /// Probability of each expert to be among a row's choice, π_e ≤ 1, Σ π_e = `top_k`.
    #[must_use]
    pub fn probabilities(&self, total: u32, top_k: u32) -> Vec<f64> {
        let weights: Vec<f64> = match self {
            Self::Even => vec![1.0; total as usize],
            Self::Zipf { exponent } => (1..=total).map(|r| f64::from(r).powf(-exponent)).collect(),
            Self::List(list) => list.clone(),
        };
        capped(&weights, f64::from(top_k.min(total)))
    }
}

/// Scales weights to the sum `k` with none above 1.
fn capped(weights: &[f64], k: f64) -> Vec<f64> {
    let mut full = vec![false; weights.len()];
    // Each pass fills one expert at least.
    for _ in 0..=weights.len() {
        let (mut left, mut sum) = (k, 0.0);
        for (w, full) in weights.iter().zip(&full) {
            if *full {
                left -= 1.0;
            } else {
                sum += w;
            }
        }
        let scale = if sum > 0.0 { left.max(0.0) / sum } else { 0.0 };
        let mut grew = false;
        for (w, full) in weights.iter().zip(full.iter_mut()) {
            if !*full && w * scale > 1.0 {
                (*full, grew) = (true, true);
            }
        }
        if !grew {
            return weights.iter().zip(&full).map(|(w, full)| if *full { 1.0 } else { w * scale }).collect();
        }
    }
    vec![1.0; weights.len()]
}

/// Expected distinct experts of a model, prepared for many queries: Σ_e 1 − (1 − π_e)^T.
#[derive(Debug, Clone, PartialEq)]
pub struct Distinct {
    total: u32,
    top_k: u32,
    /// ln(1 − π_e) and how many experts have it; empty: even.
    logs: Vec<(f64, f64)>,
}

impl Distinct {
    /// Prepares for a model with `total` experts of which a row uses `top_k`.
    #[must_use]
    pub fn new(popularity: &Popularity, total: u32, top_k: u32) -> Self {
        let mut logs: Vec<(f64, f64)> = Vec::new();
        if *popularity != Popularity::Even {
            for p in popularity.probabilities(total, top_k) {
                let log = (-p).ln_1p();
                match logs.last_mut() {
                    Some(last) if last.0 == log => last.1 += 1.0,
                    _ => logs.push((log, 1.0)),
                }
            }
        }
        Self { total, top_k, logs }
    }

    /// Distinct experts that `rows` independent rows touch.
    #[must_use]
    pub fn at(&self, rows: f64) -> f64 {
        if rows <= 0.0 {
            return 0.0;
        }
        if self.logs.is_empty() {
            return uniform::distinct(self.total, self.top_k, rows);
        }
        self.logs.iter().map(|(log, count)| count * -(rows * log).exp_m1()).sum()
    }

    /// The independent rows that would touch `distinct` experts; infinite where no number does.
    #[must_use]
    pub fn rows_for(&self, distinct: f64) -> f64 {
        if self.logs.is_empty() {
            return uniform::rows_for(self.total, self.top_k, distinct);
        }
        let reachable: f64 = self.logs.iter().filter(|l| l.0 < 0.0).map(|l| l.1).sum();
        if distinct >= reachable {
            return f64::INFINITY;
        }
        let (mut low, mut high) = (0.0, 1.0);
        while self.at(high) < distinct && high < 1e12 {
            high *= 2.0;
        }
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if self.at(middle) < distinct {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_the_choice_and_never_exceed_one() {
        for popularity in [
            Popularity::Even,
            Popularity::Zipf { exponent: 0.9 },
            Popularity::Zipf { exponent: 3.0 },
            Popularity::List((0..32).map(|i| if i < 5 { 100.0 } else { f64::from(i % 3) }).collect()),
        ] {
            let p = popularity.probabilities(32, 4);
            assert!((p.iter().sum::<f64>() - 4.0).abs() < 1e-9, "{popularity:?}");
            assert!(p.iter().all(|p| (0.0..=1.0).contains(p)), "{popularity:?}");
        }
    }

    #[test]
    fn skew_touches_fewer_experts_and_the_inverse_leads_back() {
        let skewed = Distinct::new(&Popularity::Zipf { exponent: 0.9 }, 384, 8);
        let even = Distinct::new(&Popularity::Zipf { exponent: 0.0 }, 384, 8);
        for rows in [2.0, 17.0, 65.0] {
            assert!(skewed.at(rows) < even.at(rows));
            assert!((even.at(rows) - uniform::distinct(384, 8, rows)).abs() < 1e-9);
            assert!((skewed.rows_for(skewed.at(rows)) - rows).abs() < 1e-6);
        }
        assert_eq!(skewed.rows_for(384.0), f64::INFINITY);
    }

    #[test]
    fn wrong_lists_are_named() {
        let problem = |p: Popularity| p.check(4, 2).unwrap_err().to_string();
        assert!(problem(Popularity::List(vec![1.0])).contains("1 weights, but the model has 4"));
        assert!(problem(Popularity::List(vec![1.0, f64::NAN, 1.0, 1.0])).contains("weight 1 is NaN"));
        assert!(problem(Popularity::List(vec![1.0, 0.0, 0.0, 0.0])).contains("fewer than 2"));
        assert!(problem(Popularity::Zipf { exponent: f64::NAN }).contains("exponent"));
    }
}
