//! Rates from what is published or counted: curves of τ, counters by position, counts by request.

use super::{Estimate, FitError};
use crate::accept::parameter::Rates;

/// Exact conditional rates of a curve τ(k), k = 1, 2, … chain nodes, by differences: the k-th node is reached and right in
/// τ(k) − τ(k − 1) of the rounds. `rounding` is the step that the figures were rounded to (0: exact); standard errors are
/// those of its uniform error.
///
/// # Errors
/// [`FitError::Contradiction`] when k leaves one out, or the curve does not rise ever more slowly from τ(0) = 1.
pub fn from_curve(points: &[(u32, f64)], rounding: f64, source: &str) -> Result<Rates, FitError> {
    let refuse = |why: String| Err(FitError::Contradiction(why));
    if points.is_empty() {
        return refuse("a curve needs at least τ(1)".into());
    }
    let deviation = rounding / 12f64.sqrt();
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    // τ(0) = 1 is exact, and every round reaches the first node.
    let (mut before, mut gain) = (1.0, 1.0);
    for (i, &(k, tau)) in points.iter().enumerate() {
        if k as usize != i + 1 {
            return refuse(format!("point {} of the curve is for k = {k}: give k = 1, 2, 3, … without a gap", i + 1));
        }
        let own = tau - before;
        if !(own > 0.0 && own < gain) {
            return refuse(format!(
                "τ({k}) = {tau} adds {own:.4} to the {gain:.4} of the node before: a chain's nodes add ever less, and more than nothing"
            ));
        }
        let rate = own / gain;
        // r = (τ_k − τ_{k−1}) / (τ_{k−1} − τ_{k−2}): the figure in the middle moves both, in opposite directions; τ_0 = 1 is exact.
        let parts = match i {
            0 => 1.0,
            1 => 1.0 + (1.0 + rate).powi(2),
            _ => 1.0 + (1.0 + rate).powi(2) + rate.powi(2),
        };
        values.push(rate);
        // Figures too coarse for a late rate say nothing of it; no share is known worse than half.
        errors.push((deviation * f64::sqrt(parts) / gain).min(0.5));
        (before, gain) = (tau, own);
    }
    let errors = if rounding > 0.0 { errors } else { Vec::new() };
    Ok(Rates { values, errors, source: source.to_owned() })
}

/// Conditional rates from counts: of `drafts` rounds, `accepted[d]` accepted the token at position d + 1. Standard errors
/// are those of so many coins. A rate that was counted as 0 or 1, and one of a position that no round reached, is the mean
/// of the Jeffreys posterior, (k + ½) / (n + 1), with its standard deviation: without any round 0.5 ± 0.35, which weighs
/// nothing in a chain that never comes there, and keeps a block as deep as it is.
///
/// # Errors
/// [`FitError::Contradiction`] when a position was accepted more often than the one before, [`FitError::TooLittle`] without
/// a position or a round.
pub fn from_counts(drafts: u64, accepted: &[u64], source: &str) -> Result<Rates, FitError> {
    if accepted.is_empty() {
        return Err(FitError::TooLittle("no position was counted".into()));
    }
    if drafts == 0 {
        return Err(FitError::TooLittle("no round drafted anything: count longer".into()));
    }
    let (mut values, mut errors, mut notes) = (Vec::new(), Vec::new(), String::new());
    let mut before = drafts;
    for (d, &count) in accepted.iter().enumerate() {
        if count > before {
            let why = format!(
                "position {} was accepted {count} times, the one before {before}: the counters are of different intervals",
                d + 1
            );
            return Err(FitError::Contradiction(why));
        }
        let Estimate { value, error } = share(count, before);
        if count == 0 && before > 0 {
            notes = format!("; position {} was never accepted in {before} rounds: a Jeffreys estimate", d + 1);
            if d + 1 < accepted.len() {
                notes.push_str(&format!(", and no round tells the positions from {} on", d + 2));
            }
        }
        values.push(value);
        errors.push(error);
        before = count;
    }
    Ok(Rates { values, errors, source: format!("{source}{notes}") })
}

/// The share of `right` among `tried` with its standard error.
pub(super) fn share(right: u64, tried: u64) -> Estimate {
    let (k, n) = (right as f64, tried as f64);
    if right == 0 || right == tried {
        // Half a case more on either side: a rate of 0 or 1 has no logit, and binomial errors of 0.
        let value = (k + 0.5) / (n + 1.0);
        return Estimate { value, error: (value * (1.0 - value) / (n + 2.0)).sqrt() };
    }
    let value = k / n;
    Estimate { value, error: (value * (1.0 - value) / n).sqrt() }
}

/// τ of a chain of `nodes` whose every node is right with probability `alpha`, independently: what curves are often
/// extended with. Fitted to τ(1) it is 27 % too high at τ(8) of the public Kimi K2.5 EAGLE-3 curve.
#[must_use]
pub fn independent_tau(alpha: f64, nodes: u32) -> f64 {
    (0..=nodes).map(|k| alpha.powi(k as i32)).sum()
}

/// Over-dispersion between requests from (right, tried) first choices of each: ρ of a Beta–Binomial by moments, and the
/// standard deviation in logits that stands for it, ρ ≈ m(1 − m)·sd² at small ρ.
///
/// # Errors
/// [`FitError::TooLittle`] with fewer than two requests that tried anything.
pub fn beta_binomial(counts: &[(u64, u64)]) -> Result<(Estimate, Estimate), FitError> {
    let used: Vec<(f64, f64)> = counts.iter().filter(|c| c.1 > 0).map(|&(k, n)| (k as f64, n as f64)).collect();
    let groups = used.len() as f64;
    if groups < 2.0 {
        return Err(FitError::TooLittle("dispersion needs at least two requests".into()));
    }
    let (right, tried) = used.iter().fold((0.0, 0.0), |(a, b), (k, n)| (a + k, b + n));
    let mean = right / tried;
    let chance = (mean * (1.0 - mean)).max(1e-9);
    let squares: f64 = used.iter().map(|(_, n)| n * n).sum();
    let size = (tried - squares / tried) / (groups - 1.0);
    let between = used.iter().map(|(k, n)| n * (k / n - mean).powi(2)).sum::<f64>() / (groups - 1.0);
    let inside = used.iter().map(|(k, n)| k * (1.0 - k / n)).sum::<f64>() / (tried - groups).max(1.0);
    let rho = ((between - inside) / (between + (size - 1.0) * inside).max(1e-12)).clamp(0.0, 0.99);
    // Of an F ratio with so many groups.
    let error = (2.0 / (groups - 1.0)).sqrt() * (1.0 + (size - 1.0) * rho) * (1.0 - rho) / size.max(1.0);
    let logits = (rho / chance).sqrt();
    let logits_error = if rho > 0.0 { 0.5 * error / (rho * chance).sqrt() } else { (error / chance).sqrt() };
    Ok((Estimate { value: rho, error }, Estimate { value: logits, error: logits_error }))
}
