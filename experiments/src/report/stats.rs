//! Intervals that the report derives itself: differences paired by request, means of a domain, shares.

use treeline_core::metrics::{Bootstrap, Interval};

use crate::results::{CellDetail, RequestRow};

/// τ of some requests with its interval over requests. With one request there is a value and no interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// The value.
    pub mid: f64,
    /// Ends of the 95 % interval.
    pub ends: Option<(f64, f64)>,
}

/// τ (tokens per verify step, Σ tokens / Σ steps) of the requests; `None` when no request took a step.
pub(super) fn tau(rows: &[&RequestRow]) -> Option<Estimate> {
    let (tokens, steps) = rows.iter().fold((0u64, 0u64), |s, r| (s.0 + r.tokens, s.1 + r.steps));
    if steps == 0 {
        return None;
    }
    let parts: Vec<(f64, f64)> = rows.iter().map(|r| (r.tokens as f64, r.steps as f64)).collect();
    let ends = Bootstrap::default().ratio(&parts).map(|i| (i.lo, i.hi));
    Some(Estimate { mid: tokens as f64 / steps as f64, ends })
}

/// τ of the responses that do not end in a loop, those too short to be judged among them; `None` when none was judged or
/// all loop.
pub(super) fn without_loops(rows: &[&RequestRow]) -> Option<Estimate> {
    let judged = rows.iter().any(|r| r.looped.is_some());
    let kept: Vec<&RequestRow> = rows.iter().filter(|r| r.looped != Some(true)).copied().collect();
    if judged { tau(&kept) } else { None }
}

/// τ of `second` minus τ of `first` over the requests that both served, resampled together.
pub(super) fn difference(first: &CellDetail, second: &CellDetail) -> Option<Interval> {
    let pairs: Vec<[(f64, f64); 2]> = first
        .per_request
        .iter()
        .filter_map(|a| second.per_request.iter().find(|b| b.id == a.id).map(|b| (a, b)))
        .map(|(a, b)| [(a.tokens as f64, a.steps as f64), (b.tokens as f64, b.steps as f64)])
        .collect();
    Bootstrap::default().paired_difference(&pairs)
}

/// Wilson's 95 % interval of a share (Wilson 1927). Steps of one response are not independent, so this is a lower bound
/// of the uncertainty.
pub(super) fn wilson(hits: u64, trials: u64) -> Option<(f64, f64)> {
    if trials == 0 || hits > trials {
        return None;
    }
    let (n, p, z) = (trials as f64, hits as f64 / trials as f64, 1.959_964_f64);
    let centre = p + z * z / (2.0 * n);
    let spread = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    Some((((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0)))
}

/// Distinct experts that `rows` independent rows touch: E·(1 − (1 − k/E)^rows).
pub(super) fn independent_experts(total: u32, per_token: u32, rows: f64) -> f64 {
    let e = f64::from(total);
    e * (1.0 - (1.0 - f64::from(per_token) / e).powf(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the public model has: 384 experts, top-8.
    #[test]
    fn independent_rows_touch_the_known_numbers() {
        for (rows, touched) in [(1.0, 8.0), (8.0, 60.0), (16.0, 110.0), (17.0, 116.0), (33.0, 192.0), (65.0, 286.0)] {
            assert!((independent_experts(384, 8, rows) - touched).abs() < 0.6, "{rows}");
        }
    }

    #[test]
    fn wilson_has_its_textbook_values() {
        let (lo, hi) = wilson(8, 10).unwrap();
        assert!((lo - 0.4902).abs() < 1e-4 && (hi - 0.9433).abs() < 1e-4, "{lo} {hi}");
        let (lo, hi) = wilson(0, 10).unwrap();
        assert!(lo == 0.0 && (hi - 0.2775).abs() < 1e-4, "{lo} {hi}");
        assert_eq!((wilson(0, 0), wilson(3, 2)), (None, None));
    }

    #[test]
    fn tau_is_a_ratio_of_sums() {
        let row = |steps, tokens| RequestRow { id: 0, domain: String::new(), steps, tokens, ms: None, looped: None };
        let rows = [row(10, 30), row(40, 60), row(0, 0)];
        let got = tau(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(got.mid, 90.0 / 50.0);
        assert!(got.ends.is_some());
        assert!(tau(&[&rows[0]]).unwrap().ends.is_none());
        assert!(tau(&[&rows[2]]).is_none());
    }

    /// Public fault 50: loops are easy to draft, so the figure without them is the one of real text.
    #[test]
    fn a_looping_response_is_left_out_and_nothing_else() {
        let row = |steps, looped| RequestRow { id: 0, domain: String::new(), steps, tokens: 96, ms: None, looped };
        let rows = |list: &[RequestRow]| without_loops(&list.iter().collect::<Vec<_>>()).map(|e| e.mid);
        let (text, short, looping) = (row(48, Some(false)), row(32, None), row(12, Some(true)));
        assert_eq!(rows(&[text.clone(), looping.clone(), short.clone()]), Some(192.0 / 80.0));
        assert_eq!(rows(&[text, short.clone()]), Some(192.0 / 80.0));
        assert_eq!(rows(&[looping.clone(), looping]), None);
        assert_eq!(rows(&[short.clone(), short]), None);
    }
}
