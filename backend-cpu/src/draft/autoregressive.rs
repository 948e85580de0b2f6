//! A small autoregressive model as a drafter: conditional drafts, one pass per wave of nodes.
//!
//! Its cache follows the target's: after a commit the accepted nodes that were expanded are gathered, and what is missing
//! (the last accepted token as a rule) is run together with the next root.

use super::Rows;
use crate::features::{CpuFeatures, SlotFeatures};
use crate::kernel::log_softmax;
use crate::kv::SeqKv;
use crate::model::{Model, Work, buffer};
use crate::plan::Plan;
use std::sync::Arc;
use treeline_core::{Batch, Forest, NodeRef};

/// Tokens of one pass while the cache catches up.
const CHUNK: usize = 128;

/// The drafter with the caches of all slots.
#[derive(Debug)]
pub(crate) struct Autoregressive {
    model: Arc<Model>,
    kvs: Vec<SeqKv>,
    slots: Vec<Slot>,
    plan: Plan,
    work: Work,
    scratch: Vec<f32>,
    logits: Vec<f32>,
    rows: Vec<f32>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Committed tokens.
    history: Vec<u32>,
    /// Slots `[0, valid)` of the cache hold the history's keys and values.
    valid: usize,
    /// Position of the root of the last draft, whose nodes may still be in the cache.
    root: Option<usize>,
    /// By node of the last draft: parent and token, where it was expanded.
    nodes: Vec<Option<(u32, u32)>>,
}

impl Slot {
    /// Moves what the last draft computed of the tokens committed since into place.
    fn settle(&mut self, kv: &mut SeqKv) {
        let Some(root) = self.root.take().filter(|&r| r < self.history.len()) else { return };
        let mut path = vec![0];
        for &token in &self.history[root + 1..] {
            let at = path[path.len() - 1];
            match self.nodes.iter().position(|n| *n == Some((at, token))) {
                Some(node) => path.push(node as u32),
                None => break,
            }
        }
        kv.gather(root, &path);
        self.valid = root + path.len();
    }
}

impl Autoregressive {
    pub fn new(model: Arc<Model>, slots: usize) -> Self {
        Self {
            kvs: (0..slots).map(|_| SeqKv::new(model.kv_shape())).collect(),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            model,
            plan: Plan::default(),
            work: Work::default(),
            scratch: Vec::new(),
            logits: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Length of a distribution.
    pub fn vocab(&self) -> usize {
        self.model.config().vocab
    }

    pub fn release(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// Runs the committed tokens of one slot through the model.
    pub fn absorb(&mut self, slot: usize, features: &SlotFeatures) {
        let state = &mut self.slots[slot];
        state.history.extend_from_slice(features.new_tokens());
        features.take_to(features.end());
        state.settle(&mut self.kvs[slot]);
        self.catch_up(slot, 0);
    }

    /// Runs the history of one slot, but for at most `keep` tokens at its end.
    fn catch_up(&mut self, slot: usize, keep: usize) {
        let state = &mut self.slots[slot];
        while state.history.len() > state.valid + keep {
            let end = (state.valid + CHUNK).min(state.history.len());
            self.plan.clear(true);
            self.plan.chunk(slot, state.valid, &state.history[state.valid..end]);
            self.model.forward(&self.plan, &mut self.kvs, &[], &mut self.work);
            state.valid = end;
        }
    }

    /// The root's children of every asking sequence.
    pub fn draft(&mut self, batch: &Batch, features: &CpuFeatures, out: &mut Rows<'_>) {
        let asks = |at: usize, out: &Rows<'_>| out.ask(at).depth > 0;
        for (_, seq) in batch.iter().enumerate().filter(|(at, _)| asks(*at, out)) {
            let slot = seq.slot as usize;
            let (state, features) = (&mut self.slots[slot], &features.slots[slot]);
            state.history.extend_from_slice(features.new_tokens());
            features.take_to(features.end());
            state.settle(&mut self.kvs[slot]);
            self.catch_up(slot, CHUNK);
        }
        self.plan.clear(true);
        let mut nodes = Vec::new();
        for (at, seq) in batch.iter().enumerate().filter(|(at, _)| asks(*at, out)) {
            let slot = seq.slot as usize;
            let state = &mut self.slots[slot];
            debug_assert_eq!(state.history.len(), seq.start as usize);
            let mut tokens = state.history[state.valid..].to_vec();
            tokens.push(seq.root);
            self.plan.chunk(slot, state.valid, &tokens);
            state.valid = state.history.len();
            state.root = Some(state.history.len());
            state.nodes.clear();
            // The root has no parent, so no accepted token is ever mistaken for it.
            state.nodes.push(Some((u32::MAX, seq.root)));
            nodes.push((NodeRef { seq: at as u32, node: 0, depth: 0 }, self.plan.len() - 1));
        }
        self.run(&nodes, out);
    }

    /// The children of a wave of nodes over all sequences (sorted by sequence, then node), in one pass.
    pub fn expand(&mut self, batch: &Batch, forest: &Forest, wave: &[NodeRef], out: &mut Rows<'_>) {
        self.plan.clear(true);
        let mut wanted = Vec::new();
        for group in wave.chunk_by(|a, b| a.seq == b.seq) {
            let (at, tree) = (group[0].seq as usize, forest.tree(group[0].seq as usize));
            let slot = batch.seqs[at].slot as usize;
            let state = &mut self.slots[slot];
            let Some(root) = state.root else { continue };
            state.nodes.resize(state.nodes.len().max(tree.rows() as usize), None);
            // A node needs its ancestors' keys: those that were never expanded run in the same pass.
            let mut list: Vec<u32> = Vec::new();
            for node in group {
                let mut up = node.node;
                while up != 0 && state.nodes[up as usize].is_none() {
                    state.nodes[up as usize] = Some((tree.parents()[up as usize], tree.tokens()[up as usize]));
                    list.push(up);
                    up = tree.parents()[up as usize];
                }
                // Expanded as an ancestor before: its row is computed again for its children.
                if !list.contains(&node.node) {
                    list.push(node.node);
                }
            }
            list.sort_unstable();
            let first = self.plan.len();
            self.plan.nodes(slot, root, &list, tree.tokens(), tree.parents(), tree.depths());
            for node in group {
                // `list` holds every node of the group.
                if let Ok(row) = list.binary_search(&node.node) {
                    wanted.push((*node, first + row));
                }
            }
        }
        self.run(&wanted, out);
    }

    /// One pass over the plan, and the children of each `(node, row)`.
    fn run(&mut self, nodes: &[(NodeRef, usize)], out: &mut Rows<'_>) {
        if nodes.is_empty() {
            return;
        }
        self.model.forward(&self.plan, &mut self.kvs, &[], &mut self.work);
        let (vocab, hidden) = (self.vocab(), self.model.config().hidden);
        let rows = buffer(&mut self.rows, nodes.len() * hidden);
        for (to, (_, row)) in rows.chunks_exact_mut(hidden).zip(nodes) {
            to.copy_from_slice(&self.work.x[row * hidden..][..hidden]);
        }
        let logits = buffer(&mut self.logits, nodes.len() * vocab);
        self.model.logits(rows, nodes.len(), &mut self.scratch, logits);
        for (logits, (node, _)) in logits.chunks_exact(vocab).zip(nodes) {
            out.put(*node, |logp| log_softmax(logits, logp));
        }
    }
}
