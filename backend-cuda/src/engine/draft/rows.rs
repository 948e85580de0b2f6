//! From rows of logits on the host to candidates, as every engine makes them.

use treeline_core::draft::{draw_row, top_ranks};
use treeline_core::stream::{Key, Purpose};
use treeline_core::{Ask, Batch, Candidate, Conditional, Draw, NodeRef};

/// `out = x − log Σ exp(x)`: natural log-probabilities over the whole row; NaN anywhere makes every entry NaN.
pub(crate) fn log_softmax(x: &[f32], out: &mut [f32]) {
    let max = x.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m || x.is_nan() { x } else { m });
    let sum: f64 = x.iter().map(|&x| f64::from(x - max).exp()).sum();
    let norm = max + sum.ln() as f32;
    out.iter_mut().zip(x).for_each(|(out, x)| *out = x - norm);
}

/// Where a conditional drafter writes the children of nodes.
pub(crate) struct Rows<'a> {
    drafts: Conditional,
    batch: &'a Batch,
    ask: &'a [Ask],
    seed: u64,
    logp: Vec<f32>,
    row: Vec<Candidate>,
}

impl<'a> Rows<'a> {
    pub fn new(batch: &'a Batch, ask: &'a [Ask], vocab: usize, seed: u64) -> Self {
        let mut drafts = Conditional::new(batch.len(), vocab);
        for (seq, ask) in (0..).zip(ask) {
            drafts.set_depth(seq, ask.depth);
        }
        Self::continued(drafts, batch, ask, vocab, seed)
    }

    /// Goes on with drafts of the same round.
    pub fn continued(drafts: Conditional, batch: &'a Batch, ask: &'a [Ask], vocab: usize, seed: u64) -> Self {
        Self { drafts, batch, ask, seed, logp: vec![0.0; vocab], row: Vec::new() }
    }

    /// The drafts.
    pub fn finish(self) -> Conditional {
        self.drafts
    }

    /// Whether sequence `seq` asks for drafts.
    pub fn asks(&self, seq: usize) -> bool {
        self.ask[seq].depth > 0
    }

    /// Stores the children of `at` from the drafter's logits.
    pub fn put(&mut self, at: NodeRef, logits: &[f32]) {
        log_softmax(logits, &mut self.logp);
        let (ask, depth) = (self.ask[at.seq as usize], at.depth + 1);
        let made = match ask.draw {
            Draw::Ranked => {
                let made = top_ranks(&self.logp, ask.width as usize, depth, &mut self.row);
                made.map(|()| self.drafts.expand(at, &self.row, None, true, true))
            }
            Draw::Sampled { replace } => {
                self.logp.iter_mut().for_each(|p| *p = p.exp());
                let seq = &self.batch.seqs[at.seq as usize];
                let position = seq.start + at.depth + 1;
                let key = Key {
                    seed: self.seed,
                    purpose: Purpose::DraftDraw,
                    request: seq.request,
                    position,
                    round: seq.round,
                    node: at.node,
                };
                let made = draw_row(&self.logp, key, ask.width as usize, replace, depth, &mut self.row);
                made.map(|()| self.drafts.expand(at, &self.row, Some(&self.logp), false, !replace))
            }
        };
        if let Err(fault) = made {
            self.drafts.fail(at.seq, fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::log_softmax;

    #[test]
    fn log_probabilities_sum_to_one_and_nan_spreads() {
        let mut out = [0.0; 4];
        log_softmax(&[1.0, f32::NEG_INFINITY, 3.0, -2.0], &mut out);
        assert_eq!(out[1], f32::NEG_INFINITY);
        assert!((out.iter().map(|x| f64::from(*x).exp()).sum::<f64>() - 1.0).abs() < 1e-6);
        log_softmax(&[1.0, f32::NAN, 3.0, -2.0], &mut out);
        assert!(out.iter().all(|x| x.is_nan()));
    }
}
