//! Drafts whose rows depend on the path.

use super::{Candidate, DraftView, NodeRef, check_row};
use crate::error::Fault;

/// Drafts of a conditional drafter: a row per expanded node, filled wave by wave.
#[derive(Debug, Clone, Default)]
pub struct Conditional {
    seqs: Vec<ConditionalSeq>,
    candidates: Vec<Candidate>,
    dists: Vec<f32>,
    vocab: usize,
}

#[derive(Debug, Clone, Default)]
struct ConditionalSeq {
    depth: u32,
    /// Row of each expanded node: begin and end in `candidates`, and where its distribution starts in `dists`.
    rows: Vec<Option<(usize, usize, Option<usize>)>>,
    fault: Option<Fault>,
}

impl Conditional {
    /// Room for `seqs` sequences; `vocab` is the length of the full distributions, where they are kept (else 0).
    #[must_use]
    pub fn new(seqs: usize, vocab: usize) -> Self {
        Self { seqs: vec![ConditionalSeq::default(); seqs], vocab, ..Self::default() }
    }

    /// How deep sequence `seq` may be expanded; 0 = skipped.
    pub fn set_depth(&mut self, seq: u32, depth: u32) {
        self.seqs[seq as usize].depth = depth;
    }

    /// Stores the candidates of node `at` (and the full distribution they come from, where it was asked for).
    pub fn expand(&mut self, at: NodeRef, row: &[Candidate], dist: Option<&[f32]>, ranked: bool, distinct: bool) {
        let begin = self.candidates.len();
        self.candidates.extend_from_slice(row);
        let full = dist.map(|d| {
            debug_assert_eq!(d.len(), self.vocab);
            self.dists.extend_from_slice(d);
            self.dists.len() - d.len()
        });
        let seq = &mut self.seqs[at.seq as usize];
        if seq.fault.is_none() {
            seq.fault = check_row(row, at.depth + 1, ranked, distinct).err();
        }
        let node = at.node as usize;
        if seq.rows.len() <= node {
            seq.rows.resize(node + 1, None);
        }
        seq.rows[node] = Some((begin, self.candidates.len(), full));
    }

    /// Marks one sequence as unusable.
    pub fn fail(&mut self, seq: u32, fault: Fault) {
        self.seqs[seq as usize].fault.get_or_insert(fault);
    }

    /// Whether `at` has been expanded.
    #[must_use]
    pub fn expanded(&self, at: NodeRef) -> bool {
        self.row(at).is_some()
    }

    fn row(&self, at: NodeRef) -> Option<(usize, usize, Option<usize>)> {
        *self.seqs.get(at.seq as usize)?.rows.get(at.node as usize)?
    }
}

impl DraftView for Conditional {
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.row(at).map_or(&[], |(begin, end, _)| &self.candidates[begin..end])
    }

    fn level(&self, _seq: u32, _depth: u32) -> Option<&[Candidate]> {
        None
    }

    fn dist(&self, at: NodeRef) -> Option<&[f32]> {
        let (_, _, full) = self.row(at)?;
        let begin = full?;
        self.dists.get(begin..begin + self.vocab)
    }

    fn depth(&self, seq: u32) -> u32 {
        self.seqs.get(seq as usize).map_or(0, |s| s.depth)
    }

    fn fault(&self, seq: u32) -> Option<Fault> {
        self.seqs.get(seq as usize)?.fault.clone()
    }
}
