//! The block drafter: one pass over `[root, mask, …]` of every sequence, and the best tokens of every level.

use super::rows::log_softmax;
use crate::device::{Buffer, Gpu, Pinned, Ptr};
use crate::engine::buckets::Buckets;
use crate::engine::features::{Absorb, CudaFeatures, Taps};
use crate::engine::graphs::Graphs;
use crate::engine::recorded::Recorded;
use crate::engine::settings::CudaSettings;
use crate::error::{CudaError, Result};
use crate::model::{Cache, Dflash, DraftWork, Head};
use crate::ops::rows::{Bucket, RowPlan, Sight};
use crate::ops::topk::{LatticePtr, TopK, TopKArgs};
use std::sync::Arc;
use treeline_core::draft::top_ranks;
use treeline_core::{Ask, Batch, Candidate, Fault, Lattice};

/// A DFlash drafter with the context caches of all slots.
#[derive(Debug)]
pub(crate) struct Block {
    gpu: Gpu,
    model: Arc<Dflash>,
    cache: Cache,
    work: DraftWork,
    plan: RowPlan,
    buckets: Buckets,
    top: TopK,
    /// Levels of a block, ranks of a row.
    pub levels: u32,
    pub width: u32,
    stride: u32,
    sink: u32,
    /// Rows of the mask slots, sequence after sequence.
    masks: Buffer<u32>,
    lattice: Buffer<u32>,
    pulled: Pinned<u32>,
    pub graphs: Graphs<u32>,
    /// Tokens of one block.
    block: Vec<u32>,
    /// What takes the place of the drafter's rows.
    script: Option<Script>,
}

/// Rows from a trace, copied over the drafter's.
#[derive(Debug)]
struct Script {
    recorded: Arc<Recorded>,
    host: Pinned<u32>,
}

/// Rows of the cache that a slot has: the context, and a block behind its last position.
pub(crate) fn stride(settings: &CudaSettings, block: u32) -> u32 {
    settings.context + block
}

impl Block {
    pub fn new(gpu: &Gpu, model: Arc<Dflash>, settings: &CudaSettings) -> Result<Self> {
        let (block, vocab) = (model.config().block as u32, model.logits_width());
        let (slots, levels) = (settings.slots, block - 1);
        let width = settings.width.min(vocab as u32);
        let stride = stride(settings, block);
        let sink = slots * stride;
        let most = Bucket { rows: slots * block, seqs: slots };
        let rows = (slots * levels) as usize;
        let masks: Vec<u32> = (0..slots).flat_map(|s| (1..block).map(move |d| s * block + d)).collect();
        let words = rows * (2 * width as usize + 2);
        let mut tokens = vec![model.config().mask_token; block as usize];
        tokens[0] = 0;
        Ok(Self {
            cache: model.cache(gpu, sink as usize + 1)?,
            work: model.work(gpu, most, Taps::most(block, slots).max(settings.chunk) as usize)?,
            plan: RowPlan::new(gpu, most.rows as usize, slots as usize, sink)?,
            buckets: Buckets { most },
            top: TopK::new(gpu, vocab, rows, width as usize)?,
            masks: gpu.upload("rows of the masks", &masks)?,
            lattice: gpu.zeroed("lattice", words)?,
            pulled: gpu.pinned(words)?,
            graphs: Graphs::new(settings.graphs),
            block: tokens,
            script: None,
            gpu: gpu.clone(),
            model,
            levels,
            width,
            stride,
            sink,
        })
    }

    /// From now on drafts come from a trace; the drafter's passes run all the same. To be called before anything is captured.
    pub fn follow(&mut self, recorded: Arc<Recorded>) -> Result<()> {
        self.script = Some(Script { recorded, host: self.gpu.pinned(self.lattice.len())? });
        Ok(())
    }

    /// The context cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Words of the lattice of `seqs` (padded) sequences.
    fn words(&self, seqs: u32) -> usize {
        (seqs * self.levels) as usize * (2 * self.width as usize + 2)
    }

    /// Writes what is on record behind the roots of `batch`, in the lattice's order.
    fn write_script(&mut self, batch: &Batch, seqs: u32) {
        let (levels, width) = (self.levels as usize, self.width as usize);
        let rows = seqs as usize * levels;
        let Some(script) = &mut self.script else { return };
        let words = script.host.as_mut_slice();
        words[2 * rows * width..][..2 * rows].fill(0);
        for (s, seq) in batch.iter().enumerate() {
            let Some(position) = script.recorded.position(seq.request, seq.start) else { continue };
            for level in 0..levels {
                let row = s * levels + level;
                let mut count = 0;
                for (i, candidate) in Recorded::row(position, level as u32 + 1).take(width).enumerate() {
                    words[row * width + i] = candidate.token;
                    words[(rows + row) * width + i] = candidate.logp.to_bits();
                    count += 1;
                }
                words[2 * rows * width + row] = count;
            }
        }
    }

    /// Takes in features.
    pub fn absorb(&self, a: Absorb) -> Result<()> {
        self.model.absorb(&self.gpu, a.rows, a.taps, a.positions, a.kv_rows, &self.cache, &self.work)
    }

    /// Takes in what waits behind the first region of the features.
    pub fn absorb_rest(&self, features: &CudaFeatures) -> Result<()> {
        let Some(taps) = &features.taps else { return Ok(()) };
        let stride = self.stride;
        if let Some(a) = taps.take_rest(&self.gpu, |slot| slot * stride, self.sink)? {
            self.absorb(a)?;
            // The host's copy of positions is written again by the next draft.
            self.gpu.sync()?;
        }
        Ok(())
    }

    /// Takes in what a larger batch left behind the places of `seqs` sequences.
    fn absorb_beyond(&self, features: &CudaFeatures, seqs: u32) -> Result<()> {
        let Some(taps) = &features.taps else { return Ok(()) };
        let stride = self.stride;
        if let Some(a) = taps.take_beyond(&self.gpu, seqs, |slot| slot * stride, self.sink)? {
            self.absorb(a)?;
            self.gpu.sync()?;
        }
        Ok(())
    }

    /// Where the lattice of `seqs` (padded) sequences lies: row `s · levels + depth − 1`.
    pub fn lattice(&self, seqs: u32) -> LatticePtr {
        let rows = (seqs * self.levels) as usize;
        let cells = rows * self.width as usize;
        LatticePtr {
            token: self.lattice.at(0),
            logp: self.lattice.at(cells),
            count: self.lattice.at(2 * cells),
            fault: self.lattice.at(2 * cells + rows),
        }
    }

    /// Queues the pass over the blocks of all sequences; returns their padded number. Every sequence is drafted for, so
    /// that a level depends neither on what was asked for nor on what the others asked for.
    pub fn queue(&mut self, batch: &Batch, features: &CudaFeatures) -> Result<u32> {
        let too_many = || CudaError::Setting { key: "slots", problem: format!("hold fewer than {}", batch.len()) };
        let seqs = self.buckets.seqs(batch.len() as u32).ok_or_else(too_many)?;
        let block = self.levels + 1;
        let bucket = Bucket { rows: seqs * block, seqs };
        self.absorb_rest(features)?;
        self.absorb_beyond(features, seqs)?;
        self.plan.clear();
        for seq in batch.iter() {
            self.block[0] = seq.root;
            self.plan.add(seq.slot * self.stride, seq.start, &self.block, Sight::All)?;
        }
        self.plan.push(&self.gpu, bucket)?;
        let stride = self.stride;
        let fresh = match &features.taps {
            Some(taps) => Some(taps.take_first(&self.gpu, seqs, |slot| slot * stride, self.sink)?),
            None => None,
        };
        self.write_script(batch, seqs);
        let rows = self.plan.ptrs();
        let count = seqs * self.levels;
        let (out, words) = (self.lattice(seqs), self.words(seqs));
        let Self { gpu, model, cache, work, top, masks, graphs, script, .. } = self;
        let head = Head::Rows { index: masks.ptr(), count };
        graphs.run(gpu, seqs, || {
            if let Some(a) = fresh {
                model.absorb(gpu, a.rows, a.taps, a.positions, a.kv_rows, cache, work)?;
            }
            model.draft(gpu, bucket, rows, cache, work, head)?;
            let args = TopKArgs { logits: work.logits(), stride: model.logits_width(), source: Ptr::NULL, out };
            top.run(gpu, count, &args)?;
            script.as_ref().map_or(Ok(()), |script| gpu.push(out.token, &script.host, words))
        })?;
        Ok(seqs)
    }

    /// Queues the copy of a lattice to the host.
    pub fn pull(&self, seqs: u32) -> Result<()> {
        self.gpu.pull(&self.pulled, self.lattice.ptr(), self.words(seqs))
    }

    /// The pulled lattice of `batch`, each sequence cut to its number of levels and ranks.
    pub fn read(&self, seqs: u32, batch: usize, cut: impl Fn(usize) -> (u32, u32)) -> Result<Lattice> {
        let mut lattice = Lattice::new(0);
        self.each(seqs, batch, cut, &mut lattice, &mut |_, _| Ok(()))?;
        Ok(lattice)
    }

    fn each(
        &self,
        seqs: u32,
        batch: usize,
        cut: impl Fn(usize) -> (u32, u32),
        lattice: &mut Lattice,
        also: &mut dyn FnMut(&mut Lattice, usize) -> Result<()>,
    ) -> Result<()> {
        let (rows, width) = ((seqs * self.levels) as usize, self.width as usize);
        let words = self.pulled.as_slice();
        let (tokens, rest) = words.split_at(rows * width);
        let (logp, rest) = rest.split_at(rows * width);
        let (counts, faults) = rest.split_at(rows);
        let mut out: Vec<Candidate> = Vec::with_capacity(width);
        for seq in 0..batch {
            lattice.begin_seq();
            let (levels, ranks) = cut(seq);
            for level in 0..levels.min(self.levels) as usize {
                let row = seq * self.levels as usize + level;
                if faults[row] == 0 {
                    let len = (counts[row].min(ranks) as usize).min(width);
                    out.clear();
                    let cells = row * width..row * width + len;
                    let pairs = tokens[cells.clone()].iter().zip(&logp[cells]);
                    out.extend(pairs.map(|(&token, &p)| Candidate { token, logp: f32::from_bits(p) }));
                    lattice.push_row(&out, true, true);
                } else {
                    lattice.push_row(&[], true, true);
                    lattice.fail(self.fault(row, level as u32 + 1)?);
                }
                also(lattice, row)?;
            }
        }
        Ok(())
    }

    /// What is wrong with a row of the last pass, in the words of every engine.
    fn fault(&self, row: usize, depth: u32) -> Result<Fault> {
        let logits = self.logits(row)?;
        let why = || "a logit is NaN".to_owned();
        Ok(top_ranks(&logits, 1, depth, &mut Vec::new()).err().unwrap_or_else(|| Fault::Draft { depth, why: why() }))
    }

    fn logits(&self, row: usize) -> Result<Vec<f32>> {
        let width = self.model.logits_width();
        self.gpu.read(self.work.logits().offset(row * width * size_of::<f32>()), width)
    }

    /// Drafts for every sequence that asks for at least one level; `dists` keeps the full distributions.
    pub fn draft(&mut self, batch: &Batch, features: &CudaFeatures, ask: &[Ask], dists: bool) -> Result<Lattice> {
        let vocab = if dists { self.model.logits_width() } else { 0 };
        let mut lattice = Lattice::new(vocab);
        if ask.iter().all(|a| a.depth == 0) {
            // Plain decoding: what is committed piles up until there is no room for one more row of each.
            if features.taps.as_ref().is_some_and(|taps| !taps.fits(batch.len() as u32)) {
                self.absorb_rest(features)?;
            }
            for _ in batch.iter() {
                lattice.begin_seq();
            }
            return Ok(lattice);
        }
        let seqs = self.queue(batch, features)?;
        self.pull(seqs)?;
        self.gpu.sync()?;
        let cut = |seq: usize| (ask[seq].depth, ask[seq].width);
        let mut dist = vec![0.0; vocab];
        self.each(seqs, batch.len(), cut, &mut lattice, &mut |lattice, row| {
            if dists {
                log_softmax(&self.logits(row)?, &mut dist);
                dist.iter_mut().for_each(|p| *p = p.exp());
                lattice.push_dist(&dist);
            }
            Ok(())
        })?;
        Ok(lattice)
    }
}
