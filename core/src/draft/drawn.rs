//! Candidates drawn from a drafter's distributions, each node's on their own.

use super::{Ask, Candidate, DraftView, Draw, NodeRef};
use crate::batch::Batch;
use crate::error::Fault;
use crate::stream::{Key, Purpose, gumbel};
use std::cell::OnceCell;

/// Draws `width` tokens from `dist` (probabilities, vocabulary long) in draw order. Without replacement one Gumbel number
/// per token orders them all (the same law as drawing one after the other); with replacement draw `j` of token `t` uses
/// the number of token `j·⌈V/4⌉·4 + t`. Tokens of probability 0 are never drawn, so a row may be shorter than `width`.
///
/// # Errors
/// [`Fault::Draft`] with `depth` when a probability is negative or not finite.
pub fn draw_row(
    dist: &[f32],
    key: Key,
    width: usize,
    replace: bool,
    depth: u32,
    out: &mut Vec<Candidate>,
) -> Result<(), Fault> {
    if let Some(token) = dist.iter().position(|p| !p.is_finite() || *p < 0.0) {
        return Err(Fault::Draft { depth, why: format!("token {token} has probability {}", dist[token]) });
    }
    out.clear();
    let stream = key.stream();
    let blocks = (dist.len() as u32).div_ceil(4);
    let mut noisy: Vec<(f64, u32)> = Vec::new();
    for draw in 0..if replace { width as u32 } else { 1 } {
        noisy.clear();
        for (chunk, block) in dist.chunks(4).zip(draw * blocks..) {
            if chunk.iter().all(|p| *p == 0.0) {
                continue;
            }
            let first = (block - draw * blocks) * 4;
            for ((&p, bits), token) in chunk.iter().zip(stream.block(block)).zip(first..) {
                if p > 0.0 {
                    noisy.push((f64::from(p).ln() + gumbel(bits), token));
                }
            }
        }
        let count = if replace { 1 } else { width };
        let better = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if noisy.len() > count && count > 0 {
            noisy.select_nth_unstable_by(count - 1, better);
            noisy.truncate(count);
        }
        noisy.sort_unstable_by(better);
        let tokens = noisy.iter().take(count).map(|&(_, token)| token);
        out.extend(tokens.map(|token| Candidate { token, logp: dist[token as usize].ln() }));
    }
    Ok(())
}

/// A block drafter's distributions ([`DraftView::dist`] of `inner`) as drawn candidates. Each node's children are drawn
/// when they are first asked for, keyed by (seed, request, position, round, node): the order of asking does not matter,
/// and nodes of one level do not share draws, which traversal verification needs.
#[derive(Debug)]
pub struct Drawn<V> {
    inner: V,
    seqs: Vec<DrawnSeq>,
}

#[derive(Debug)]
struct DrawnSeq {
    /// The root's key; position and node are set per draw.
    key: Key,
    width: usize,
    replace: bool,
    first: Chunk,
}

/// Children by node, in a list of chunks: what was handed out stays where it is while the list grows.
#[derive(Debug, Default)]
struct Chunk {
    rows: [OnceCell<Box<[Candidate]>>; 32],
    next: OnceCell<Box<Chunk>>,
}

impl Chunk {
    fn row(&self, node: u32) -> &OnceCell<Box<[Candidate]>> {
        let mut chunk = self;
        for _ in 0..node / 32 {
            chunk = chunk.next.get_or_init(Box::default);
        }
        &chunk.rows[node as usize % 32]
    }
}

impl<V: DraftView> Drawn<V> {
    /// Draws from `inner` what `ask` says (one entry a sequence of `batch`); `seed` is the law's.
    #[must_use]
    pub fn new(inner: V, batch: &Batch, ask: &[Ask], seed: u64) -> Self {
        let seqs = batch.iter().zip(ask).map(|(seq, ask)| DrawnSeq {
            key: Key {
                seed,
                purpose: Purpose::DraftDraw,
                request: seq.request,
                position: seq.start,
                round: seq.round,
                node: 0,
            },
            width: ask.width as usize,
            replace: ask.draw == Draw::Sampled { replace: true },
            first: Chunk::default(),
        });
        let seqs = seqs.collect();
        Self { inner, seqs }
    }
}

impl<V: DraftView> DraftView for Drawn<V> {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        let Some(seq) = self.seqs.get(at.seq as usize) else { return &[] };
        seq.first.row(at.node).get_or_init(|| {
            let Some(dist) = self.inner.dist(at) else { return Box::default() };
            let key = Key { position: seq.key.position + at.depth + 1, node: at.node, ..seq.key };
            let mut row = Vec::new();
            // A distribution that cannot be drawn from gives no candidates here and a fault below.
            match draw_row(dist, key, seq.width, seq.replace, at.depth + 1, &mut row) {
                Ok(()) => row.into(),
                Err(_) => Box::default(),
            }
        })
    }

    fn level(&self, _seq: u32, _depth: u32) -> Option<&[Candidate]> {
        None
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        self.inner.dist(at)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.inner.depth(seq)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.inner.fault(seq).or_else(|| {
            (0..self.inner.depth(seq)).find_map(|depth| {
                let dist = self.inner.dist(NodeRef { seq, node: 0, depth })?;
                let token = dist.iter().position(|p| !p.is_finite() || *p < 0.0)?;
                let why = format!("token {token} has probability {}", dist[token]);
                Some(Fault::Draft { depth: depth + 1, why })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Sampling, Seq};
    use crate::draft::Lattice;

    const DIST: [f32; 6] = [0.1, 0.0, 0.35, 0.25, 0.0, 0.3];

    fn key(node: u32) -> Key {
        Key { seed: 5, purpose: Purpose::DraftDraw, request: 1, position: 9, round: 2, node }
    }

    fn draw(width: usize, replace: bool, node: u32) -> Vec<u32> {
        let mut row = Vec::new();
        draw_row(&DIST, key(node), width, replace, 1, &mut row).unwrap();
        assert!(row.iter().all(|c| c.logp == DIST[c.token as usize].ln()));
        row.iter().map(|c| c.token).collect()
    }

    /// Drawing all at once is drawing one after the other, what was drawn left out, on the same numbers.
    #[test]
    fn without_replacement_is_repeated_gumbel_argmax() {
        for node in 0..200 {
            let mut scores = DIST.map(|p| f64::from(p).ln());
            let one_by_one: Vec<u32> = std::iter::from_fn(|| {
                let token = key(node).stream().gumbel_argmax(scores)?;
                scores[token as usize] = f64::NEG_INFINITY;
                Some(token)
            })
            .collect();
            assert_eq!(one_by_one.len(), 4, "tokens of probability 0 are never drawn");
            for width in 0..=6 {
                assert_eq!(draw(width, false, node), one_by_one[..width.min(4)]);
            }
        }
    }

    /// With replacement draws are independent: pairs follow the product of their probabilities.
    #[test]
    fn with_replacement_draws_are_independent() {
        let n = 40_000u32;
        let mut pairs = [[0.0f64; 6]; 6];
        for node in 0..n {
            let row = draw(2, true, node);
            pairs[row[0] as usize][row[1] as usize] += 1.0;
        }
        let mut chi = 0.0;
        for (a, row) in pairs.iter().enumerate() {
            for (b, &count) in row.iter().enumerate() {
                let expected = f64::from(DIST[a] * DIST[b]) * f64::from(n);
                if expected == 0.0 {
                    assert_eq!(count, 0.0);
                } else {
                    chi += (count - expected).powi(2) / expected;
                }
            }
        }
        // 15 degrees of freedom: 37.7 is passed by chance once in a thousand seeds; one shared number per token would
        // put every pair on the diagonal.
        assert!(chi < 37.7, "{chi}");
    }

    #[test]
    fn a_distribution_that_is_none_is_a_fault() {
        let mut row = Vec::new();
        for bad in [f32::NAN, f32::INFINITY, -0.1] {
            let made = draw_row(&[0.5, bad], key(0), 1, false, 3, &mut row);
            assert!(matches!(&made, Err(Fault::Draft { depth: 3, why }) if why.contains("token 1")), "{made:?}");
        }
        assert!(draw_row(&[0.0; 3], key(0), 2, true, 1, &mut row).is_ok() && row.is_empty());
    }

    /// Nodes have draws of their own, whatever the order of asking, and keep them.
    #[test]
    fn children_do_not_depend_on_the_order_of_asking() {
        let seq = Seq {
            slot: 0,
            request: 1,
            index: 0,
            start: 8,
            root: 0,
            left: 9,
            eos: [].as_slice().into(),
            sampling: Sampling::at(1.0),
            round: 2,
        };
        let batch = Batch { seqs: vec![seq] };
        let ask = [Ask { depth: 2, width: 2, draw: Draw::Sampled { replace: false } }];
        let make = |dist: [f32; 6]| {
            let mut lattice = Lattice::new(6);
            lattice.begin_seq();
            for _ in 0..2 {
                lattice.push_row(&[], false, true);
                lattice.push_dist(&dist);
            }
            Drawn::new(lattice, &batch, &ask, 5)
        };
        let at = |node| NodeRef { seq: 0, node, depth: u32::from(node > 0) };
        let (up, down) = (make(DIST), make(DIST));
        let forwards: Vec<Vec<Candidate>> = (0..100).map(|n| up.children(at(n)).to_vec()).collect();
        let backwards: Vec<Vec<Candidate>> = (0..100).rev().map(|n| down.children(at(n)).to_vec()).collect();
        assert!(forwards.iter().eq(backwards.iter().rev()));
        assert_eq!(forwards[0].iter().map(|c| c.token).collect::<Vec<_>>(), draw(2, false, 0));
        assert!(forwards[1..].iter().any(|row| row != &forwards[1]), "nodes of a level share their draws");
        assert_eq!(up.children(at(7)), forwards[7]);
        assert_eq!((up.level(0, 1), up.depth(0)), (None, 2));
        let broken = make([f32::NAN; 6]);
        assert!(broken.children(at(0)).is_empty());
        assert!(matches!(broken.fault(0), Some(Fault::Draft { depth: 1, .. })));
    }
}
