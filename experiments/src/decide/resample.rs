//! Resamples of requests, drawn once and used for every candidate: that is what pairs them.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// How often each request occurs in each resample.
#[derive(Debug, Clone, PartialEq)]
pub struct Resamples {
    requests: usize,
    /// Resample by resample.
    counts: Vec<u16>,
}

impl Resamples {
    /// `resamples` draws of `requests` requests with replacement, by the generator that [`treeline_core::metrics::Bootstrap`]
    /// names.
    #[must_use]
    pub fn new(requests: usize, resamples: u32, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut counts = vec![0u16; requests * resamples as usize];
        for row in counts.chunks_exact_mut(requests.max(1)) {
            for _ in 0..requests {
                // The high half of a 64 × 64-bit product: an index below n, biased by less than n·2⁻⁶⁴.
                let index = ((u128::from(rng.next_u64()) * requests as u128) >> 64) as usize;
                row[index] = row[index].saturating_add(1);
            }
        }
        Self { requests, counts }
    }

    /// Σ numerators / Σ denominators of every resample; `parts` has one entry per request. A resample without a denominator
    /// gives NaN.
    ///
    /// # Panics
    /// Never: parts beyond the requests are left out.
    #[must_use]
    pub fn ratios(&self, parts: &[(f64, f64)]) -> Vec<f64> {
        let sums = |row: &[u16]| {
            row.iter()
                .zip(parts)
                .fold((0.0, 0.0), |(a, b), (&n, part)| (a + f64::from(n) * part.0, b + f64::from(n) * part.1))
        };
        self.counts.chunks_exact(self.requests.max(1)).map(sums).map(|(a, b)| a / b).collect()
    }
}

/// The central 95 % of draws; `None` when fewer than two of them are finite.
#[must_use]
pub(crate) fn central(draws: &[f64]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = draws.iter().copied().filter(|x| x.is_finite()).collect();
    if sorted.len() < 2 {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    // Linear between the two nearest order statistics (Hyndman and Fan's type 7).
    let at = |p: f64| {
        let at = p * (sorted.len() - 1) as f64;
        let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        low + (high - low) * at.fract()
    };
    Some((at(0.025), at(0.975)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use treeline_core::metrics::Bootstrap;

    /// The same draws as the core's bootstrap: the same interval.
    #[test]
    fn agrees_with_the_bootstrap_of_the_core() {
        let data: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i * 37 % 11) + 3.0, f64::from(i % 7) + 1.0)).collect();
        let ours = central(&Resamples::new(data.len(), 2000, 5).ratios(&data)).unwrap();
        let core = Bootstrap { seed: 5, resamples: 2000, level: 0.95 }.ratio(&data).unwrap();
        assert!((ours.0 - core.lo).abs() < 1e-12 && (ours.1 - core.hi).abs() < 1e-12, "{ours:?} {core:?}");
    }

    #[test]
    fn every_resample_has_as_many_requests() {
        let r = Resamples::new(7, 50, 1);
        assert!(r.counts.chunks(7).all(|row| row.iter().map(|&n| u32::from(n)).sum::<u32>() == 7));
        assert_eq!(Resamples::new(0, 50, 1).ratios(&[]), Vec::<f64>::new());
        assert_eq!(central(&[f64::NAN, 1.0]), None);
    }
}
