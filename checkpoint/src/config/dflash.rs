//! The DFlash block-diffusion drafter (arXiv 2602.06036): Qwen3-like layers without embedding or head of their own.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::common::{common, layer_count};
use super::rope::AmplitudeRule;
use super::{AttentionFactor, CONFIG_LIMIT, FactorSource, Family, Gqa, Rope, TargetConfig, gqa, rope};
use crate::error::{Error, Result};
use crate::json::{Fields, parse, read_limited};

/// A block drafter of the DFlash form.
#[derive(Debug, Clone)]
pub struct DflashConfig {
    /// The file that this was read from, for messages.
    pub path: PathBuf,
    /// Width of the residual stream: the target's.
    pub hidden: usize,
    /// Size of the target's vocabulary.
    pub vocab: usize,
    /// Width of the SwiGLU of each layer.
    pub intermediate: usize,
    /// Attention of every layer: per-head norm on q and k, not causal over [context ‖ block].
    pub attention: Gqa,
    /// Rotary embedding over the whole head, with its explicit amplitude.
    pub rope: Rope,
    /// Epsilon of every RMSNorm.
    pub rms_eps: f64,
    /// Sliding window of each layer, as [`super::Layer::window`]; its length is the number of layers.
    pub windows: Vec<Option<usize>>,
    /// Whether the config says that no layer is causal inside the block. Where it is silent and some layers slide, public engines
    /// differ from the paper's form: vLLM (pull requests 40898 and 47914) runs the sliding layers causally.
    pub non_causal: bool,
    /// Tokens of a block: the committed one and `block − 1` masks.
    pub block: usize,
    /// Token that stands for "to be drafted".
    pub mask_token: u32,
    /// Target layers (0-based) whose outputs condition the drafter, in the order in which they are concatenated.
    pub target_layers: Vec<usize>,
    /// Layers of the target that the drafter was trained for, if the config says.
    pub num_target_layers: Option<usize>,
    /// Longest context, in tokens.
    pub max_positions: usize,
}

impl DflashConfig {
    /// Reads `config.json` of a folder.
    ///
    /// # Errors
    /// A missing or damaged file; a field that is missing, out of range, unknown, or asks for what is not implemented.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let bytes = read_limited(&path, CONFIG_LIMIT)?;
        Self::read(Fields::new(&path, "", &parse(&bytes, &path)?)?)
    }

    /// Reads the text of a `config.json`; `path` is for messages.
    ///
    /// # Errors
    /// As [`DflashConfig::from_dir`].
    pub fn from_json(text: &str, path: &Path) -> Result<Self> {
        Self::read(Fields::new(path, "", &parse(text.as_bytes(), path)?)?)
    }

    fn read(fields: Fields<'_>) -> Result<Self> {
        fields.only("model_type", &json!("qwen3"), "a DFlash drafter is made of Qwen3 layers")?;
        if fields.get("architectures").is_none() {
            return Err(fields.error("architectures", "missing: a DFlash drafter says [\"DFlashDraftModel\"]"));
        }
        common(&fields, &["DFlashDraftModel"])?;
        // The embedding and the head are the target's, whose config says where they are.
        fields.ignore(&["tie_word_embeddings", "bos_token_id", "eos_token_id"]);
        let non_causal = fields.opt_bool("is_causal")?.is_some();
        fields.only("is_causal", &json!(false), "a block is drafted without a causal mask")?;
        let hidden = fields.size("hidden_size")?;
        let vocab = fields.size("vocab_size")?;
        let attention = gqa::attention(&fields, Family::Qwen3, hidden)?;
        if attention.bias {
            return Err(fields.error("attention_bias", "is true, but a DFlash drafter has no biases"));
        }
        let rope = rope::read(&fields, attention.head_dim, false, AmplitudeRule::Dflash)?;
        let count = layer_count(&fields)?;
        let config = Self {
            path: fields.path().to_owned(),
            hidden,
            vocab,
            intermediate: fields.size("intermediate_size")?,
            attention,
            rope,
            rms_eps: fields.positive("rms_norm_eps")?,
            windows: gqa::windows(&fields, Family::Qwen3, count)?,
            non_causal,
            block: block(&fields)?,
            mask_token: 0,
            target_layers: Vec::new(),
            num_target_layers: fields.opt_size("num_target_layers")?,
            max_positions: fields.size("max_position_embeddings")?,
        };
        config.with_inner(fields)
    }

    /// Reads `dflash_config`, which must be there.
    fn with_inner(mut self, fields: Fields<'_>) -> Result<Self> {
        let Some(inner) = fields.object("dflash_config")? else {
            return Err(fields.error("dflash_config", "missing: it holds mask_token_id and target_layer_ids"));
        };
        let mask = inner.opt_u64("mask_token_id", u64::from(u32::MAX))?;
        self.mask_token = match mask {
            Some(id) if id < self.vocab as u64 => id as u32,
            Some(id) => {
                return Err(
                    inner.error("mask_token_id", format!("token {id} is outside the vocabulary of {}", self.vocab))
                );
            }
            None => return Err(inner.error("mask_token_id", "missing: the drafter cannot fill a block without it")),
        };
        let ids = inner.opt_ids("target_layer_ids")?.unwrap_or_default();
        if ids.is_empty() {
            return Err(inner.error("target_layer_ids", "missing or empty: the drafter is conditioned on these layers"));
        }
        for (i, id) in ids.iter().enumerate() {
            if ids[..i].contains(id) || i >= 1024 {
                return Err(
                    inner.error("target_layer_ids", format!("layer {id} is named twice, or the list is too long"))
                );
            }
            if let Some(layers) = self.num_target_layers
                && *id as usize >= layers
            {
                let problem =
                    format!("names layer {id}, but `num_target_layers` is {layers} (0-based ids of layer outputs)");
                return Err(inner.error("target_layer_ids", problem));
            }
        }
        self.target_layers = ids.into_iter().map(|id| id as usize).collect();
        self.non_causal |= inner.opt_bool("causal")?.is_some();
        inner.only("causal", &json!(false), "a block is drafted without a causal mask")?;
        // Training frameworks write which member of the family they made.
        inner.only("projector_type", &json!("dflash"), "the other members of the family have further layers")?;
        inner.only("attention_mode", &json!("gqa"), "a DFlash drafter has grouped-query attention")?;
        if let Some(layers) = self.num_target_layers {
            inner.only("num_target_layers", &json!(layers), "it repeats the field of the same name")?;
        }
        inner.ignore(&["block_size"]);
        inner.finish()?;
        fields.finish()?;
        Ok(self)
    }

    /// The same drafter with another amplitude of cos and sin, to measure what the choice does.
    pub fn with_attention_factor(mut self, value: f64) -> Self {
        self.rope.attention_factor = AttentionFactor { value, source: FactorSource::Caller };
        self
    }

    /// Checks that this drafter fits a target: width, vocabulary, number of layers, layer ids.
    ///
    /// # Errors
    /// The first field of the drafter's config that does not fit.
    pub fn check_target(&self, target: &TargetConfig) -> Result<()> {
        let of = format!("of the target {}", target.path.display());
        let same = |field: &str, mine: usize, its: usize| {
            if mine == its {
                return Ok(());
            }
            Err(Error::field(&self.path, field, format!("is {mine}, but {its} {of}: it was trained for another model")))
        };
        same("hidden_size", self.hidden, target.hidden)?;
        same("vocab_size", self.vocab, target.vocab)?;
        if let Some(layers) = self.num_target_layers {
            same("num_target_layers", layers, target.layers.len())?;
        }
        if let Some(id) = self.target_layers.iter().find(|id| **id >= target.layers.len()) {
            let problem = format!("names layer {id}, but there are {} {of}", target.layers.len());
            return Err(Error::field(&self.path, "dflash_config.target_layer_ids", problem));
        }
        Ok(())
    }
}

/// `block_size`, at the top or in `dflash_config`.
fn block(fields: &Fields<'_>) -> Result<usize> {
    let outer = fields.opt_size("block_size")?;
    let inner = fields.object("dflash_config")?.map(|f| f.opt_size("block_size")).transpose()?.flatten();
    match (outer, inner) {
        (Some(a), Some(b)) if a != b => {
            Err(fields
                .error("block_size", format!("is {a}, but `dflash_config.block_size` is {b}: keep one of the two")))
        }
        (a, b) => match a.or(b) {
            Some(n) if (2..=4096).contains(&n) => Ok(n),
            Some(n) => Err(fields.error("block_size", format!("is {n}; it must be from 2 to 4096"))),
            None => fields.size("block_size"),
        },
    }
}

impl fmt::Display for DflashConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DFlash: {} layers of {}, block {}, mask {}, target layers {:?}, rms eps {:e}, attention factor {}",
            self.windows.len(),
            self.hidden,
            self.block,
            self.mask_token,
            self.target_layers,
            self.rms_eps,
            self.rope.attention_factor
        )
    }
}
