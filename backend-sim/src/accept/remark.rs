//! A consistency remark: how much acceptance 8 more nodes can add, and what it says about two published figures.
//!
//! Best-first takes nodes by falling path probability, so each adds less than the one before. The deployment that this
//! project began with reports an acceptance length of 3.5–4.1 at budget 8 and 5.3–6.4 at budget 16. Whether both can be of
//! one drafter on the same prompts is computed here, over all parameters of a process, for two readings of "budget 8".

use super::process::{Process, ProcessError};
use super::sample::Sample;
use serde::Serialize;

/// What was reported: (budget, least, greatest).
pub const REPORTED: [(u32, f64, f64); 2] = [(8, 3.5, 4.1), (16, 5.3, 6.4)];

/// One reading of the smaller budget, at one acceptance length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// What ran at budget 8, in words.
    pub eight: String,
    /// Its acceptance length.
    pub tau_8: f64,
    /// Acceptance length of a best-first tree of 16 nodes with all parameters at their values.
    pub tau_16: f64,
    /// The least over the parameters' ranges, one at a time.
    pub tau_16_low: f64,
    /// The greatest, one at a time and all together.
    pub tau_16_high: f64,
    /// The end of a parameter's range that gives the greatest.
    pub by: String,
    /// What was reported at 16, at the same end of its band.
    pub reported_16: f64,
    /// Whether what was reported is out of reach.
    pub out_of_reach: bool,
}

/// The remark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remark {
    /// Title of a section.
    pub title: String,
    /// What follows, in sentences.
    pub text: String,
    /// The figures behind it.
    pub readings: Vec<Reading>,
}

/// A process at several shifts: (chain, best-first 8, best-first 16).
type Curve = Vec<[f64; 3]>;

/// Chain acceptance lengths at which a process is sampled, from which the rest is interpolated.
const GRID: [f64; 4] = [2.9, 3.4, 3.8, 4.2];

fn curve(process: &Process, sample: Sample) -> Result<Curve, ProcessError> {
    let at = |tau: &f64| {
        let (trees, chain) = process.to_tau(*tau, process.depth())?.tree_tau(&[8, 16], 0, sample)?;
        Ok([chain, trees[0], trees[1]])
    };
    GRID.iter().map(at).collect()
}

/// Value of `column` where the column `by` has `value`: linear between the sampled shifts, and beyond them.
fn look(curve: &Curve, by: usize, value: f64, column: usize) -> f64 {
    let i = curve.partition_point(|p| p[by] < value).clamp(1, curve.len() - 1);
    let (a, b) = (curve[i - 1], curve[i]);
    a[column] + (b[column] - a[column]) * (value - a[by]) / (b[by] - a[by])
}

/// Computes the remark for a process of block 8 (the shape of its rates; the level is set by the reading).
///
/// # Errors
/// As [`Process::generate`].
pub fn remark(process: &Process, sample: Sample) -> Result<Remark, ProcessError> {
    let base = curve(process, sample)?;
    let mut others: Vec<(String, Curve)> = Vec::new();
    // What widens a tree's gain, all together: the end of each range that gives more at 16 nodes for the same chain.
    let mut widest = process.clone();
    let mut gains: Vec<(String, f64, f64)> = Vec::new();
    for variant in process.variants() {
        if variant.parameter.starts_with("overlap") {
            continue;
        }
        let other = curve(&variant.process, sample)?;
        let gain = look(&other, 0, 3.8, 2) - look(&base, 0, 3.8, 2);
        let value = variant.process.parameters().iter().find(|p| p.0 == variant.parameter).map_or(0.0, |p| p.2.value);
        gains.push((variant.parameter.clone(), gain, value));
        others.push((format!("{} {}", variant.parameter, variant.change), other));
    }
    for (key, gain, value) in &gains {
        let best = gains.iter().filter(|g| g.0 == *key).map(|g| g.1).fold(0.0, f64::max);
        if *gain == best
            && let Some(p) = widest.parameter_mut(key)
        {
            (p.low, p.high, p.value) = (p.low.min(*value), p.high.max(*value), *value);
        }
    }
    others.push(("all parameters at the ends that widen a tree most".into(), curve(&widest, sample)?));

    let mut readings = Vec::new();
    for (column, eight) in [(1, "a best-first tree of 8 nodes"), (0, "a chain of 7 behind the root")] {
        for (tau_8, reported_16) in [(REPORTED[0].1, REPORTED[1].1), (REPORTED[0].2, REPORTED[1].2)] {
            let tau_16 = look(&base, column, tau_8, 2);
            let (mut low, mut high, mut by) = (tau_16, tau_16, "all parameters as they are".to_owned());
            for (name, other) in &others {
                let value = look(other, column, tau_8, 2);
                low = low.min(value);
                if value > high {
                    (high, by) = (value, name.clone());
                }
            }
            let out_of_reach = reported_16 > high;
            let eight = eight.to_owned();
            readings.push(Reading {
                eight,
                tau_8,
                tau_16,
                tau_16_low: low,
                tau_16_high: high,
                by,
                reported_16,
                out_of_reach,
            });
        }
    }
    let text = text(&readings);
    Ok(Remark { title: "Do 3.5–4.1 at budget 8 and 5.3–6.4 at budget 16 fit together?".into(), text, readings })
}

fn text(readings: &[Reading]) -> String {
    let mut text = String::from(
        "Best-first takes nodes by falling probability: each adds less than the one before, so nodes 9 to 16 add less than \
         nodes 1 to 8 did.",
    );
    for pair in readings.chunks(2) {
        let [a, b] = pair else { continue };
        text.push_str(&format!(
            " If budget 8 was {}, τ {:.1}–{:.1} there goes with {:.1}–{:.1} at 16 nodes on the same prompts, and with no more than \
             {:.1}–{:.1} anywhere in the parameters' ranges; {:.1}–{:.1} was reported: {}.",
            a.eight,
            a.tau_8,
            b.tau_8,
            a.tau_16,
            b.tau_16,
            a.tau_16_high,
            b.tau_16_high,
            a.reported_16,
            b.reported_16,
            match (a.out_of_reach, b.out_of_reach) {
                (true, true) => "more than such a drafter gives",
                (false, false) => "within reach",
                _ => "within reach at one end of the band only",
            }
        ));
    }
    text.push_str(
        " Other prompts, another drafter, rates pooled per response, or a budget 8 that drafted fewer than 7 tokens would explain \
         the rest: measure both on the same prompts before believing the step.",
    );
    text
}
