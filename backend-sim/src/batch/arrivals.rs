//! When requests arrive.

use super::BatchError;
use treeline_core::stream::{philox4x32, unit};

/// The most requests per second that an open loop takes.
const RATE_MOST: f64 = 1e6;

/// When the requests of a run arrive, in list order.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Closed loop: the next request is there whenever a slot is free.
    Closed,
    /// Open loop: independent exponential gaps, `per_s` requests per second on average. The stream is a function of the
    /// seed and the request's place in the list.
    Poisson {
        /// Requests per second.
        per_s: f64,
        /// Seed of the gaps.
        seed: u64,
    },
    /// Open loop at given times in ms from the start, ascending, one a request.
    Times {
        /// The times in ms.
        ms: Vec<f64>,
    },
}

impl Arrivals {
    /// Arrival of each of `count` requests in ms.
    ///
    /// # Errors
    /// [`BatchError::Value`]: a rate that is not in (0, 10⁶] per second; times that are not finite, not ascending, or not
    /// as many as requests.
    pub fn times(&self, count: usize) -> Result<Vec<f64>, BatchError> {
        let value = |key, value: String, rule| Err(BatchError::Value { key, value, rule });
        match self {
            Self::Closed => Ok(vec![0.0; count]),
            Self::Poisson { per_s, seed } => {
                // Written so that NaN is refused too.
                if !(*per_s > 0.0 && *per_s <= RATE_MOST) {
                    return value("per_s", per_s.to_string(), "requests per second must be above 0 and at most 1e6");
                }
                let mean_ms = 1e3 / per_s;
                let gaps = (0..count as u64).map(|i| mean_ms * gap(*seed, i));
                Ok(gaps.scan(0.0, |next, gap| Some(std::mem::replace(next, *next + gap))).collect())
            }
            Self::Times { ms } => {
                if ms.len() != count {
                    return value("times", format!("{} times", ms.len()), "must be one time per request of the run");
                }
                if let Some(bad) = ms.iter().find(|t| !(t.is_finite() && **t >= 0.0)) {
                    return value("times", bad.to_string(), "must be finite and not below 0");
                }
                if let Some(w) = ms.windows(2).find(|w| w[0] > w[1]) {
                    return value("times", format!("{} before {}", w[0], w[1]), "must ascend");
                }
                Ok(ms.clone())
            }
        }
    }
}

/// Standard exponential number of request `index`.
fn gap(seed: u64, index: u64) -> f64 {
    let bits = philox4x32([index as u32, (index >> 32) as u32, 0, 0x6172_7276], [seed as u32, (seed >> 32) as u32]);
    -unit(bits[0]).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisson_stream_has_its_rate_and_is_a_function_of_the_seed() {
        let at = |per_s, seed, count| Arrivals::Poisson { per_s, seed }.times(count).unwrap();
        let times = at(40.0, 3, 20_000);
        assert!(times.is_sorted() && times[0] == 0.0);
        let mean = times[19_999] / 19_999.0;
        assert!((mean - 25.0).abs() < 0.6, "25 ms on average, standard error .18: {mean}");
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let square = gaps.iter().map(|g| g * g).sum::<f64>() / gaps.len() as f64;
        assert!((square / (mean * mean) - 2.0).abs() < 0.12, "exponential: E[g²] = 2 E[g]²");
        assert_eq!(at(40.0, 3, 100), times[..100], "a longer list changes nothing");
        assert_ne!(at(40.0, 4, 100), times[..100]);
    }

    #[test]
    fn rates_and_times_that_are_none_are_refused() {
        for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
            let refused = Arrivals::Poisson { per_s, seed: 0 }.times(3);
            assert!(matches!(refused, Err(BatchError::Value { key: "per_s", .. })), "{per_s}");
        }
        for ms in [vec![0.0, 1.0], vec![0.0, 2.0, 1.0], vec![0.0, 1.0, f64::NAN], vec![-1.0, 0.0, 1.0]] {
            assert!(matches!(Arrivals::Times { ms }.times(3), Err(BatchError::Value { key: "times", .. })));
        }
        assert_eq!(Arrivals::Times { ms: vec![0.0, 0.0, 7.5] }.times(3), Ok(vec![0.0, 0.0, 7.5]));
    }
}
