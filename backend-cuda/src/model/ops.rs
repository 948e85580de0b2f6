//! The kernels of a target, loaded once, and the sizes that follow from its config and shard.

use super::LoadOptions;
use super::gqa::GqaOps;
use super::mla::MlaOps;
use super::moe::MoeConfig;
use super::work::{Attend, Widths};
use crate::device::{Dtype, Gpu};
use crate::error::Result;
use crate::ops::embed::Embed;
use crate::ops::norm::Norm;
use crate::ops::rope::RopeTable;
use crate::ops::rows::Bucket;
use treeline_checkpoint::{Attention, TargetConfig};

/// Kernels of a model.
#[derive(Debug)]
pub(super) struct Ops {
    pub embed: Embed,
    pub norm: Norm,
    pub attention: AttentionOps,
    pub moe: Option<MoeConfig>,
}

/// Kernels of attention.
#[derive(Debug)]
pub(super) enum AttentionOps {
    Mla(MlaOps),
    Gqa(GqaOps),
}

impl Ops {
    /// Those of a target on one rank.
    pub fn new(gpu: &Gpu, config: &TargetConfig, options: &LoadOptions) -> Result<Self> {
        let dtype = options.dtype;
        let rope = RopeTable::new(gpu, &config.rope, options.positions)?;
        let scale = config.softmax_scale() as f32;
        let attention = match &config.attention {
            Attention::Mla(c) => AttentionOps::Mla(MlaOps::new(gpu, options, c, rope, scale)?),
            Attention::Gqa(c) => AttentionOps::Gqa(GqaOps::new(gpu, options, c, rope, config.rms_eps as f32, scale)?),
        };
        Ok(Self {
            embed: Embed::new(gpu, dtype, config.hidden)?,
            norm: Norm::new(gpu, dtype, config.hidden)?,
            attention,
            moe: MoeConfig::new(config, options.shard)?,
        })
    }

    /// Cache arrays of a layer, and bytes of a row of each.
    pub fn cache_shape(&self, dtype: Dtype) -> (usize, usize) {
        match &self.attention {
            AttentionOps::Mla(ops) => (1, ops.row() * dtype.bytes()),
            AttentionOps::Gqa(ops) => (2, ops.row() * dtype.bytes()),
        }
    }

    /// Attention kernels with their memory, for passes up to `max`.
    pub fn attend(&self, gpu: &Gpu, dtype: Dtype, max: Bucket) -> Result<Attend> {
        Ok(match &self.attention {
            AttentionOps::Mla(ops) => Attend::Mla(ops.attend(gpu, dtype, max)?),
            AttentionOps::Gqa(ops) => Attend::Gqa(ops.attend(gpu, dtype, max)?),
        })
    }

    /// Widths of the buffers that follow from attention and routing.
    pub fn widths(&self, hidden: usize) -> Widths {
        let mut widths = Widths { hidden, ..Widths::default() };
        match &self.attention {
            AttentionOps::Mla(ops) => ops.widths(&mut widths),
            AttentionOps::Gqa(ops) => ops.widths(&mut widths),
        }
        if let Some(moe) = &self.moe {
            widths.scores = moe.shape.experts;
            widths.top_k = moe.shape.top_k;
        }
        widths
    }
}
