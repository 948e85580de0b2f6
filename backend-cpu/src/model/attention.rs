//! What both attention forms share.

use super::rope::{Angles, Rotary};
use super::{gqa::GqaLayer, mla::MlaLayer};
use crate::kernel::Attend;
use crate::kv::SeqKv;
use crate::plan::Plan;

/// Where a layer stands in a pass.
pub(crate) struct Pass<'a> {
    pub plan: &'a Plan,
    pub rotary: &'a Rotary,
    pub angles: &'a Angles,
    pub layer: usize,
    /// Sliding window of this layer, in positions.
    pub window: Option<usize>,
}

/// Working memory of the attention of one pass.
#[derive(Debug, Default)]
pub(crate) struct AttentionWork {
    pub down: Vec<f32>,
    pub low: Vec<f32>,
    pub q: Vec<f32>,
    pub query: Vec<f32>,
    pub mixed: Vec<f32>,
    pub values: Vec<f32>,
    pub attend: Attend,
}

/// Attention of one layer.
#[derive(Debug)]
pub(crate) enum AttentionLayer {
    Mla(MlaLayer),
    Gqa(GqaLayer),
}

impl AttentionLayer {
    /// Adds the attention of the normed rows `h` to the residual stream `x`.
    pub fn forward(&self, pass: &Pass<'_>, h: &[f32], kvs: &mut [SeqKv], work: &mut AttentionWork, x: &mut [f32]) {
        match self {
            Self::Mla(layer) => layer.forward(pass, h, kvs, work, x),
            Self::Gqa(layer) => layer.forward(pass, h, kvs, work, x),
        }
    }
}
