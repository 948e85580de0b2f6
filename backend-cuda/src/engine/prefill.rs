//! Prompt chunks, in buffers of their own: the features of a verify pass outlive an admission.

use super::buckets::Buckets;
use super::features::Absorb;
use crate::device::{Buffer, Gpu, Ptr};
use crate::error::Result;
use crate::model::{Cache, Head, Target, Work};
use crate::ops::rows::{Bucket, RowPlan, Sight};

/// Buffers of one chunk.
#[derive(Debug)]
pub(super) struct Prefill {
    work: Work,
    plan: RowPlan,
    buckets: Buckets,
    /// Padded rows of the last chunk.
    rows: u32,
    /// 0, 1, 2 …: the address of entry `i` picks row `i` for the head.
    numbers: Buffer<u32>,
}

impl Prefill {
    /// For chunks of at most `chunk` tokens.
    pub fn new(gpu: &Gpu, target: &Target, chunk: u32, sink: u32, taps: &[usize]) -> Result<Self> {
        let most = Bucket { rows: chunk, seqs: 1 };
        let numbers: Vec<u32> = (0..chunk).collect();
        Ok(Self {
            work: target.work(gpu, most, taps)?,
            plan: RowPlan::new(gpu, chunk as usize, 1, sink)?,
            buckets: Buckets { most },
            rows: 0,
            numbers: gpu.upload("row numbers", &numbers)?,
        })
    }

    /// Queues a chunk of the sequence whose cache begins at row `kv` and holds `start` tokens; with `last` its last row goes
    /// through the head. The stream must be waited for before the next chunk.
    pub fn run(
        &mut self,
        gpu: &Gpu,
        target: &Target,
        cache: &Cache,
        (kv, start): (u32, u32),
        tokens: &[u32],
        last: bool,
    ) -> Result<()> {
        self.plan.clear();
        self.plan.add(kv, start, tokens, Sight::Causal)?;
        let bucket = self.buckets.of(tokens.len() as u32, 1).unwrap_or(self.buckets.most);
        self.rows = bucket.rows;
        self.plan.push(gpu, bucket)?;
        let head = match last {
            true => Head::Rows { index: self.numbers.at(tokens.len() - 1), count: 1 },
            false => Head::None,
        };
        target.forward(gpu, bucket, self.plan.ptrs(), cache, &self.work, head)
    }

    /// Taps, positions and cache rows of the last chunk.
    pub fn taps(&self) -> Absorb {
        let plan = self.plan.ptrs();
        Absorb { rows: self.rows, taps: self.work.taps(), positions: plan.position, kv_rows: plan.kv_row }
    }

    /// Logits of the last chunk's last row.
    pub fn logits(&self) -> Ptr {
        self.work.logits()
    }
}
