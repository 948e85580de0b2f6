//! What a scripted engine is.

use super::tiny::Tiny;
use crate::stream::philox4x32;

/// What the scripted engine is and what goes wrong in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// The target.
    pub target: Tiny,
    /// How far the drafter's logits lie from the target's; 0 = it knows them.
    pub noise: f32,
    /// Whether drafts depend on the path.
    pub conditional: bool,
    /// Seed of drawn candidates; the law's.
    pub seed: u64,
    /// Sequences at once.
    pub slots: u32,
    /// Positions per sequence.
    pub context: u32,
    /// Levels of the drafter: block − 1.
    pub depth: u32,
    /// Ranks per row.
    pub width: u32,
    /// Prompt tokens per call of `admit`.
    pub chunk: usize,
    /// The target's logits for this (request, absolute position) are NaN.
    pub nan_target: Option<(u64, u32)>,
    /// The drafter's row for this (request, absolute position) is NaN.
    pub nan_draft: Option<(u64, u32)>,
    /// A fault that tests must notice.
    pub seeded: Seeded,
}

/// Faults that the scripted engine can have, for negative controls: each turns the test of its number in the list of
/// public faults red.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeded {
    /// None.
    Nothing,
    /// 2: a NaN row of the drafter counts as a row of zeros.
    NanDraft,
    /// 4: a shorter request of a batch sees token 0 beyond its length.
    Padded,
    /// 7: a NaN row of the target counts as token 0.
    NanIsZero,
    /// 8: a row's position is its slot, not its depth.
    SlotPositions,
    /// 10: the root is not counted, so each node is judged by the next node's row.
    OffByOne,
    /// 15: a row's mask is one word of 32 bits.
    Bits32,
    /// 16: every tree of a batch is taken to have the first one's rows.
    Stride,
    /// 17: no mask inside the tree: a row sees every row before it.
    Causal,
    /// 21: every request gets the bonus of the first.
    BonusStride,
    /// 23: requests with a temperature are judged by argmax.
    Greedy,
    /// Residual draws use the key of the draft draws.
    OneKey,
    /// 26: the accepted path is not gathered, its KV rows stay where the tree put them.
    Scattered,
    /// 28: the rows of a finished request are not freed.
    Leak,
}

impl Script {
    /// A block drafter of 7 levels that is right about half the time, four slots, room for 4096 positions.
    #[must_use]
    pub fn new(vocab: u32) -> Self {
        Self {
            target: Tiny { vocab, seed: 11, order: 3, spread: 3.0 },
            noise: 2.0,
            conditional: false,
            seed: 0,
            slots: 4,
            context: 4096,
            depth: 7,
            width: vocab.min(8),
            chunk: 5,
            nan_target: None,
            nan_draft: None,
            seeded: Seeded::Nothing,
        }
    }

    /// The target's logits behind `tokens`, the last of which stands at `position`.
    pub(super) fn logits(&self, request: u64, tokens: &[u32], position: u32) -> Vec<f32> {
        if self.nan_target == Some((request, tokens.len() as u32)) {
            return vec![f32::NAN; self.target.vocab as usize];
        }
        self.target.logits_at(tokens, position + 1)
    }

    /// The drafter's log-probabilities of the token behind `tokens`, `salt` apart from other levels.
    pub(super) fn draft(&self, request: u64, tokens: &[u32], salt: u32) -> Vec<f32> {
        if self.nan_draft == Some((request, tokens.len() as u32)) {
            let x = if self.seeded == Seeded::NanDraft { 0.0 } else { f32::NAN };
            return vec![x; self.target.vocab as usize];
        }
        let mut x = self.target.logits(tokens);
        for (token, x) in (0..).zip(&mut x) {
            let bits = philox4x32([token, tokens.len() as u32, salt, 0], [5, self.target.seed])[0];
            *x += ((f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0) as f32) * self.noise;
        }
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = x.iter().map(|x| (x - max).exp()).sum();
        x.iter_mut().for_each(|x| *x -= max + sum.ln());
        x
    }
}
