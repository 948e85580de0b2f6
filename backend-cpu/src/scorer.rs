//! One sequence and its logits, without the decode loop: the oracle of other engines, and what parity tests call.

use crate::kv::SeqKv;
use crate::model::{Model, Work};
use crate::plan::Plan;
use ndarray::Array2;
use std::sync::Arc;

/// A model with the cache of one sequence.
#[derive(Debug)]
pub struct Scorer {
    model: Arc<Model>,
    kv: Vec<SeqKv>,
    plan: Plan,
    work: Work,
    scratch: Vec<f32>,
    len: usize,
}

impl Scorer {
    /// An empty sequence.
    #[must_use]
    pub fn new(model: Arc<Model>) -> Self {
        let kv = vec![SeqKv::new(model.kv_shape())];
        Self { model, kv, plan: Plan::default(), work: Work::default(), scratch: Vec::new(), len: 0 }
    }

    /// Committed tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops everything behind the first `len` committed tokens.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Commits `tokens` and returns their logits, one row a token, vocabulary wide. Tokens must lie inside the vocabulary.
    pub fn extend(&mut self, tokens: &[u32]) -> Array2<f32> {
        self.plan.clear(true);
        self.plan.chunk(0, self.len, tokens);
        self.len += tokens.len();
        self.run()
    }

    /// Logits of every row of a tree behind the committed tokens: root first, parents before children (`parents[0]` is not
    /// read). Commits nothing.
    pub fn tree(&mut self, tokens: &[u32], parents: &[u32]) -> Array2<f32> {
        let mut depths = vec![0; tokens.len()];
        for i in 1..tokens.len() {
            depths[i] = depths[parents[i] as usize] + 1;
        }
        self.plan.clear(true);
        self.plan.tree(0, self.len, tokens, parents, &depths);
        self.run()
    }

    /// Commits a path of the tree that was scored last: its rows in depth order, the root (0) first.
    pub fn commit(&mut self, path: &[u32]) {
        self.kv[0].gather(self.len, path);
        self.len += path.len();
    }

    /// Distinct routed experts of the last pass, per MoE layer.
    #[must_use]
    pub fn experts(&self) -> &[u32] {
        &self.work.experts
    }

    fn run(&mut self) -> Array2<f32> {
        let rows = self.plan.len();
        self.model.forward(&self.plan, &mut self.kv, &[], &mut self.work);
        let vocab = self.model.config().vocab;
        let mut out = vec![0.0; rows * vocab];
        self.model.logits(&self.work.x, rows, &mut self.scratch, &mut out);
        // `out` was made with exactly this shape.
        Array2::from_shape_vec((rows, vocab), out).unwrap_or_else(|_| Array2::zeros((rows, vocab)))
    }
}
