//! The DFlash block drafter (arXiv 2602.06036): one non-causal pass over `[root, mask, …]` for all levels at once,
//! conditioned on outputs of some target layers whose keys and values are cached.
//!
//! A sliding-window layer limits the context alone: the query at position p sees context positions greater than
//! p − window, and the whole block.

use crate::error::Result;
use crate::features::{CpuFeatures, SlotFeatures};
use crate::kernel::{Packed, log_softmax};
use crate::kv::{KvShape, SeqKv};
use crate::model::attention::{AttentionWork, Pass};
use crate::model::gqa::GqaLayer;
use crate::model::load::Loader;
use crate::model::mlp::{Mlp, MlpWork};
use crate::model::norm::Norm;
use crate::model::rope::{Angles, Rotary};
use crate::model::{Model, buffer};
use crate::plan::Plan;
use crate::seeded::{Seeded, seeded};
use std::path::Path;
use std::sync::Arc;
use treeline_checkpoint::{DflashConfig, Weights};
use treeline_core::draft::top_ranks;
use treeline_core::{Ask, Batch, Lattice};

/// Weights of a drafter, to be shared by engines.
#[derive(Debug)]
pub(crate) struct DflashModel {
    pub config: DflashConfig,
    fc: Packed,
    hidden_norm: Norm,
    layers: Vec<DflashLayer>,
    norm: Norm,
    rotary: Rotary,
}

#[derive(Debug)]
struct DflashLayer {
    input_norm: Norm,
    attention: GqaLayer,
    /// Keys and values alone, for the context.
    context: Packed,
    post_norm: Norm,
    mlp: Mlp,
    window: Option<usize>,
}

impl DflashModel {
    /// Loads a drafter's folder and checks that it fits `target`.
    pub fn load(dir: &Path, target: &Model) -> Result<Self> {
        let config = DflashConfig::from_dir(dir)?;
        config.check_target(target.config())?;
        let weights = Weights::open(dir)?;
        let prefix = if weights.contains("model.fc.weight") { "model." } else { "" };
        let mut load = Loader::new(&weights, prefix, None);
        let (hidden, eps) = (config.hidden, config.rms_eps as f32);
        let attention = &config.attention;
        let scale = (attention.head_dim as f32).powf(-0.5);
        let mut layers = Vec::new();
        for (i, &window) in config.windows.iter().enumerate() {
            let p = format!("layers.{i}");
            let kv = attention.kv_heads * attention.head_dim;
            let keys = load.linear(&format!("{p}.self_attn.k_proj"), kv, hidden)?;
            let values = load.linear(&format!("{p}.self_attn.v_proj"), kv, hidden)?;
            layers.push(DflashLayer {
                input_norm: load.norm(&format!("{p}.input_layernorm"), hidden, eps)?,
                attention: load.gqa(&format!("{p}.self_attn"), hidden, attention, scale, eps)?,
                context: Packed::concat(&[keys.view(), values.view()]),
                post_norm: load.norm(&format!("{p}.post_attention_layernorm"), hidden, eps)?,
                mlp: load.mlp(&format!("{p}.mlp"), hidden, config.intermediate)?,
                window,
            });
        }
        let fc = Packed::new(load.linear("fc", hidden, hidden * config.target_layers.len())?.view());
        let hidden_norm = load.norm("hidden_norm", hidden, eps)?;
        let norm = load.norm("norm", hidden, eps)?;
        load.finish(&[])?;
        let rotary = Rotary::new(&config.rope);
        Ok(Self { config, fc, hidden_norm, layers, norm, rotary })
    }
}

/// A drafter with the context caches of all slots.
#[derive(Debug)]
pub(crate) struct Dflash {
    target: Arc<Model>,
    model: Arc<DflashModel>,
    kvs: Vec<SeqKv>,
    plan: Plan,
    angles: Angles,
    attention: AttentionWork,
    mlp: MlpWork,
    x: Vec<f32>,
    normed: Vec<f32>,
    kv: Vec<f32>,
    logits: Vec<f32>,
    logp: Vec<f32>,
}

impl Dflash {
    pub fn new(target: Arc<Model>, model: Arc<DflashModel>, slots: usize) -> Self {
        let attention = &model.config.attention;
        let shape = KvShape {
            layers: model.layers.len(),
            heads: attention.kv_heads,
            key_dim: attention.head_dim,
            value_dim: attention.head_dim,
        };
        Self {
            target,
            model,
            kvs: (0..slots).map(|_| SeqKv::new(shape)).collect(),
            plan: Plan::default(),
            angles: Angles::default(),
            attention: AttentionWork::default(),
            mlp: MlpWork::default(),
            x: Vec::new(),
            normed: Vec::new(),
            kv: Vec::new(),
            logits: Vec::new(),
            logp: Vec::new(),
        }
    }

    /// The memory of a slot is kept; what is behind the context of its next sequence is never read.
    pub fn release(&mut self, _slot: usize) {}

    /// Adds the committed rows of some slots to their context caches: one projection to the drafter's width, then keys
    /// and values of every layer.
    pub fn absorb(&mut self, slots: &[(usize, &SlotFeatures)]) {
        let model = self.model.clone();
        self.plan.clear(false);
        let hidden = model.config.hidden;
        let width = model.fc.inputs();
        let rows: usize = slots.iter().map(|(_, f)| f.end() - f.taken()).sum();
        if rows == 0 {
            return;
        }
        let x = buffer(&mut self.x, rows * width);
        let mut at = 0;
        for (slot, features) in slots {
            let taps = features.new_taps();
            x[at..at + taps.len()].copy_from_slice(taps);
            at += taps.len();
            self.plan.context(*slot, features.taken(), features.end() - features.taken());
            self.kvs[*slot].reserve(features.end());
        }
        let projected = buffer(&mut self.logp, rows * hidden);
        model.fc.apply(x, rows, projected, false);
        let context = buffer(&mut self.normed, rows * hidden);
        model.hidden_norm.rows(projected, context);
        model.rotary.angles(&self.plan.positions, &mut self.angles);
        for (i, layer) in model.layers.iter().enumerate() {
            let columns = layer.context.outputs();
            let kv = buffer(&mut self.kv, rows * columns);
            layer.context.apply(context, rows, kv, false);
            let pass = Pass { plan: &self.plan, rotary: &model.rotary, angles: &self.angles, layer: i, window: None };
            for span in &self.plan.spans {
                for row in span.rows.clone() {
                    let kv = &mut kv[row * columns..(row + 1) * columns];
                    let slot = self.plan.slots[row] as usize;
                    layer.attention.store(kv, &pass, row, slot, &mut self.kvs[span.seq], &mut self.attention.low);
                }
            }
        }
        for (_, features) in slots {
            features.take_to(features.end());
        }
    }

    /// Drafts for every sequence that asks for at least one level; `dists` keeps the full distributions.
    pub fn draft(&mut self, batch: &Batch, features: &CpuFeatures, ask: &[Ask], dists: bool) -> Lattice {
        let active = |(_, ask): &(&treeline_core::Seq, &Ask)| ask.depth > 0;
        let slots: Vec<(usize, &SlotFeatures)> = batch
            .iter()
            .zip(ask)
            .filter(active)
            .map(|(seq, _)| (seq.slot as usize, &features.slots[seq.slot as usize]))
            .collect();
        self.absorb(&slots);
        let vocab = self.target.config().vocab;
        let mut lattice = Lattice::new(if dists { vocab } else { 0 });
        self.blocks(batch, ask);
        let mut row = Vec::new();
        let mut at = 0;
        for ask in ask {
            lattice.begin_seq();
            for level in 1..=self.levels(ask) {
                let logits = &self.logits[at * vocab..(at + 1) * vocab];
                at += 1;
                let logp = buffer(&mut self.logp, vocab);
                log_softmax(logits, logp);
                if seeded(Seeded::NanIsZero) {
                    logp.iter_mut().filter(|p| p.is_nan()).for_each(|p| *p = 0.0);
                }
                match top_ranks(logp, ask.width as usize, level as u32, &mut row) {
                    Ok(()) => lattice.push_row(&row, true, true),
                    Err(fault) => {
                        lattice.push_row(&[], true, true);
                        lattice.fail(fault);
                    }
                }
                if dists {
                    logp.iter_mut().for_each(|p| *p = p.exp());
                    lattice.push_dist(logp);
                }
            }
        }
        lattice
    }

    fn levels(&self, ask: &Ask) -> usize {
        (ask.depth as usize).min(self.model.config.block - 1)
    }

    /// One pass over the blocks of all asking sequences; leaves the logits of the asked levels in `self.logits`, sequence
    /// after sequence. The block is whole whatever the depth, so a level does not depend on what was asked for.
    fn blocks(&mut self, batch: &Batch, ask: &[Ask]) {
        let model = self.model.clone();
        let (hidden, block) = (model.config.hidden, model.config.block);
        self.plan.clear(false);
        for (seq, _) in batch.iter().zip(ask).filter(|(_, a)| a.depth > 0) {
            let (slot, start) = (seq.slot as usize, seq.start as usize);
            let token = |i: usize| if i == 0 { seq.root } else { model.config.mask_token };
            self.plan.block(slot, start, (0..block).map(token));
            self.kvs[slot].reserve(start + block);
        }
        let rows = self.plan.len();
        if rows == 0 {
            return;
        }
        let x = buffer(&mut self.x, rows * hidden);
        for (x, &token) in x.chunks_exact_mut(hidden).zip(&self.plan.tokens) {
            x.iter_mut().zip(self.target.embed().row(token as usize)).for_each(|(x, e)| *x = *e);
        }
        let normed = buffer(&mut self.normed, rows * hidden);
        model.rotary.angles(&self.plan.positions, &mut self.angles);
        for (i, layer) in model.layers.iter().enumerate() {
            layer.input_norm.rows(x, normed);
            let (plan, angles) = (&self.plan, &self.angles);
            let pass = Pass { plan, rotary: &model.rotary, angles, layer: i, window: layer.window };
            layer.attention.forward(&pass, normed, &mut self.kvs, &mut self.attention, x);
            layer.post_norm.rows(x, normed);
            layer.mlp.forward(normed, rows, &mut self.mlp, x, true);
        }
        let mut count = 0;
        for (span, ask) in self.plan.spans.iter().zip(ask.iter().filter(|a| a.depth > 0)) {
            for level in 1..=(ask.depth as usize).min(block - 1) {
                let row = span.rows.start + level;
                model.norm.apply(&x[row * hidden..][..hidden], &mut normed[count * hidden..][..hidden]);
                count += 1;
            }
        }
        let logits = buffer(&mut self.logits, count * self.target.config().vocab);
        self.target.head(normed, count, logits);
    }
}
