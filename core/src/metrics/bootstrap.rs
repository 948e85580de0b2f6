//! Percentile bootstrap over requests: tokens of one response are not independent, responses are.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate on the data themselves.
    pub mid: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Requests behind it.
    pub n: usize,
}

/// How intervals are drawn. The generator is named (xoshiro256++) and the draw of an index is our own, so the same seed
/// gives the same interval with every version of the libraries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// Seed.
    pub seed: u64,
    /// Resamples.
    pub resamples: u32,
    /// Share of resamples inside the interval.
    pub level: f64,
}

impl Default for Bootstrap {
    /// 95 % from 2000 resamples.
    fn default() -> Self {
        Self { seed: 0, resamples: 2000, level: 0.95 }
    }
}

impl Bootstrap {
    /// Σ numerators / Σ denominators, e.g. τ from (tokens, steps) per request. Requests with denominator 0 (never
    /// stepped) are left out. `None` with fewer than two requests.
    #[must_use]
    pub fn ratio(&self, parts: &[(f64, f64)]) -> Option<Interval> {
        let used: Vec<[f64; 2]> = parts.iter().filter(|p| p.1 > 0.0).map(|&(a, b)| [a, b]).collect();
        self.interval(&used, |[a, b]| a / b)
    }

    /// Mean over requests. `None` with fewer than two.
    #[must_use]
    pub fn mean(&self, values: &[f64]) -> Option<Interval> {
        let used: Vec<[f64; 1]> = values.iter().map(|&x| [x]).collect();
        let n = used.len() as f64;
        self.interval(&used, move |[sum]| sum / n)
    }

    /// Difference (second − first) of the ratios of two cells over the *same* requests, resampled together: each item is
    /// the first and the second cell's (numerator, denominator) for one request. Requests that did not step in both are
    /// left out. `None` with fewer than two.
    #[must_use]
    pub fn paired_difference(&self, pairs: &[[(f64, f64); 2]]) -> Option<Interval> {
        self.interval(&both(pairs), |[a, b, c, d]| c / d - a / b)
    }

    /// Quotient (second / first) of the ratios of two cells over the same requests; otherwise as
    /// [`Bootstrap::paired_difference`]. Requests where the first cell's numerator is 0 are left out too.
    #[must_use]
    pub fn paired_ratio(&self, pairs: &[[(f64, f64); 2]]) -> Option<Interval> {
        let mut used = both(pairs);
        used.retain(|x| x[0] > 0.0);
        self.interval(&used, |[a, b, c, d]| (c / d) / (a / b))
    }

    /// Resamples requests, sums their parts, and takes `statistic` of the sums.
    fn interval<const K: usize>(&self, data: &[[f64; K]], statistic: impl Fn([f64; K]) -> f64) -> Option<Interval> {
        let n = data.len();
        if n < 2 {
            return None;
        }
        let sum = |rows: &mut dyn Iterator<Item = usize>| {
            let mut sums = [0.0; K];
            for row in rows {
                for (sum, x) in sums.iter_mut().zip(data[row]) {
                    *sum += x;
                }
            }
            sums
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        // The high half of a 64 × 64-bit product: an index below n, biased by less than n·2⁻⁶⁴.
        let mut index = || ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize;
        let mut draws: Vec<f64> = (0..self.resamples).map(|_| statistic(sum(&mut (0..n).map(|_| index())))).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - self.level) / 2.0;
        let mid = statistic(sum(&mut (0..n)));
        Some(Interval {
            mid,
            lo: quantile(&draws, tail).unwrap_or(mid),
            hi: quantile(&draws, 1.0 - tail).unwrap_or(mid),
            n,
        })
    }
}

fn both(pairs: &[[(f64, f64); 2]]) -> Vec<[f64; 4]> {
    let stepped = pairs.iter().filter(|p| p[0].1 > 0.0 && p[1].1 > 0.0);
    stepped.map(|&[(a, b), (c, d)]| [a, b, c, d]).collect()
}

/// Linear between the two nearest order statistics (Hyndman and Fan's type 7).
fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let at = p * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Bootstrap = Bootstrap { seed: 7, resamples: 2000, level: 0.95 };

    #[test]
    fn too_few_requests_give_no_interval() {
        assert_eq!(B.ratio(&[(10.0, 5.0)]), None);
        assert_eq!(B.ratio(&[(10.0, 5.0), (0.0, 0.0)]), None);
        assert_eq!(B.mean(&[1.0]), None);
        assert_eq!(B.paired_difference(&[[(1.0, 1.0), (2.0, 1.0)], [(1.0, 1.0), (0.0, 0.0)]]), None);
    }

    #[test]
    fn the_ratio_is_of_sums_and_the_seed_decides() {
        let data: Vec<(f64, f64)> = (1..=20).map(|i| (f64::from(i * 3), f64::from(20 + i))).collect();
        let (a, b) = data.iter().fold((0.0, 0.0), |s, d| (s.0 + d.0, s.1 + d.1));
        let got = B.ratio(&data).unwrap();
        assert_eq!((got.mid, got.n), (a / b, 20));
        assert!(got.lo < got.mid && got.mid < got.hi, "{got:?}");
        assert_eq!(B.ratio(&data), Some(got));
        assert_ne!(Bootstrap { seed: 8, ..B }.ratio(&data), Some(got));
    }

    /// The interval of a mean agrees with the normal approximation: ±1.96 standard errors.
    #[test]
    fn the_width_is_that_of_the_standard_error() {
        let data: Vec<f64> = (0..400).map(|i| f64::from(i * 37 % 101)).collect();
        let got = B.mean(&data).unwrap();
        let variance = data.iter().map(|x| (x - got.mid).powi(2)).sum::<f64>() / 400.0;
        let expected = 1.96 * (variance / 400.0).sqrt();
        for width in [got.mid - got.lo, got.hi - got.mid] {
            assert!((width / expected - 1.0).abs() < 0.12, "{width} against {expected}");
        }
    }

    /// Requests differ far more than the cells: only the paired interval tells the cells apart.
    #[test]
    fn pairing_removes_the_spread_between_requests() {
        let pairs: Vec<[(f64, f64); 2]> = (0..16)
            .map(|i| {
                let tau = 1.5 + f64::from(i * 7 % 16) / 5.0;
                [(tau * 40.0, 40.0), ((tau + 0.1 + f64::from(i % 3) * 0.02) * 38.0, 38.0)]
            })
            .collect();
        let alone: Vec<Interval> =
            (0..2).map(|c| B.ratio(&pairs.iter().map(|p| p[c]).collect::<Vec<_>>()).unwrap()).collect();
        assert!(alone[0].hi > alone[1].lo, "the cells' own intervals overlap: {alone:?}");
        let difference = B.paired_difference(&pairs).unwrap();
        assert!(difference.lo > 0.09 && difference.hi < 0.15, "{difference:?}");
        let quotient = B.paired_ratio(&pairs).unwrap();
        assert!(quotient.lo > 1.0, "{quotient:?}");
        assert!((quotient.mid - alone[1].mid / alone[0].mid).abs() < 1e-12);
    }
}
