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
