//! A target with its drafter, loaded once and shared by engines.

use crate::draft::{Autoregressive, Dflash, DflashModel, Kind, NGram};
use crate::engine::{CpuEngine, Draft, EngineSettings};
use crate::error::{CpuError, Result};
use crate::model::Model;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest suffix that an n-gram drafter may match.
const NGRAM_ORDERS: std::ops::RangeInclusive<u32> = 1..=crate::draft::MAX_ORDER as u32;

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
    /// Counts over prompt and response; no checkpoint.
    NGram {
        /// Longest suffix that is matched, 1 … 8.
        order: u32,
        /// Deepest level.
        depth: u32,
    },
}

#[derive(Debug, Clone)]
enum Drafter {
    None,
    Dflash(Arc<DflashModel>),
    Autoregressive(Arc<Model>, u32),
    NGram { order: u32, depth: u32 },
}

/// A target and its drafter. Cloning shares the weights.
#[derive(Debug, Clone)]
pub struct CpuPair {
    target: Arc<Model>,
    drafter: Drafter,
}

impl CpuPair {
    /// Loads both.
    ///
    /// # Errors
    /// What the checkpoints refuse, a drafter that does not fit the target, or a setting out of range.
    pub fn load(target: &Path, drafter: &DrafterSource) -> Result<Self> {
        Self::with_target(Arc::new(Model::load(target)?), drafter)
    }

    /// The same with a target that is loaded already.
    ///
    /// # Errors
    /// As [`CpuPair::load`].
    pub fn with_target(target: Arc<Model>, drafter: &DrafterSource) -> Result<Self> {
        let depth_in = |depth: u32| match DEPTHS.contains(&depth) {
            true => Ok(depth),
            false => Err(CpuError::Setting {
                key: "depth",
                problem: format!("is {depth}; it must be from {} to {}", DEPTHS.start(), DEPTHS.end()),
            }),
        };
        let drafter = match drafter {
            DrafterSource::None => Drafter::None,
            DrafterSource::Dflash { dir } => Drafter::Dflash(Arc::new(DflashModel::load(dir, &target)?)),
            DrafterSource::Autoregressive { dir, depth } => {
                let model = Model::load(dir)?;
                let (mine, its) = (model.config().vocab, target.config().vocab);
                if mine != its {
                    let problem =
                        format!("`vocab_size` is {mine}, but {its} of the target: both must share a tokenizer");
                    return Err(CpuError::Pair { path: dir.clone(), problem });
                }
                Drafter::Autoregressive(Arc::new(model), depth_in(*depth)?)
            }
            DrafterSource::NGram { order, depth } => {
                if !NGRAM_ORDERS.contains(order) {
                    let problem =
                        format!("is {order}; it must be from {} to {}", NGRAM_ORDERS.start(), NGRAM_ORDERS.end());
                    return Err(CpuError::Setting { key: "order", problem });
                }
                Drafter::NGram { order: *order, depth: depth_in(*depth)? }
            }
        };
        Ok(Self { target, drafter })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Arc<Model> {
        &self.target
    }

    /// What the drafter is, in one line, with what it takes from its config (the amplitude of its rotary embedding, say).
    #[must_use]
    pub fn describe_drafter(&self) -> String {
        match &self.drafter {
            Drafter::None => "none".into(),
            Drafter::Dflash(model) => model.config.to_string(),
            Drafter::Autoregressive(model, depth) => {
                let config = model.config();
                format!("autoregressive: {} layers of {}, depth {depth}", config.layers.len(), config.hidden)
            }
            Drafter::NGram { order, depth } => format!("n-gram: order {order}, depth {depth}"),
        }
    }

    /// An engine over this pair; the weights are shared, caches are its own.
    ///
    /// # Errors
    /// [`CpuError::Setting`] for sizes that cannot work.
    pub fn engine(&self, settings: EngineSettings) -> Result<CpuEngine> {
        let most = match &self.drafter {
            Drafter::None | Drafter::NGram { .. } => usize::MAX,
            Drafter::Dflash(model) => model.config.max_positions,
            Drafter::Autoregressive(model, _) => model.config().max_positions,
        };
        settings.check(most.min(self.target.config().max_positions))?;
        let (target, slots) = (self.target.clone(), settings.slots as usize);
        let conditional = |kind, depth| Draft { kind, taps: Vec::new(), depth, conditional: true, draws: true };
        let draft = match &self.drafter {
            Drafter::None => Draft { kind: Kind::None, taps: Vec::new(), depth: 0, conditional: false, draws: false },
            Drafter::Dflash(model) => Draft {
                kind: Kind::Dflash(Box::new(Dflash::new(target.clone(), model.clone(), slots))),
                taps: model.config.target_layers.clone(),
                depth: model.config.block as u32 - 1,
                conditional: false,
                draws: true,
            },
            Drafter::Autoregressive(model, depth) => {
                conditional(Kind::Autoregressive(Box::new(Autoregressive::new(model.clone(), slots))), *depth)
            }
            Drafter::NGram { order, depth } => {
                let vocab = target.config().vocab;
                conditional(Kind::NGram(NGram::new(vocab, *order as usize, slots)), *depth)
            }
        };
        Ok(CpuEngine::new(target, draft, settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Engines move between threads, pairs are shared by them.
    #[test]
    fn engines_can_run_on_any_thread() {
        fn send<T: Send>() {}
        fn share<T: Send + Sync>() {}
        send::<CpuEngine>();
        share::<CpuPair>();
    }
}
