//! One sequence and its logits, without the decode loop: what parity tests and benchmarks call.

use super::buckets::Buckets;
use crate::device::Gpu;
use crate::error::{CudaError, Result};
use crate::model::{Cache, Head, Target, Work};
use crate::ops::gather::{GatherKv, GatherKvCall};
use crate::ops::rows::{Bucket, MOST_ROWS, RowPlan, Sight};
use std::sync::Arc;

/// A model with the cache of one sequence on the device. Passes are padded to the engine's buckets and run eagerly.
#[derive(Debug)]
pub struct CudaScorer {
    gpu: Gpu,
    target: Arc<Target>,
    cache: Cache,
    work: Work,
    plan: RowPlan,
    gather: GatherKv,
    context: usize,
    len: usize,
    padding: u32,
}

impl CudaScorer {
    /// An empty sequence of at most `context` tokens, the rows of a tree included.
    ///
    /// # Errors
    /// Memory, or a kernel that does not load.
    pub fn new(gpu: &Gpu, target: Arc<Target>, context: u32) -> Result<Self> {
        let max = Bucket { rows: MOST_ROWS as u32, seqs: 1 };
        let cache = target.cache(gpu, context as usize + 1)?;
        Ok(Self {
            work: target.work(gpu, max, &[])?,
            plan: RowPlan::new(gpu, MOST_ROWS, 1, context)?,
            gather: GatherKv::new(gpu, cache.row_bytes())?,
            cache,
            target,
            gpu: gpu.clone(),
            context: context as usize,
            len: 0,
            padding: 0,
        })
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

    /// From now on every pass has at least `rows` rows of padding behind its own.
    pub fn pad(&mut self, rows: u32) {
        self.padding = rows;
    }

    /// Commits `tokens` (at most 256 of the vocabulary) and returns their logits, one row a token.
    ///
    /// # Errors
    /// A full context, or the device's.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let out = self.run(tokens, Sight::Causal)?;
        self.len += tokens.len();
        Ok(out)
    }

    /// Logits of every row of a tree behind the committed tokens: root first, parents before children. Commits nothing.
    ///
    /// # Errors
    /// As [`CudaScorer::extend`].
    pub fn tree(&mut self, tokens: &[u32], parents: &[u32]) -> Result<Vec<Vec<f32>>> {
        self.run(tokens, Sight::Tree(parents))
    }

    /// Commits a path of the tree that was scored last: its rows in depth order, the root (0) first.
    ///
    /// # Errors
    /// The device's.
    pub fn commit(&mut self, path: &[u32]) -> Result<()> {
        let (rows, path_at) = (self.plan.ptrs(), self.gpu.upload("path", path)?);
        let count = self.gpu.upload("path", &[path.len() as u32])?;
        let call = GatherKvCall {
            bases: self.cache.bases(),
            layers: self.cache.parts() as u32,
            seq_kv: rows.seq_kv,
            seq_start: rows.seq_start,
            path: path_at.ptr(),
            path_len: count.ptr(),
            max_path: path.len() as u32,
        };
        self.gather.run(&self.gpu, 1, &call)?;
        self.gpu.sync()?;
        self.len += path.len();
        Ok(())
    }

    /// Distinct routed experts of the last pass, per MoE layer.
    ///
    /// # Errors
    /// The device's.
    pub fn experts(&self) -> Result<Vec<u32>> {
        self.gpu.read(self.work.experts(), self.target.moe_layers())
    }

    /// Bytes of the first `rows` cache rows, one list per layer array: what two caches must agree on.
    ///
    /// # Errors
    /// The device's.
    pub fn cached_rows(&self, rows: usize) -> Result<Vec<Vec<u8>>> {
        let bytes = rows * self.cache.row_bytes();
        (0..self.cache.parts()).map(|i| self.gpu.read(self.cache.part(i), bytes)).collect()
    }

    fn run(&mut self, tokens: &[u32], sight: Sight<'_>) -> Result<Vec<Vec<f32>>> {
        if self.len + tokens.len() > self.context {
            let problem = format!("is full: {} tokens and {} more rows", self.len, tokens.len());
            return Err(CudaError::Setting { key: "context", problem });
        }
        let buckets = Buckets { most: self.work.max() };
        let rows = (tokens.len() as u32 + self.padding).min(MOST_ROWS as u32);
        let Some(bucket) = buckets.of(rows, 1) else {
            let problem = format!("of one pass are from 1 to {MOST_ROWS}, not {rows}");
            return Err(CudaError::Setting { key: "rows", problem });
        };
        self.plan.clear();
        self.plan.add(0, self.len as u32, tokens, sight)?;
        self.plan.push(&self.gpu, bucket)?;
        self.target.forward(&self.gpu, bucket, self.plan.ptrs(), &self.cache, &self.work, Head::All)?;
        let width = self.target.logits_width();
        let flat: Vec<f32> = self.gpu.read(self.work.logits(), tokens.len() * width)?;
        Ok(flat.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }
}
