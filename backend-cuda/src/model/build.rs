//! Targets from a checkpoint, or synthetic ones.

use super::dflash::{Dflash, DflashLayer, DflashOps};
use super::gqa::GqaOps;
use super::layers::{Reader, window};
use super::load::Loader;
use super::ops::Ops;
use super::source::{Fill, Piece, Source};
use super::weight::Few;
use super::{Comm, LoadOptions, Shard, Target};
use crate::device::{Dtype, Gpu};
use crate::error::{CudaError, Result};
use crate::ops::dense::Dense;
use crate::ops::embed::Embed;
use crate::ops::gqa_prep::GqaPrep;
use crate::ops::norm::Norm;
use crate::ops::rope::RopeTable;
use crate::ops::rows::MOST_ROWS;
use std::path::Path;
use std::sync::Arc;
use treeline_checkpoint::{DflashConfig, TargetConfig, Weights};

/// Synthetic weights at real shapes: what one rank of `shard.ranks` would hold, made on the device.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// The model; its weights are not read.
    pub config: TargetConfig,
    /// Layers that are made, from the first on.
    pub layers: usize,
    /// Which rank's work.
    pub shard: Shard,
    /// Longest context, as in [`LoadOptions`].
    pub positions: usize,
    /// Seed of the numbers.
    pub seed: u64,
}

impl Target {
    /// Loads a checkpoint folder, or one rank's part of it.
    ///
    /// # Errors
    /// What [`treeline_checkpoint`] refuses, tensors that the model has no place for, a model that cannot be split over so
    /// many ranks, [`CudaError::Memory`].
    pub fn load(gpu: &Gpu, dir: &Path, options: &LoadOptions) -> Result<Self> {
        let config = TargetConfig::from_dir(dir)?;
        let weights = Weights::open(dir)?;
        let family = config.family;
        let source = Loader::new(&weights, family.tensor_prefix(), config.quantization.as_ref());
        let (target, source) = build(gpu, config.clone(), options, Source::Checkpoint(source))?;
        let later: Vec<String> = (0..config.mtp_layers)
            .map(|i| format!("{}model.layers.{}.", family.tensor_prefix(), config.layers.len() + i))
            .collect();
        let mut ignored: Vec<&str> = family.ignored_tensors().to_vec();
        ignored.extend(later.iter().map(String::as_str));
        // Some exporters store the tied head a second time.
        let copy = format!("{}lm_head.weight", family.tensor_prefix());
        if config.tied {
            ignored.push(&copy);
        }
        if let Source::Checkpoint(load) = &source {
            load.finish(&ignored)?;
        }
        gpu.sync()?;
        Ok(target)
    }

    /// Makes the weights of one rank on the device; bf16, with experts in the form that the config announces.
    ///
    /// # Errors
    /// As [`Target::load`], but for what concerns files.
    pub fn synthetic(gpu: &Gpu, what: &Synthetic) -> Result<Self> {
        let mut config = what.config.clone();
        if what.layers == 0 || what.layers > config.layers.len() {
            let problem = format!("is {}; the model has {}", what.layers, config.layers.len());
            return Err(CudaError::Setting { key: "layers", problem });
        }
        config.layers.truncate(what.layers);
        let options = LoadOptions { dtype: Dtype::Bf16, shard: what.shard, positions: what.positions };
        let fill = Fill::new(gpu, what.seed)?;
        let (target, _) = build(gpu, config, &options, Source::Synthetic(fill))?;
        gpu.sync()?;
        Ok(target)
    }
}

impl Dflash {
    /// Loads a drafter's folder, or one rank's part of it, and checks that it fits `target`.
    ///
    /// # Errors
    /// What [`treeline_checkpoint`] refuses, a drafter for another model, [`CudaError::Memory`].
    pub fn load(gpu: &Gpu, dir: &Path, target: &Target, options: &LoadOptions) -> Result<Self> {
        let config = DflashConfig::from_dir(dir)?;
        let weights = Weights::open(dir)?;
        let prefix = if weights.contains("model.fc.weight") { "model." } else { "" };
        let source = Source::Checkpoint(Loader::new(&weights, prefix, None));
        let (drafter, source) = build_dflash(gpu, config, target, options, source)?;
        if let Source::Checkpoint(load) = &source {
            load.finish(&[])?;
        }
        gpu.sync()?;
        Ok(drafter)
    }

    /// Makes a drafter's weights on the device.
    ///
    /// # Errors
    /// As [`Dflash::load`], but for what concerns files.
    pub fn synthetic(
        gpu: &Gpu,
        config: DflashConfig,
        target: &Target,
        options: &LoadOptions,
        seed: u64,
    ) -> Result<Self> {
        let (drafter, _) = build_dflash(gpu, config, target, options, Source::Synthetic(Fill::new(gpu, seed)?))?;
        gpu.sync()?;
        Ok(drafter)
    }
}

fn build_dflash<'w>(
    gpu: &Gpu,
    config: DflashConfig,
    target: &Target,
    options: &LoadOptions,
    source: Source<'w>,
) -> Result<(Dflash, Source<'w>)> {
    config.check_target(&target.config)?;
    if (options.dtype, options.shard) != (target.dtype, target.shard) {
        return Err(CudaError::Model("a drafter shares type and ranks with its target, whose head it uses".into()));
    }
    if config.block > MOST_ROWS {
        let block = config.block;
        let problem =
            format!("the drafter's `block_size` is {block}: a pass has at most {MOST_ROWS} rows of a sequence");
        return Err(CudaError::Model(problem));
    }
    // A block may lie behind the last position of the longest context.
    let behind = config.block.min(options.positions.saturating_sub(1));
    positions(options.positions - behind, config.max_positions)?;
    let (dtype, hidden, eps) = (options.dtype, config.hidden, config.rms_eps as f32);
    let attention = &config.attention;
    let rope = RopeTable::new(gpu, &config.rope, options.positions)?;
    let scale = (attention.head_dim as f32).powf(-0.5);
    let gqa = GqaOps { window_tail: false, ..GqaOps::new(gpu, options, attention, rope, eps, scale)? };
    let context = GqaPrep::new(gpu, dtype, 0, gqa.kv_heads, gqa.head_dim, gqa.rope.interleaved())?;
    let ops = DflashOps { lookup: Embed::new(gpu, dtype, hidden)?, rms: Norm::new(gpu, dtype, hidden)?, gqa, context };
    let few = few(gpu, dtype)?;
    let mut read = Reader { gpu, source, dtype, shard: options.shard, hidden, moe: None, few };
    let name = |i: usize| format!("layers.{i}");
    let mut pieces = Vec::new();
    for i in 0..config.windows.len() {
        pieces.extend(read.qkv_pieces(&format!("{}.self_attn", name(i)), attention)?);
    }
    let qkv = read.dense(&pieces)?;
    let each = qkv.out / config.windows.len();
    let mut layers = Vec::new();
    for (i, slides) in config.windows.iter().enumerate() {
        let p = name(i);
        let own = qkv.rows(i * each..(i + 1) * each);
        layers.push(DflashLayer {
            input_norm: read.norm(&format!("{p}.input_layernorm"))?,
            attention: read.gqa(&format!("{p}.self_attn"), attention, Some(own))?,
            post_norm: read.norm(&format!("{p}.post_attention_layernorm"))?,
            mlp: read.mlp(&format!("{p}.mlp"), config.intermediate)?,
            window: window(*slides),
        });
    }
    let fc = read.dense(&[Piece::whole("fc", hidden, hidden * config.target_layers.len())])?;
    let (hidden_norm, norm) = (read.norm("hidden_norm")?, read.norm("norm")?);
    let source = read.source;
    let (embed, head) = (target.embed.clone(), target.head.clone());
    Ok((Dflash { config, dtype, comm: target.comm, embed, head, fc, hidden_norm, qkv, layers, norm, ops }, source))
}

/// The kernels for few rows, which are for bf16.
fn few(gpu: &Gpu, dtype: Dtype) -> Result<Few> {
    if dtype == Dtype::Bf16 { Ok(Some(Arc::new(Dense::new(gpu)?))) } else { Ok(None) }
}

/// # Errors
/// [`CudaError::Setting`] for a context beyond the model's.
fn positions(asked: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&asked) {
        return Ok(());
    }
    Err(CudaError::Setting {
        key: "context",
        problem: format!("is {asked}; the model goes from 1 to {most} positions"),
    })
}

/// Builds a target from any source, and gives the source back.
fn build<'w>(
    gpu: &Gpu,
    config: TargetConfig,
    options: &LoadOptions,
    source: Source<'w>,
) -> Result<(Target, Source<'w>)> {
    let LoadOptions { dtype, shard, .. } = *options;
    let comm = Comm::none(shard)?;
    positions(options.positions, config.max_positions)?;
    let before = gpu.free_bytes()?;
    let ops = Ops::new(gpu, &config, options)?;
    let (vocab, hidden) = (config.vocab, config.hidden);
    let moe = ops.moe.clone();
    let few = few(gpu, dtype)?;
    let mut read = Reader { gpu, source, dtype, shard, hidden, moe: moe.as_ref(), few };
    let table = Piece::whole("model.embed_tokens", vocab, hidden);
    let embed = Arc::new(read.dense(std::slice::from_ref(&table))?);
    let mine = shard.split("rows of the head", vocab)?;
    let head = match (config.tied, mine.len() == vocab) {
        (true, true) => embed.clone(),
        (true, false) => Arc::new(read.dense(&[table.rows(mine)])?),
        (false, _) => Arc::new(read.dense(&[Piece::whole("lm_head", vocab, hidden).rows(mine)])?),
    };
    let mut layers = Vec::with_capacity(config.layers.len());
    for (i, layer) in config.layers.iter().enumerate() {
        layers.push(read.layer(&config, i, layer)?);
    }
    let norm = read.norm("model.norm")?;
    let source = read.source;
    let bytes = before.saturating_sub(gpu.free_bytes()?);
    Ok((Target { config, dtype, shard, comm, embed, head, layers, norm, ops, bytes }, source))
}
