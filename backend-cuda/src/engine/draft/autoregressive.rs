//! A small autoregressive model as a drafter: conditional drafts, one pass per wave of nodes.
//!
//! A pass holds the wave's nodes with all their ancestors, as a tree of its own: the ancestors are computed again, which
//! costs next to nothing beside reading the weights, and leaves no pass that depends on what an earlier one wrote. After a
//! commit the accepted nodes of the last pass are gathered; what is missing runs together with the next root.

use super::rows::Rows;
use crate::device::{Buffer, Gpu, Pinned};
use crate::engine::buckets::Buckets;
use crate::engine::features::CudaFeatures;
use crate::engine::settings::CudaSettings;
use crate::error::{CudaError, Result};
use crate::model::{Cache, Head, Target, Work};
use crate::ops::gather::{GatherKv, GatherKvCall};
use crate::ops::rows::{Bucket, MOST_ROWS, RowPlan, Sight};
use std::sync::Arc;
use treeline_core::{Batch, Forest, NodeRef, Tree};

/// Tokens of one pass while the cache catches up.
const CHUNK: usize = 128;

/// Most rows of one pass over all sequences.
const MOST_PASS: u32 = 4096;

/// The drafter with the caches of all slots.
#[derive(Debug)]
pub(crate) struct Autoregressive {
    gpu: Gpu,
    model: Arc<Target>,
    cache: Cache,
    work: Work,
    plan: RowPlan,
    buckets: Buckets,
    gather: GatherKv,
    stride: u32,
    slots: Vec<Slot>,
    /// Rows that go through the head, and paths of a gather: cache row of position 0, past, path and its length.
    host: Pinned<u32>,
    device: Buffer<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Committed tokens.
    history: Vec<u32>,
    /// Rows `[0, valid)` of the slot's cache hold the history's keys and values.
    valid: usize,
    /// The last pass behind a root: its position, and parent and token of every row.
    last: Option<(usize, Vec<(u32, u32)>)>,
}

impl Slot {
    /// Rows of the last pass that were committed since, root first.
    fn accepted(&mut self) -> Option<(usize, Vec<u32>)> {
        let (root, rows) = self.last.take().filter(|(root, _)| *root < self.history.len())?;
        let mut path = vec![0u32];
        for &token in &self.history[root + 1..] {
            let at = path[path.len() - 1];
            // The root names itself: it is never its own child.
            match rows.iter().skip(1).position(|row| *row == (at, token)) {
                Some(row) => path.push(row as u32 + 1),
                None => break,
            }
        }
        Some((root, path))
    }
}

impl Autoregressive {
    pub fn new(gpu: &Gpu, model: Arc<Target>, settings: &CudaSettings) -> Result<Self> {
        let slots = settings.slots;
        // Working trees may be larger than what is verified in the end.
        let stride = settings.context + MOST_ROWS as u32;
        let most = Bucket { rows: (slots * MOST_ROWS as u32).min(MOST_PASS), seqs: slots };
        let cache = model.cache(gpu, (slots * stride) as usize + 1)?;
        let words = most.rows as usize + 3 + MOST_ROWS;
        Ok(Self {
            work: model.work(gpu, most, &[])?,
            plan: RowPlan::new(gpu, most.rows as usize, slots as usize, slots * stride)?,
            buckets: Buckets { most },
            gather: GatherKv::new(gpu, cache.row_bytes())?,
            host: gpu.pinned(words)?,
            device: gpu.zeroed("rows of the drafter", words)?,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            gpu: gpu.clone(),
            cache,
            model,
            stride,
        })
    }

    /// Length of a distribution.
    pub fn vocab(&self) -> usize {
        self.model.logits_width()
    }

    pub fn release(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// Takes in the committed tokens of one slot and runs all but at most `keep` of them through the model.
    pub fn absorb(&mut self, slot: usize, features: &CudaFeatures, keep: usize) -> Result<()> {
        if let Some(tokens) = &features.tokens {
            self.slots[slot].history.append(&mut tokens.borrow_mut()[slot]);
        }
        if let Some((root, path)) = self.slots[slot].accepted() {
            self.gather(slot, root, &path)?;
            self.slots[slot].valid = root + path.len();
        }
        while self.slots[slot].history.len() > self.slots[slot].valid + keep {
            let valid = self.slots[slot].valid;
            let end = (valid + CHUNK).min(self.slots[slot].history.len());
            self.plan.clear();
            let kv = slot as u32 * self.stride;
            self.plan.add(kv, valid as u32, &self.slots[slot].history[valid..end], Sight::Causal)?;
            self.forward(1, Head::None)?;
            self.gpu.sync()?;
            self.slots[slot].valid = end;
        }
        Ok(())
    }

    /// Moves accepted rows of the last pass to the end of the committed ones.
    fn gather(&mut self, slot: usize, root: usize, path: &[u32]) -> Result<()> {
        let words = self.host.as_mut_slice();
        words[..3].copy_from_slice(&[slot as u32 * self.stride, root as u32, path.len() as u32]);
        words[3..3 + path.len()].copy_from_slice(path);
        self.gpu.push(self.device.ptr(), &self.host, 3 + path.len())?;
        let call = GatherKvCall {
            bases: self.cache.bases(),
            layers: self.cache.parts() as u32,
            seq_kv: self.device.at(0),
            seq_start: self.device.at(1),
            path_len: self.device.at(2),
            path: self.device.at(3),
            max_path: path.len() as u32,
        };
        self.gather.run(&self.gpu, 1, &call)?;
        self.gpu.sync()
    }

    fn forward(&mut self, seqs: u32, head: Head) -> Result<()> {
        let rows = self.plan.len() as u32;
        let bucket = self.buckets.of(rows, seqs).ok_or_else(|| CudaError::Setting {
            key: "rows",
            problem: format!("of a wave are {rows}; the drafter takes {} at once", self.buckets.most.rows),
        })?;
        self.plan.push(&self.gpu, bucket)?;
        self.model.forward(&self.gpu, bucket, self.plan.ptrs(), &self.cache, &self.work, head)
    }

    /// The root's children of every asking sequence.
    pub fn draft(&mut self, batch: &Batch, features: &CudaFeatures, out: &mut Rows<'_>) -> Result<()> {
        let asking: Vec<usize> = (0..batch.len()).filter(|at| out.asks(*at)).collect();
        for &at in &asking {
            self.absorb(batch.seqs[at].slot as usize, features, CHUNK)?;
        }
        self.plan.clear();
        let mut nodes = Vec::new();
        for &at in &asking {
            let seq = &batch.seqs[at];
            let slot = &mut self.slots[seq.slot as usize];
            debug_assert_eq!(slot.history.len(), seq.start as usize);
            let mut tokens = slot.history[slot.valid..].to_vec();
            tokens.push(seq.root);
            self.plan.add(seq.slot * self.stride, slot.valid as u32, &tokens, Sight::Causal)?;
            slot.valid = slot.history.len();
            // The pass ends with the root, in its place behind the history.
            slot.last = Some((slot.history.len(), vec![(0, seq.root)]));
            nodes.push((NodeRef { seq: at as u32, node: 0, depth: 0 }, self.plan.len() as u32 - 1));
        }
        self.run(nodes.len() as u32, &nodes, out)
    }

    /// The children of a wave of nodes over all sequences (sorted by sequence, then node), in one pass.
    pub fn expand(&mut self, batch: &Batch, forest: &Forest, wave: &[NodeRef], out: &mut Rows<'_>) -> Result<()> {
        self.plan.clear();
        let (mut wanted, mut seqs) = (Vec::new(), 0);
        for group in wave.chunk_by(|a, b| a.seq == b.seq) {
            let (at, tree) = (group[0].seq as usize, forest.tree(group[0].seq as usize));
            let seq = &batch.seqs[at];
            let list = closure(tree, group.iter().map(|n| n.node));
            let place = |node: u32| list.binary_search(&node).unwrap_or(0) as u32;
            let tokens: Vec<u32> = list.iter().map(|&n| tree.tokens()[n as usize]).collect();
            let parents: Vec<u32> = list.iter().map(|&n| place(tree.parents()[n as usize])).collect();
            let first = self.plan.len() as u32;
            seqs += 1;
            self.plan.add(seq.slot * self.stride, seq.start, &tokens, Sight::Tree(&parents))?;
            self.slots[seq.slot as usize].last =
                Some((seq.start as usize, parents.iter().copied().zip(tokens.iter().copied()).collect()));
            wanted.extend(group.iter().map(|node| (*node, first + place(node.node))));
        }
        self.run(seqs, &wanted, out)
    }

    /// One pass over the plan, and the children of each `(node, row)`.
    fn run(&mut self, seqs: u32, nodes: &[(NodeRef, u32)], out: &mut Rows<'_>) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let words = self.host.as_mut_slice();
        nodes.iter().zip(words.iter_mut()).for_each(|((_, row), word)| *word = *row);
        self.gpu.push(self.device.ptr(), &self.host, nodes.len())?;
        self.forward(seqs, Head::Rows { index: self.device.ptr(), count: nodes.len() as u32 })?;
        let vocab = self.vocab();
        let logits: Vec<f32> = self.gpu.read(self.work.logits(), nodes.len() * vocab)?;
        for (logits, (node, _)) in logits.chunks_exact(vocab).zip(nodes) {
            out.put(*node, logits);
        }
        Ok(())
    }
}

/// Nodes of a tree with all their ancestors, ascending, the root first.
fn closure(tree: &Tree, nodes: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut list = vec![0];
    for mut node in nodes {
        while node != 0 && !list.contains(&node) {
            list.push(node);
            node = tree.parents()[node as usize];
        }
    }
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_brings_its_ancestors() {
        let tree = Tree::from_arrays(&[9, 1, 2, 3, 4, 5], &[0, 0, 0, 1, 3, 2], &[0; 6], &[0.0; 6]).unwrap();
        assert_eq!(closure(&tree, [4].into_iter()), [0, 1, 3, 4]);
        assert_eq!(closure(&tree, [5, 2, 3].into_iter()), [0, 1, 2, 3, 5]);
        assert_eq!(closure(&tree, std::iter::empty()), [0]);
    }

    #[test]
    fn what_was_accepted_is_found_in_the_last_pass() {
        let rows = vec![(0, 7), (0, 7), (0, 8), (1, 7), (2, 9)];
        let slot = |history: &[u32]| Slot { history: history.to_vec(), valid: 2, last: Some((2, rows.clone())) };
        assert_eq!(slot(&[1, 2, 7, 7, 7, 5]).accepted(), Some((2, vec![0, 1, 3])));
        assert_eq!(slot(&[1, 2, 7, 8, 9]).accepted(), Some((2, vec![0, 2, 4])));
        assert_eq!(slot(&[1, 2, 7]).accepted(), Some((2, vec![0])));
        assert_eq!(slot(&[1, 2]).accepted(), None);
    }
}
