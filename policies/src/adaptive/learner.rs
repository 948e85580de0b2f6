//! Calibrated drafts that learn: posteriors, the rows that they were applied to, and where each node's row was.

use super::calibrate::{Buffer, Calibrated, Calibration};
use treeline_core::{DraftView, Forest, Limits, RoundLog};

/// How posteriors are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Ranks with a posterior of their own; the last one stands for all behind it.
    pub ranks: u32,
    /// Observations.
    pub memory: f64,
    /// Weight of the drafter's claim, in pseudo-hits.
    pub prior: f64,
}

/// Learns from outcomes how much a drafter's claims are worth, and shows its drafts accordingly.
#[derive(Debug)]
pub(crate) struct Learner {
    calibration: Calibration,
    buffer: Buffer,
    /// Per sequence of this round, where the drafter is conditional: where each node of the tree was while it was grown.
    origins: Vec<Vec<u32>>,
}

impl Learner {
    pub fn new(memory: Memory, limits: &Limits) -> Self {
        // Trees are no deeper than their budget; deeper levels than that bound are never reached.
        let depth = limits.depth.min(limits.budget).min(1024);
        let calibration = Calibration::new(depth, memory.ranks, memory.memory, memory.prior);
        Self { calibration, buffer: Buffer::default(), origins: Vec::new() }
    }

    /// A round of `seqs` sequences begins.
    pub fn begin(&mut self, seqs: usize) {
        self.buffer.begin(seqs);
    }

    /// The drafts with what is known of them by now.
    pub fn calibrated<'a>(&'a mut self, drafts: &'a dyn DraftView, forest: &Forest) -> Calibrated<'a> {
        for seq in 0..forest.len() {
            if forest.fault(seq).is_none() {
                self.buffer.update(seq as u32, forest.tree(seq), drafts, &self.calibration);
            }
        }
        Calibrated { drafts, buffer: &self.buffer }
    }

    /// The trees are final.
    pub fn remember(&mut self, forest: &Forest) {
        self.origins.resize_with(self.origins.len().max(forest.len()), Vec::new);
        for (origins, tree) in self.origins.iter_mut().zip(forest.trees()) {
            origins.clear();
            origins.extend((0..tree.rows()).map(|n| tree.origin(n)));
        }
    }

    /// Learns from a round that drafted.
    pub fn observe(&mut self, log: &RoundLog) {
        for (seq, entry) in log.entries.iter().enumerate() {
            let (Ok(step), Some(origins)) = (&entry.result, self.origins.get(seq)) else { continue };
            for (depth, &rank) in step.truth_ranks.iter().enumerate() {
                let node = if depth == 0 { Some(0) } else { step.path.get(depth - 1).copied() };
                let Some(&at) = node.and_then(|n| origins.get(n as usize)) else { break };
                let row = self.buffer.raw(seq as u32, at, depth as u32);
                // An unexpanded leaf of a conditional draft has no row to be judged by.
                if !row.is_empty() {
                    self.calibration.observe(depth, row, rank);
                }
            }
        }
    }
}
