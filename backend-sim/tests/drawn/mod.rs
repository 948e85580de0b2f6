//! Rows of a drafter whose weights fall like a power of the rank, and a truth drawn from each.

use treeline_core::stream::{philox4x32, unit};
use treeline_core::trace::Position;

/// Numbers in [0, 1) of one request.
pub struct Draws {
    drawn: u32,
    request: u32,
    key: [u32; 2],
}

impl Draws {
    /// Those of `request` under `key`.
    pub fn new(request: u64, key: [u32; 2]) -> Self {
        Self { drawn: 0, request: request as u32, key }
    }

    /// The next one.
    pub fn draw(&mut self) -> f64 {
        self.drawn += 1;
        unit(philox4x32([self.drawn, self.request, 0, 0], self.key)[0])
    }

    /// Adds a row of `width` ranks with weights rank^−power to a position; `whole` is what all tokens weigh beside those listed,
    /// 1 = nothing. Answers the rank of the true token, drawn by weight: `None` where it is not listed.
    pub fn row(&mut self, p: &mut Position, width: u32, power: f64, whole: f64) -> Option<u32> {
        let weights: Vec<f64> = (1..=width).map(|r| f64::from(r).powf(-power)).collect();
        let sum = weights.iter().sum::<f64>() * whole;
        p.logp.extend(weights.iter().map(|w| (w / sum).ln() as f32));
        p.ends.push(p.logp.len() as u32);
        let mut at = self.draw() * sum;
        let rank = weights.iter().position(|w| {
            at -= w;
            at <= 0.0
        });
        rank.map(|r| r as u32)
    }
}
