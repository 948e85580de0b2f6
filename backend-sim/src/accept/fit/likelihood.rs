//! Parameters by likelihood: calibration, the law of ranks, and what a wrong first choice changes.

use super::Estimate;
use super::newton::maximise;
use super::walk::{Row, Walked, log_whole};
use crate::accept::chain::{Belief, Penalties, State};
use crate::accept::ranks::power_sum;
use crate::accept::shape::logistic;

/// Roots that the costlier likelihoods use at the most: their errors are far below what a trace differs from the next by.
const ENOUGH: usize = 6000;

/// The temper: reported probabilities raised to it are the most likely to have given the truth.
pub(super) fn temper(walked: &Walked<'_>) -> Estimate {
    let [t] = maximise([1.0], [(0.05, 20.0)], 1e-3, |[t]| {
        let mut sum = 0.0;
        for root in walked.roots.iter().take(ENOUGH) {
            for (level, truth) in root.at.truth.iter().enumerate() {
                let row = root.at.row(level as u32 + 1);
                let listed: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
                let came =
                    truth.and_then(|r| row.get(r as usize)).map_or((1.0 - listed).max(1e-9).ln(), |&l| f64::from(l));
                sum += t * came - log_whole(row, *t);
            }
        }
        sum
    });
    t
}

/// Power sums over a grid of exponents: of the whole vocabulary and of the listed ranks, as logs.
struct Sums {
    grid: Vec<[f64; 2]>,
}

const MOST: f64 = 6.0;
const STEP: f64 = 0.01;

impl Sums {
    fn new(vocab: u32, listed: usize) -> Self {
        let last = f64::from(vocab.max(3)) - 1.0;
        let at = |i: u32| {
            let e = f64::from(i) * STEP;
            [power_sum(e, last).ln(), power_sum(e, listed.max(1) as f64).ln()]
        };
        Self { grid: (0..=(MOST / STEP) as u32).map(at).collect() }
    }

    fn at(&self, e: f64) -> [f64; 2] {
        let place = (e / STEP).clamp(0.0, self.grid.len() as f64 - 1.001);
        let (i, f) = (place as usize, place.fract());
        std::array::from_fn(|k| self.grid[i][k] * (1.0 - f) + self.grid[i + 1][k] * f)
    }

    /// The steepest exponent at which rank 1 does not overtake a first choice of this probability.
    fn steepest(&self, first: f64) -> f64 {
        let odds = (first / (1.0 - first)).ln();
        self.grid.partition_point(|g| -g[0] <= odds).saturating_sub(1) as f64 * STEP
    }
}

/// Exponent, slope and far share of the rank's law where the first choice was wrong; `spread` of the exponent is given.
pub(super) fn rank_law(rows: &[Row], vocab: u32, spread: f64) -> [Estimate; 3] {
    let widest = rows.iter().map(|r| r.rest.len()).max().unwrap_or(1);
    let sums = Sums::new(vocab, widest);
    let wrong: Vec<(f64, f64, Option<f64>)> = rows
        .iter()
        .filter(|r| r.truth != Some(0))
        .take(ENOUGH * 2)
        .map(|r| {
            let odds = (r.first / (1.0 - r.first)).ln();
            (odds.min(0.0), sums.steepest(r.first), r.truth.map(|k| f64::from(k).ln()))
        })
        .collect();
    // A normal variable in five points (Gauss and Hermite).
    let rule = [
        (-2.856_970, 0.011_257_4),
        (-1.355_626, 0.222_075_9),
        (0.0, 0.533_333_4),
        (1.355_626, 0.222_075_9),
        (2.856_970, 0.011_257_4),
    ];
    maximise([1.4, 0.1, 0.05], [(0.0, 5.9), (0.0, 3.0), (0.0, 0.99)], 1e-3, |&[e, slope, far]| {
        let far = far.max(1e-9);
        let term = |&(odds, most, truth): &(f64, f64, Option<f64>)| {
            let chance = |x: f64| {
                let own = (e + slope * odds + spread * x).clamp(0.0, most.max(0.0));
                let [all, listed] = sums.at(own);
                match truth {
                    Some(log) => (1.0 - far) * (-own * log - all).exp(),
                    None => far + (1.0 - far) * (1.0 - (listed - all).exp()).max(0.0),
                }
            };
            rule.iter().map(|&(x, w)| w * chance(x)).sum::<f64>().max(1e-300).ln()
        };
        wrong.iter().map(term).sum()
    })
}

/// Changes of the logit behind a listed and an unlisted rank, and the recovery.
pub(super) fn penalties(rows: &[Row]) -> [Estimate; 3] {
    let end = rows.iter().position(|r| r.root >= ENOUGH).unwrap_or(rows.len());
    maximise([-1.0, -1.5, 0.3], [(-30.0, 30.0), (-30.0, 30.0), (0.0, 1.0)], 2e-3, |&[sibling, unlisted, recovery]| {
        let all = Penalties { sibling, unlisted, recovery };
        let mut sum = 0.0;
        each(&rows[..end], &all, |row, logit, state| {
            let right = logistic(logit + all.of_state(state)).clamp(1e-12, 1.0 - 1e-12);
            sum += if row.truth == Some(0) { right.ln() } else { (1.0 - right).ln() };
        });
        sum
    })
}

/// Gives every row with its logit on the spine and the state that the truth is in. Rows of a root follow each other.
pub(super) fn each(rows: &[Row], all: &Penalties, mut give: impl FnMut(&Row, f64, State)) {
    let (mut belief, mut state) = (Belief::new(), State::Spine);
    for row in rows {
        if row.level == 0 {
            (belief, state) = (Belief::new(), State::Spine);
        }
        let logit = belief.invert(row.first, all);
        give(row, logit, state);
        belief.step(logit, all, row.listed);
        state = state.next(row.truth);
    }
}
