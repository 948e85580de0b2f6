//! A target with its drafter, loaded once and shared by engines.

use super::draft::{Autoregressive, Block, Kind};
use super::recorded::Recorded;
use super::routing::RoutingModel;
use super::settings::CudaSettings;
use super::slots::{CudaEngine, Draft};
use crate::device::{Dtype, Gpu};
use crate::error::{CudaError, Result};
use crate::model::{Dflash, LoadOptions, Shard, Synthetic, Target};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treeline_checkpoint::DflashConfig;

/// Deepest level that a conditional drafter may be asked for.
const DEPTHS: std::ops::RangeInclusive<u32> = 1..=64;

/// Which drafter goes with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrafterSource {
    /// None: plain decoding only.
    None,
    /// A DFlash folder; it reaches block − 1 levels.
    Dflash {
        /// Folder of the checkpoint.
        dir: PathBuf,
    },
    /// A model folder of any target family with the target's vocabulary.
    Autoregressive {
        /// Folder of the checkpoint.
        dir: PathBuf,
        /// Deepest level.
        depth: u32,
    },
}

/// How a pair is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairOptions {
    /// Type of activations and dense weights: f32 follows the CPU engine, bf16 is what checkpoints are.
    pub dtype: Dtype,
    /// Longest context that engines over this pair may ask for.
    pub context: u32,
}

#[derive(Debug, Clone)]
enum Drafter {
    None,
    Dflash(Arc<Dflash>),
    Autoregressive(Arc<Target>, u32),
}

/// A target and its drafter on one device. Cloning shares the weights.
#[derive(Debug, Clone)]
pub struct CudaPair {
    gpu: Gpu,
    target: Arc<Target>,
    drafter: Drafter,
    options: PairOptions,
    stand_in: Option<StandIn>,
}

/// What stands in for words, routers and prompts.
#[derive(Debug, Clone)]
pub(super) struct StandIn {
    pub recorded: Arc<Recorded>,
    pub routing: RoutingModel,
    pub filled: bool,
}

/// Models of synthetic weights, and what stands in for their words.
#[derive(Debug, Clone)]
pub struct SyntheticPair {
    /// The target: one rank's work.
    pub target: Synthetic,
    /// The drafter, of the same ranks.
    pub drafter: DflashConfig,
    /// Drafts and truth.
    pub recorded: Arc<Recorded>,
    /// Routing.
    pub routing: RoutingModel,
    /// Whether caches are filled with numbers once, and no prompt is computed.
    pub filled: bool,
}

impl CudaPair {
    /// Loads both.
    ///
    /// # Errors
    /// What the checkpoints refuse, a drafter that does not fit the target, a context beyond what the models were made
    /// for, or memory.
    pub fn load(gpu: &Gpu, target: &Path, drafter: &DrafterSource, options: &PairOptions) -> Result<Self> {
        let load =
            |positions: u32| LoadOptions { dtype: options.dtype, shard: Shard::ONE, positions: positions as usize };
        let target = Arc::new(Target::load(gpu, target, &load(options.context))?);
        fits("the target", target.config().max_positions, options.context)?;
        let drafter = match drafter {
            DrafterSource::None => Drafter::None,
            DrafterSource::Dflash { dir } => {
                // The block's last rows lie behind the last position of the context.
                let block = DflashConfig::from_dir(dir)?.block;
                let model = Dflash::load(gpu, dir, &target, &load(options.context + block as u32))?;
                fits("the drafter", model.config().max_positions, options.context)?;
                Drafter::Dflash(Arc::new(model))
            }
            DrafterSource::Autoregressive { dir, depth } => {
                if !DEPTHS.contains(depth) {
                    let problem = format!("is {depth}; it must be from {} to {}", DEPTHS.start(), DEPTHS.end());
                    return Err(CudaError::Setting { key: "depth", problem });
                }
                let model = Target::load(gpu, dir, &load(options.context))?;
                let (mine, its) = (model.config().vocab, target.config().vocab);
                if mine != its {
                    let folder = dir.display();
                    let problem = format!(
                        "{folder}: `vocab_size` is {mine}, but {its} of the target: both must share a tokenizer"
                    );
                    return Err(CudaError::Model(problem));
                }
                fits("the drafter", model.config().max_positions, options.context)?;
                Drafter::Autoregressive(Arc::new(model), *depth)
            }
        };
        Ok(Self { gpu: gpu.clone(), target, drafter, options: *options, stand_in: None })
    }

    /// Fills models of synthetic weights on the device, in bf16 (routed experts in INT4). Engines over such a pair run every
    /// pass of the models, drafts are then those of the trace, and routing is the model's: run it under [`Law::Forced`] with
    /// the same trace.
    ///
    /// [`Law::Forced`]: treeline_core::Law::Forced
    ///
    /// # Errors
    /// A drafter that does not fit, memory.
    pub fn synthetic(gpu: &Gpu, what: &SyntheticPair) -> Result<Self> {
        let target = Arc::new(Target::synthetic(gpu, &what.target)?);
        let (dtype, shard) = (target.dtype(), target.shard());
        let positions = what.target.positions + what.drafter.block;
        let load = LoadOptions { dtype, shard, positions };
        let drafter = Dflash::synthetic(gpu, what.drafter.clone(), &target, &load, what.target.seed ^ 1)?;
        Ok(Self {
            gpu: gpu.clone(),
            target,
            drafter: Drafter::Dflash(Arc::new(drafter)),
            options: PairOptions { dtype, context: what.target.positions as u32 },
            stand_in: Some(StandIn { recorded: what.recorded.clone(), routing: what.routing, filled: what.filled }),
        })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The device.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// How it was loaded.
    #[must_use]
    pub fn options(&self) -> &PairOptions {
        &self.options
    }

    /// What the drafter is, in one line, with what it takes from its config (the amplitude of its rotary embedding, say).
    #[must_use]
    pub fn describe_drafter(&self) -> String {
        match &self.drafter {
            Drafter::None => "none".into(),
            Drafter::Dflash(model) => model.config().to_string(),
            Drafter::Autoregressive(model, depth) => {
                let config = model.config();
                format!("autoregressive: {} layers of {}, depth {depth}", config.layers.len(), config.hidden)
            }
        }
    }

    /// An engine over this pair; the weights are shared, caches and buffers are its own.
    ///
    /// # Errors
    /// [`CudaError::Setting`] for sizes that cannot work, [`CudaError::Memory`] with the setting to lower.
    pub fn engine(&self, settings: CudaSettings) -> Result<CudaEngine> {
        settings.check(self.options.context)?;
        let draft = match &self.drafter {
            Drafter::None => Draft { kind: Kind::None, taps: Vec::new(), depth: 0, conditional: false, block: 0 },
            Drafter::Dflash(model) => {
                let block = model.config().block as u32;
                Draft {
                    kind: Kind::Block(Box::new(Block::new(&self.gpu, model.clone(), &settings)?)),
                    taps: model.config().target_layers.clone(),
                    depth: block - 1,
                    conditional: false,
                    block,
                }
            }
            Drafter::Autoregressive(model, depth) => Draft {
                kind: Kind::Autoregressive(Box::new(Autoregressive::new(&self.gpu, model.clone(), &settings)?)),
                taps: Vec::new(),
                depth: *depth,
                conditional: true,
                block: 0,
            },
        };
        let mut engine = CudaEngine::new(&self.gpu, self.target.clone(), draft, settings)?;
        if let Some(stand_in) = &self.stand_in {
            engine.stand_in(stand_in)?;
        }
        Ok(engine)
    }
}

fn fits(what: &str, most: usize, context: u32) -> Result<()> {
    if context as usize > most {
        let problem = format!("is {context}, but {what} was made for {most} positions");
        return Err(CudaError::Setting { key: "context", problem });
    }
    Ok(())
}
