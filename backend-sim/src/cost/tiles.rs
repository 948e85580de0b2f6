//! Tiles of rows in the routed experts: why a table of balanced routing has cliffs that real routing has not.
//!
//! A grouped kernel computes an expert's rows in tiles of M. Under balanced routing every expert crosses a multiple of M at the
//! same T, so the time doubles at once; under independent routing the load n_e of an expert is binomial, and the expected number
//! of tiles grows smoothly (formula book §3, Σ_e ⌈n_e / M⌉). So where a balanced table has such a cliff, h(T) counts expected
//! tiles: h(T) = row slope + c₂ · Σ_e E[⌈n_e / M⌉ − 1]⁺, n_e ~ Binomial(T, π_e), with the cost c₂ of a tile from the cliff itself.
//!
//! Only kernels whose tile is the same on both sides of the cliff are treated so: FlashInfer's TensorRT-LLM kernel has M = 8 below
//! 1024 rows of a Kimi layer. Marlin picks its block from T, its steps happen under any routing.

use crate::experts::Popularity;
use crate::optable::MoeTable;

/// Rows of a tile.
const M: f64 = 8.0;
/// Loads above this many rows an expert: the remainder in the last tile is as good as uniform.
const MANY: f64 = 200.0;
/// A rise of balanced times that is a second tile of every expert, as a share of the time before it.
const CLIFF: f64 = 0.25;

/// h(T) by expected tiles.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tiles {
    /// Probability of each distinct kind of expert and how many there are.
    kinds: Vec<(f64, f64)>,
    /// Rows at which balanced routing fills one tile of every expert.
    full: f64,
    /// h there.
    at_full: f64,
    /// µs a row beyond.
    slope: f64,
    /// µs of a further tile.
    tile_us: f64,
    /// Most rows that the tile is known for.
    last: f64,
}

impl Tiles {
    /// The tiles of a layer whose balanced table has the cliff; `None` where it has not, or where the kernel's tile is not known.
    pub(super) fn of(layer: &MoeTable, popularity: &Popularity) -> Option<Self> {
        if !layer.origin().kernel.contains("trtllm") {
            return None;
        }
        let (shape, fit) = (layer.shape(), layer.fit());
        let full = M * fit.saturation;
        let points = layer.points(crate::optable::Routing::Balanced);
        // Measured points with two tiles an expert: loads above M, up to 2·M.
        let mut two = points.iter().copied().filter(|p| p.0 > full && p.0 <= 2.0 * full);
        let (first, last) = (two.next()?, two.next_back()?);
        let before = layer.balanced(full).us;
        let slope = ((last.1 - first.1) / (last.0 - first.0)).max(0.0);
        let jump = first.1 - before - slope * (first.0 - full);
        if jump < CLIFF * before {
            return None;
        }
        let mut probabilities = popularity.probabilities(shape.experts, shape.top_k);
        probabilities.sort_by(f64::total_cmp);
        let mut kinds: Vec<(f64, f64)> = Vec::new();
        for p in probabilities {
            match kinds.last_mut() {
                Some(kind) if kind.0 == p => kind.1 += 1.0,
                _ => kinds.push((p, 1.0)),
            }
        }
        let tile_us = jump / f64::from(shape.experts);
        Some(Self { kinds, full, at_full: fit.h(full), slope, tile_us, last: last.0 })
    }

    /// h(T) in µs for every row count, by look-up: `balanced` is h of the table as it stands. Beyond the last rows that the tile
    /// is known for the kernel takes larger ones, whose times go up and down with T: there the time stays until the
    /// balanced rows exceed it.
    pub(super) fn tabulate(&self, rows: impl Iterator<Item = f64>, balanced: impl Fn(f64) -> f64) -> Vec<f64> {
        // The expectation bends over tens of rows: every 16th is computed, the others lie on straight lines between.
        let step = 16.0;
        let knots: Vec<f64> = (0..=(self.last / step).ceil() as usize).map(|i| self.extra(i as f64 * step)).collect();
        let extra = |t: f64| {
            let (i, share) = ((t / step) as usize, (t / step).fract());
            let next = knots[(i + 1).min(knots.len() - 1)];
            knots[i.min(knots.len() - 1)] + share * (next - knots[i.min(knots.len() - 1)])
        };
        let at = |t: f64| {
            let along = if t <= self.full { balanced(t) } else { self.at_full + self.slope * (t - self.full) };
            along + self.tile_us * extra(t)
        };
        let end = at(self.last);
        rows.map(|t| if t <= self.last { at(t) } else { end.max(balanced(t)) }).collect()
    }

    /// Σ_e E[⌈n_e / M⌉ − 1]⁺.
    fn extra(&self, rows: f64) -> f64 {
        self.kinds.iter().map(|(p, count)| count * further(rows, *p)).sum()
    }
}

/// Expected tiles beyond the first of an expert that each of `rows` rows chooses with probability p: Σ_{j≥1} P(n > j·M).
fn further(rows: f64, p: f64) -> f64 {
    let mean = rows * p;
    if mean <= 0.0 {
        return 0.0;
    }
    if mean > MANY || p >= 1.0 {
        // The last tile is filled by (M + 1)/2 rows on average.
        return if p >= 1.0 { (rows / M).ceil() - 1.0 } else { mean / M + 0.5 - 0.5 / M - 1.0 };
    }
    let mut term = (rows * (-p).ln_1p()).exp();
    let (mut below, mut sum) = (0.0, 0.0);
    for n in 0..=rows as u32 {
        below += term;
        // `below` is P(n ≤ this); at a full tile the rest needs another.
        if n > 0 && n % M as u32 == 0 {
            let rest = (1.0 - below).max(0.0);
            sum += rest;
            if rest < 1e-9 {
                break;
            }
        }
        term *= (rows - f64::from(n)) / f64::from(n + 1) * p / (1.0 - p);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_tiles_follow_the_binomial_law() {
        // 9 rows that all come: two tiles. One row: never a second.
        assert_eq!(further(9.0, 1.0), 1.0);
        assert_eq!(further(8.0, 0.5), 0.0);
        // 16 rows at 1/2: P(n > 8) = (1 − C(16,8)/2^16)/2.
        assert!((further(16.0, 0.5) - 0.5 * (1.0 - 12870.0 / 65536.0)).abs() < 1e-12);
        // Where many rows come, the exact sum meets the uniform remainder.
        let (exact, smooth) = (further(9000.0, 1.0 / 48.0), 9000.0 / 48.0 / M + 0.5 - 0.5 / M - 1.0);
        assert!((exact - smooth).abs() < 0.05, "{exact} {smooth}");
    }
}
