//! The counter-based random stream: Philox4x32-10 (Salmon et al., SC 2011) keyed by what a number is for.
//!
//! A number depends on (seed, purpose, request, absolute position, token), and, for everything but the target's own
//! sample, on round and node. So it does not depend on the tree, the batch, the ranks or the order of work. One key for
//! draws and residuals would be measurably biased: the purposes keep them apart. Own code because a GPU kernel has to give
//! the same bits; known-answer tests hold it to the published vectors.

/// What a random number decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// The target's token at a position. Independent of round and node, so the trajectory is the policy's no matter.
    TargetSample = 0,
    /// A candidate drawn from the drafter.
    DraftDraw = 1,
    /// The token drawn from a residual after all candidates of a node were rejected.
    Residual = 2,
    /// An accept/reject decision.
    Coin = 3,
}

/// The key of one row of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The run's seed.
    pub seed: u64,
    /// What the numbers are for.
    pub purpose: Purpose,
    /// Request id.
    pub request: u64,
    /// Absolute position of the token to be chosen.
    pub position: u32,
    /// Verify step of the request; 0 for [`Purpose::TargetSample`].
    pub round: u32,
    /// Tree node (its index); 0 for [`Purpose::TargetSample`].
    pub node: u32,
}

impl Key {
    /// The key of the target's own sample at `position`.
    #[must_use]
    pub fn target(seed: u64, request: u64, position: u32) -> Self {
        Self { seed, purpose: Purpose::TargetSample, request, position, round: 0, node: 0 }
    }

    /// The stream of this key.
    #[must_use]
    pub fn stream(self) -> Stream {
        let [a, b, ..] = philox4x32(
            [self.purpose as u32, self.round, self.node, (self.request >> 32) as u32],
            [self.seed as u32, (self.seed >> 32) as u32],
        );
        Stream { key: [a, b], position: self.position, request: self.request as u32 }
    }
}

/// Random numbers by token id.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    key: [u32; 2],
    position: u32,
    request: u32,
}

impl Stream {
    /// Four numbers: those of tokens `4·block .. 4·block + 4`.
    #[inline]
    #[must_use]
    pub fn block(&self, block: u32) -> [u32; 4] {
        philox4x32([block, self.position, self.request, 0], self.key)
    }

    /// A uniform number in (0, 1) for `token`: (x + ½)·2⁻³², never 0 or 1.
    #[must_use]
    pub fn uniform(&self, token: u32) -> f64 {
        unit(self.block(token / 4)[token as usize % 4])
    }

    /// argmax over tokens of `score(token) + Gumbel noise`, tokens with score −∞ left out; ties go to the smaller id. This
    /// draws a token with probability proportional to exp(score). `None` if no score is finite.
    #[must_use]
    pub fn gumbel_argmax(&self, scores: impl IntoIterator<Item = f64>) -> Option<u32> {
        let mut best: Option<(f64, u32)> = None;
        let mut noise = [0u32; 4];
        let mut loaded = u32::MAX;
        for (token, score) in scores.into_iter().enumerate() {
            if score == f64::NEG_INFINITY || score.is_nan() {
                continue;
            }
            let token = token as u32;
            if loaded != token / 4 {
                loaded = token / 4;
                noise = self.block(loaded);
            }
            let value = score + gumbel(noise[token as usize % 4]);
            if best.is_none_or(|(b, _)| value > b) {
                best = Some((value, token));
            }
        }
        best.map(|(_, token)| token)
    }
}

/// 32 random bits as a number in (0, 1): (x + ½)·2⁻³², never 0 or 1.
#[inline]
#[must_use]
pub fn unit(bits: u32) -> f64 {
    (f64::from(bits) + 0.5) * (1.0 / 4_294_967_296.0)
}

/// Standard Gumbel noise from 32 random bits: −ln(−ln u).
#[inline]
#[must_use]
pub fn gumbel(bits: u32) -> f64 {
    -(-unit(bits).ln()).ln()
}

/// Philox4x32 with ten rounds.
#[inline]
#[must_use]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors published with Random123.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn purposes_rounds_and_nodes_give_different_streams() {
        let key = Key { seed: 7, purpose: Purpose::Coin, request: 3, position: 11, round: 2, node: 5 };
        let base = key.stream().block(0);
        for other in [
            Key { purpose: Purpose::Residual, ..key },
            Key { round: 3, ..key },
            Key { node: 6, ..key },
            Key { request: 3 | 1 << 32, ..key },
            Key { position: 12, ..key },
            Key { seed: 8, ..key },
        ] {
            assert_ne!(base, other.stream().block(0), "{other:?}");
        }
    }

    #[test]
    fn gumbel_argmax_skips_impossible_tokens() {
        let stream = Key::target(1, 0, 0).stream();
        let scores = [f64::NEG_INFINITY, f64::NAN, 0.0, f64::NEG_INFINITY];
        assert_eq!(stream.gumbel_argmax(scores), Some(2));
        assert_eq!(stream.gumbel_argmax([f64::NEG_INFINITY; 3]), None);
    }
}
