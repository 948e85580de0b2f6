//! What one user waited for: in the queue, for the first token, and between tokens.

use serde::Serialize;

/// One request's way through a priced run, in ms from its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visit {
    /// The request's id.
    pub request: u64,
    /// When it arrived; in a closed loop, when a slot was free for it.
    pub arrival_ms: f64,
    /// When it got a slot and room for its KV.
    pub admitted_ms: f64,
    /// When its first token was there.
    pub first_ms: f64,
    /// When it ended; `None` = it still ran.
    pub end_ms: Option<f64>,
    /// Tokens emitted, the first one included.
    pub tokens: u32,
}

/// Mean and percentiles of one figure over requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub most: f64,
}

impl Spread {
    /// Of `values` in any order; `None` without one. A percentile is the smallest value that at least so many lie at or
    /// below.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let most = *values.last()?;
        let at = |share: f64| values[((share * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), most })
    }
}

/// Latency figures of a run over the requests that ended, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// Requests that ended.
    pub requests: u32,
    /// From arrival to a slot.
    pub queue: Spread,
    /// From arrival to the first token.
    pub ttft: Spread,
    /// Per token after the first; requests of one token have none.
    pub tpot: Option<Spread>,
    /// From arrival to the end.
    pub whole: Spread,
}

impl Latency {
    /// Over those of `visits` that ended; `None` when none did.
    #[must_use]
    pub fn of(visits: &[Visit]) -> Option<Self> {
        let ended = || visits.iter().filter_map(|v| Some((v, v.end_ms?)));
        let spread = |f: fn(&Visit, f64) -> f64| Spread::of(ended().map(|(v, end)| f(v, end)).collect());
        let tpot = ended().filter(|(v, _)| v.tokens > 1).map(|(v, end)| (end - v.first_ms) / f64::from(v.tokens - 1));
        Some(Self {
            requests: ended().count() as u32,
            queue: spread(|v, _| v.admitted_ms - v.arrival_ms)?,
            ttft: spread(|v, _| v.first_ms - v.arrival_ms)?,
            tpot: Spread::of(tpot.collect()),
            whole: spread(|v, end| end - v.arrival_ms)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let s = Spread::of((1..=200).rev().map(f64::from).collect()).unwrap();
        assert_eq!((s.p50, s.p90, s.p99, s.most, s.mean), (100.0, 180.0, 198.0, 200.0, 100.5));
        let one = Spread::of(vec![3.0]).unwrap();
        assert_eq!((one.p50, one.p99, one.mean), (3.0, 3.0, 3.0));
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn waiting_is_split_at_admission_and_first_token() {
        let visit = |arrival_ms, admitted_ms, first_ms, end_ms, tokens| Visit {
            request: 0,
            arrival_ms,
            admitted_ms,
            first_ms,
            end_ms,
            tokens,
        };
        let visits =
            [visit(10.0, 15.0, 21.0, Some(61.0), 5), visit(0.0, 0.0, 3.0, Some(3.0), 1), visit(0.0, 1.0, 2.0, None, 9)];
        let l = Latency::of(&visits).unwrap();
        assert_eq!((l.requests, l.queue.most, l.ttft.most, l.whole.most), (2, 5.0, 11.0, 51.0));
        assert_eq!(l.tpot.unwrap().mean, 10.0, "a request of one token has no time between tokens");
        assert_eq!(Latency::of(&visits[2..]), None);
    }
}
