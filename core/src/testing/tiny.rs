//! A deterministic language model of a few tokens.

use crate::stream::philox4x32;

/// Logits as a function of the last `order` tokens and the position (by fives), drawn once and for all by a hash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiny {
    /// Tokens.
    pub vocab: u32,
    /// Which model.
    pub seed: u32,
    /// Tokens that the logits depend on.
    pub order: usize,
    /// Logits lie in ±spread.
    pub spread: f32,
}

impl Tiny {
    /// Logits (vocabulary long) of the token behind `context`.
    #[must_use]
    pub fn logits(&self, context: &[u32]) -> Vec<f32> {
        self.logits_at(context, context.len() as u32)
    }

    /// The same for a token that is told another position than the length of its context: what an engine computes that
    /// takes a row's slot for its position.
    #[must_use]
    pub fn logits_at(&self, context: &[u32], position: u32) -> Vec<f32> {
        let mut state = [self.seed, 0, position % 5, 0];
        for &token in &context[context.len().saturating_sub(self.order)..] {
            state[1] = token;
            state = philox4x32(state, [0x7_1E5, 0]);
        }
        (0..self.vocab)
            .map(|token| {
                let bits = philox4x32([state[0], state[1], state[2], token], [state[3], 1])[0];
                (f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0) as f32 * self.spread
            })
            .collect()
    }

    /// The most probable token behind `context`.
    #[must_use]
    pub fn best(&self, context: &[u32]) -> u32 {
        let logits = self.logits(context);
        let best = (0..self.vocab).max_by(|&a, &b| {
            // The first of equal maxima.
            logits[a as usize].total_cmp(&logits[b as usize]).then(b.cmp(&a))
        });
        best.unwrap_or(0)
    }

    /// Probabilities at temperature 1 behind `context`; with `holes` a token in four gets probability 0 (never all).
    #[must_use]
    pub fn dist(&self, context: &[u32], holes: bool) -> Vec<f32> {
        let mut p: Vec<f32> = self.logits(context).iter().map(|x| x.exp()).collect();
        if holes {
            let last = context.last().copied().unwrap_or(0);
            let keep = self.best(context);
            for token in 0..self.vocab {
                if token != keep && (token + last + self.seed).is_multiple_of(4) {
                    p[token as usize] = 0.0;
                }
            }
        }
        let sum: f32 = p.iter().sum();
        p.iter_mut().for_each(|p| *p /= sum);
        p
    }
}
