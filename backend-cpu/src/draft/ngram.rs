//! An n-gram drafter: what followed the same last tokens before, in the prompt or the response (prompt lookup).
//!
//! The distribution is interpolated from the longest matching suffix down to the uniform distribution by the method that
//! Witten and Bell (1991) call C: p_n(t) = (c_n(t) + k_n · p_{n−1}(t)) / (C_n + k_n), where c_n(t) counts t behind the last
//! n tokens, C_n is the sum of the counts and k_n the number of different tokens among them. So every token has a
//! probability above zero, and the whole distribution sums to one.

use super::Rows;
use crate::features::{CpuFeatures, SlotFeatures};
use treeline_core::{Batch, Forest, NodeRef};

/// Longest suffix that is matched.
pub(crate) const MAX_ORDER: usize = 8;

/// The drafter with the histories of all slots.
#[derive(Debug)]
pub(crate) struct NGram {
    vocab: usize,
    order: usize,
    slots: Vec<History>,
}

#[derive(Debug, Default)]
struct History {
    tokens: Vec<u32>,
    /// By token: the positions behind its occurrences, ascending; one list per token that occurred.
    next: std::collections::BTreeMap<u32, Vec<u32>>,
    /// Occurrences by token.
    counts: std::collections::BTreeMap<u32, u32>,
}

impl History {
    fn push(&mut self, token: u32) {
        self.tokens.push(token);
        *self.counts.entry(token).or_default() += 1;
        self.next.entry(token).or_default().push(self.tokens.len() as u32);
    }

    /// Natural log-probabilities of what follows `tail` (the last tokens, newest last), which itself is not counted.
    fn log_probabilities(&self, tail: &[u32], order: usize, out: &mut [f32]) {
        // p in f64 from the uniform distribution upwards; levels touch only tokens that they have seen.
        let vocab = out.len();
        let mut p = vec![1.0 / vocab as f64; vocab];
        let mut level = |seen: &[(u32, u32)]| {
            let total: u32 = seen.iter().map(|&(_, c)| c).sum();
            if total == 0 {
                return;
            }
            let kinds = seen.len() as f64;
            let norm = 1.0 / (f64::from(total) + kinds);
            p.iter_mut().for_each(|p| *p *= kinds * norm);
            for &(token, count) in seen {
                p[token as usize] += f64::from(count) * norm;
            }
        };
        let unigrams: Vec<(u32, u32)> = self.counts.iter().map(|(&t, &c)| (t, c)).collect();
        level(&unigrams);
        let last = tail.last().and_then(|t| self.next.get(t));
        // Length of the match behind each earlier occurrence of the last token, the last token included.
        let matches: Vec<(usize, u32)> = last
            .into_iter()
            .flatten()
            .filter_map(|&after| {
                let next = *self.tokens.get(after as usize)?;
                let before = self.tokens[..after as usize].iter().rev();
                Some((before.zip(tail.iter().rev()).take(order).take_while(|(a, b)| a == b).count(), next))
            })
            .collect();
        for n in 1..=order {
            let mut followers: Vec<u32> = matches.iter().filter(|(len, _)| *len >= n).map(|&(_, t)| t).collect();
            followers.sort_unstable();
            let seen: Vec<(u32, u32)> =
                followers.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect();
            level(&seen);
        }
        for (out, p) in out.iter_mut().zip(p) {
            *out = p.ln() as f32;
        }
    }
}

impl NGram {
    pub fn new(vocab: usize, order: usize, slots: usize) -> Self {
        Self { vocab, order, slots: (0..slots).map(|_| History::default()).collect() }
    }

    /// Length of a distribution.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    pub fn release(&mut self, slot: usize) {
        self.slots[slot] = History::default();
    }

    /// Takes in the committed tokens of one slot.
    pub fn absorb(&mut self, slot: usize, features: &SlotFeatures) {
        for &token in features.new_tokens() {
            self.slots[slot].push(token);
        }
        features.take_to(features.end());
    }

    /// The root's children of every asking sequence.
    pub fn draft(&mut self, batch: &Batch, features: &CpuFeatures, out: &mut Rows<'_>) {
        for (at, seq) in batch.iter().enumerate() {
            if out.ask(at).depth > 0 {
                self.absorb(seq.slot as usize, &features.slots[seq.slot as usize]);
                self.put(seq.slot as usize, &[seq.root], NodeRef { seq: at as u32, node: 0, depth: 0 }, out);
            }
        }
    }

    /// The children of a wave of nodes.
    pub fn expand(&mut self, batch: &Batch, forest: &Forest, wave: &[NodeRef], out: &mut Rows<'_>) {
        for at in wave {
            let (seq, tree) = (&batch.seqs[at.seq as usize], forest.tree(at.seq as usize));
            let mut path = vec![seq.root];
            path.extend(tree.path(at.node).into_iter().map(|n| tree.tokens()[n as usize]));
            self.put(seq.slot as usize, &path, *at, out);
        }
    }

    /// `path` = root and accepted-so-far tokens of the tree, which continue the history.
    fn put(&self, slot: usize, path: &[u32], at: NodeRef, out: &mut Rows<'_>) {
        let history = &self.slots[slot];
        let missing = self.order.saturating_sub(path.len()).min(history.tokens.len());
        let mut tail = history.tokens[history.tokens.len() - missing..].to_vec();
        tail.extend_from_slice(path);
        out.put(at, |logp| history.log_probabilities(&tail, self.order, logp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(history: &[u32], tail: &[u32], order: usize) -> Vec<f64> {
        let mut h = History::default();
        history.iter().for_each(|&t| h.push(t));
        let mut logp = vec![0.0; 6];
        h.log_probabilities(tail, order, &mut logp);
        logp.into_iter().map(|x| f64::from(x).exp()).collect()
    }

    #[test]
    fn probabilities_follow_the_formula_and_sum_to_one() {
        // Behind 1: twice 2, once 3.
        let history = [1, 2, 1, 3, 1, 2];
        let p = after(&history, &[1], 1);
        let uni = |c: f64| (c + 3.0 / 6.0) / 9.0;
        let bi = |c: f64, u: f64| (c + 2.0 * uni(u)) / 5.0;
        let want = [bi(0.0, 0.0), bi(0.0, 3.0), bi(2.0, 2.0), bi(1.0, 1.0), bi(0.0, 0.0), bi(0.0, 0.0)];
        for (p, want) in p.iter().zip(want) {
            assert!((p - want).abs() < 1e-6, "{p} against {want}");
        }
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_longer_match_decides() {
        // Behind 1 it is 2 three times and 4 once, but behind (5, 1) always 4.
        let history = [1, 2, 1, 2, 1, 2, 5, 1, 4];
        let short = after(&history, &[0, 1], 3);
        let long = after(&history, &[5, 1], 3);
        assert!(short[2] > short[4]);
        assert!(long[4] > long[2]);
    }
}
