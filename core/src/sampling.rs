//! From the target's logits to a token: temperature, top-k and top-p, argmax or Gumbel-max.

use crate::batch::Sampling;
use crate::error::Fault;
use crate::stream::Key;

/// The first largest logit (ties to the smaller token id).
///
/// # Errors
/// [`Fault::TargetLogits`] with `row` when a logit is NaN, one is +∞, or none is finite.
pub fn argmax(logits: &[f32], row: u32) -> Result<u32, Fault> {
    let mut best = f32::NEG_INFINITY;
    let mut token = None;
    for (id, &x) in logits.iter().enumerate() {
        if x.is_nan() || x == f32::INFINITY {
            return Err(Fault::TargetLogits { row });
        }
        if x > best {
            best = x;
            token = Some(id as u32);
        }
    }
    token.ok_or(Fault::TargetLogits { row })
}

/// The target's token for one row: argmax at temperature 0, else one Gumbel-max sample from the tempered and filtered
/// distribution. `scratch` is working memory.
///
/// # Errors
/// As [`argmax`].
pub fn target_token(
    logits: &[f32],
    sampling: &Sampling,
    key: Key,
    row: u32,
    scratch: &mut Vec<f64>,
) -> Result<u32, Fault> {
    let best = target_scores(logits, sampling, row, scratch)?;
    if sampling.temperature <= 0.0 {
        return Ok(best);
    }
    // `best` survives every filter with score 0, so there is always a finite score.
    Ok(key.stream().gumbel_argmax(scratch.iter().copied()).unwrap_or(best))
}

/// The scores that a sample is drawn by, into `out`: (logit − max) / temperature, −∞ for what a filter removes. At
/// temperature 0 `out` stays as it is. Returns the argmax.
///
/// # Errors
/// As [`argmax`].
pub fn target_scores(logits: &[f32], sampling: &Sampling, row: u32, out: &mut Vec<f64>) -> Result<u32, Fault> {
    let best = argmax(logits, row)?;
    if sampling.temperature > 0.0 {
        scaled(logits, sampling, best, out);
    }
    Ok(best)
}

/// The target's distribution for one row after temperature and filters, as probabilities; a point mass at temperature 0.
///
/// # Errors
/// As [`argmax`].
pub fn target_dist(logits: &[f32], sampling: &Sampling, row: u32, out: &mut Vec<f64>) -> Result<(), Fault> {
    let best = argmax(logits, row)?;
    if sampling.temperature <= 0.0 {
        out.clear();
        out.resize(logits.len(), 0.0);
        out[best as usize] = 1.0;
        return Ok(());
    }
    scaled(logits, sampling, best, out);
    let mut sum = 0.0;
    for x in out.iter_mut() {
        *x = x.exp();
        sum += *x;
    }
    for x in out.iter_mut() {
        *x /= sum;
    }
    Ok(())
}

/// `(logit − max) / T` in `out`, −∞ where a filter removes the token. top-k first, then top-p over what is left, both with
/// ties to the smaller id; the best token always stays.
fn scaled(logits: &[f32], sampling: &Sampling, best: u32, out: &mut Vec<f64>) {
    let max = f64::from(logits[best as usize]);
    let scale = 1.0 / f64::from(sampling.temperature);
    out.clear();
    out.extend(logits.iter().map(|&x| (f64::from(x) - max) * scale));
    let top_k = sampling.top_k as usize;
    let filter_k = top_k > 0 && top_k < out.len();
    let filter_p = sampling.top_p < 1.0;
    if !filter_k && !filter_p {
        return;
    }
    let mut order: Vec<u32> = (0..out.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| out[b as usize].total_cmp(&out[a as usize]).then(a.cmp(&b)));
    let mut keep = if filter_k { top_k } else { order.len() };
    if filter_p {
        let total: f64 = order[..keep].iter().map(|&t| out[t as usize].exp()).sum();
        let mut mass = 0.0;
        for (n, &t) in order[..keep].iter().enumerate() {
            mass += out[t as usize].exp();
            if mass >= f64::from(sampling.top_p) * total {
                keep = n + 1;
                break;
            }
        }
    }
    for &t in &order[keep..] {
        out[t as usize] = f64::NEG_INFINITY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Public fault 6: a tie goes to the first maximum.
    #[test]
    fn argmax_takes_the_first_maximum() {
        assert_eq!(argmax(&[1.0, 1.0, 0.0], 0), Ok(0));
    }

    /// Public fault 7: an all-NaN row is a fault, not token 0.
    #[test]
    fn unusable_rows_fail() {
        for row in [[f32::NAN; 3], [f32::NEG_INFINITY; 3], [0.0, f32::NAN, 1.0], [f32::INFINITY, 0.0, 0.0]] {
            assert_eq!(argmax(&row, 4), Err(Fault::TargetLogits { row: 4 }), "{row:?}");
        }
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
        let kept = |top_k, top_p| {
            let mut out = Vec::new();
            target_dist(&logits, &Sampling { temperature: 1.0, top_k, top_p }, 0, &mut out).unwrap();
            out.iter().map(|p| (p * 1e3).round() / 1e3).collect::<Vec<_>>()
        };
        assert_eq!(kept(0, 1.0), [0.4, 0.3, 0.2, 0.1]);
        assert_eq!(kept(2, 1.0), [0.571, 0.429, 0.0, 0.0]);
        assert_eq!(kept(0, 0.65), [0.571, 0.429, 0.0, 0.0]);
        assert_eq!(kept(0, 0.0), [1.0, 0.0, 0.0, 0.0]);
        // top-p is relative to what top-k left: 0.4/0.7 = 0.571 already reaches 0.55.
        assert_eq!(kept(2, 0.55), [1.0, 0.0, 0.0, 0.0]);
    }
}
