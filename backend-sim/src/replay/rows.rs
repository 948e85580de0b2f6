//! Recorded rows of one round on a block drafter, in memory that goes round.

use std::sync::{Arc, Mutex};
use treeline_core::draft::check_row;
use treeline_core::{Candidate, DraftView, Fault, NodeRef};

/// Where the memory of a round's drafts waits for the next round.
pub(super) type Pool = Arc<Mutex<Option<Memory>>>;

/// What a round's drafts are made of.
#[derive(Debug, Default)]
pub(super) struct Memory {
    seqs: Vec<SeqRows>,
    /// Begin of each row in `candidates`, and the end of the last of each sequence.
    bounds: Vec<u32>,
    candidates: Vec<Candidate>,
}

#[derive(Debug)]
struct SeqRows {
    /// Where its bounds begin.
    bounds: u32,
    depth: u32,
    fault: Option<Fault>,
}

/// Rows by sequence and level.
#[derive(Debug)]
pub struct BlockRows {
    memory: Memory,
    pool: Pool,
}

impl BlockRows {
    /// No rows yet, in the memory that `pool` holds.
    pub(super) fn new(pool: &Pool) -> Self {
        let waiting = pool.lock().ok().and_then(|mut memory| memory.take());
        let mut memory = waiting.unwrap_or_default();
        memory.seqs.clear();
        memory.bounds.clear();
        memory.candidates.clear();
        Self { memory, pool: pool.clone() }
    }

    /// Starts the rows of the next sequence.
    pub(super) fn begin(&mut self) {
        let Memory { seqs, bounds, candidates } = &mut self.memory;
        seqs.push(SeqRows { bounds: bounds.len() as u32, depth: 0, fault: None });
        bounds.push(candidates.len() as u32);
    }

    /// Adds the next level's row to the sequence begun last: `width` ranks at the most. Without token ids a candidate's id
    /// is its rank.
    pub(super) fn push(&mut self, logp: &[f32], ids: &[u32], width: u32) {
        let Memory { seqs, bounds, candidates } = &mut self.memory;
        let Some(seq) = seqs.last_mut() else { return };
        seq.depth += 1;
        let begin = candidates.len();
        let logp = &logp[..logp.len().min(width as usize)];
        if ids.is_empty() {
            candidates.extend(logp.iter().zip(0..).map(|(&logp, token)| Candidate { token, logp }));
        } else {
            candidates.extend(logp.iter().zip(ids).map(|(&logp, &token)| Candidate { token, logp }));
            // The order of every row was checked when the trace was taken in, its ids were not.
            if seq.fault.is_none() {
                seq.fault = check_row(&candidates[begin..], seq.depth, true, true).err();
            }
        }
        bounds.push(candidates.len() as u32);
    }

    /// Marks the sequence begun last as unusable.
    pub(super) fn fail(&mut self, fault: Fault) {
        if let Some(seq) = self.memory.seqs.last_mut() {
            seq.fault.get_or_insert(fault);
        }
    }
}

impl Drop for BlockRows {
    fn drop(&mut self) {
        // A lock that is poisoned loses the memory, nothing else.
        if let Ok(mut waiting) = self.pool.lock() {
            *waiting = Some(std::mem::take(&mut self.memory));
        }
    }
}

impl DraftView for BlockRows {
    #[inline]
    fn children(&self, at: NodeRef) -> &[Candidate] {
        self.level(at.seq, at.depth + 1).unwrap_or(&[])
    }

    #[inline]
    fn level(&self, seq: u32, depth: u32) -> Option<&[Candidate]> {
        let seq = self.memory.seqs.get(seq as usize)?;
        let row = depth.checked_sub(1).filter(|&row| row < seq.depth)?;
        let at = (seq.bounds + row) as usize;
        Some(&self.memory.candidates[self.memory.bounds[at] as usize..self.memory.bounds[at + 1] as usize])
    }

    fn dist(&self, _at: NodeRef) -> Option<&[f32]> {
        None
    }

    #[inline]
    fn depth(&self, seq: u32) -> u32 {
        self.memory.seqs.get(seq as usize).map_or(0, |s| s.depth)
    }

    #[inline]
    fn fault(&self, seq: u32) -> Option<Fault> {
        self.memory.seqs.get(seq as usize)?.fault.clone()
    }
}
