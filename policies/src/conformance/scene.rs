//! Scenes: made-up drafts that are the same on every machine.

use super::stage::{Player, Scene};
use treeline_core::{Candidate, CostCurve, Limits};

/// A small generator (SplitMix64): the suite must not depend on a crate's version of a random stream.
#[derive(Debug, Clone)]
pub struct Mix(u64);

impl Mix {
    /// A stream by seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.bits() % n }
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A row of `width` ranked candidates with distinct tokens. `levels` > 0 rounds log-probabilities to that many values, so
/// that ties are common.
#[must_use]
pub fn row(mix: &mut Mix, width: usize, levels: u64) -> Vec<Candidate> {
    let sharp = 0.5 + 3.0 * mix.unit();
    let mut weights: Vec<f64> = (0..width).map(|_| mix.unit().max(1e-9).powf(sharp * 2.0)).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    let sum: f64 = weights.iter().sum::<f64>() * (1.0 + 0.2 * mix.unit());
    let first = mix.below(50_000) as u32;
    let logp = |w: f64| {
        let exact = (w / sum).ln();
        if levels == 0 { exact as f32 } else { -((-exact * 2.0).floor().min(levels as f64) as f32) / 2.0 }
    };
    // A stride that is coprime to the vocabulary keeps tokens distinct and out of order.
    weights.iter().zip(0u32..).map(|(&w, i)| Candidate { token: (first + i * 7919) % 100_003, logp: logp(w) }).collect()
}

/// A request with `depth` rows.
#[must_use]
pub fn player(mix: &mut Mix, depth: usize, width: usize, levels: u64) -> Player {
    let rows = (0..depth).map(|_| row(mix, width, levels)).collect();
    Player { rows, start: 5 + mix.below(90) as u32, left: 1000 }
}

/// A concave step cost, as that of mixtures of experts: the first rows cost the most.
fn cost() -> CostCurve {
    #[allow(clippy::expect_used)]
    CostCurve::new(vec![1, 8, 64], vec![10.0, 13.0, 22.0]).expect("rows and ms ascend")
}

/// A scene of `requests` equal-sized requests.
#[must_use]
pub fn scene(seed: u64, requests: usize, limits: Limits, conditional: bool, levels: u64) -> Scene {
    let mut mix = Mix::new(seed);
    let (depth, width) = (limits.depth as usize, limits.width as usize);
    let players = (0..requests).map(|_| player(&mut mix, depth, width, levels)).collect();
    Scene { limits, context: 4096, conditional, silent: false, drawn: false, players, cost: cost() }
}

/// Limits for a suite scene.
#[must_use]
pub fn limits(budget: u32, depth: u32, width: u32) -> Limits {
    Limits { budget, depth, width, concurrency: 8 }
}
