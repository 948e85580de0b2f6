//! The drafter's shape.

use std::fmt;
use std::path::Path;

use treeline_checkpoint::DflashConfig;

use super::load::Doc;
use super::{Model, ProfileError, Sources};

/// The shape of a drafter: layers of grouped-query attention and SwiGLU on the target's width, fed with outputs of some of
/// the target's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Drafter {
    /// Name of the profile.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Rows of the head that proposes: the target's vocabulary, or a reduced one.
    pub vocab: u32,
    /// Layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Dimensions of a head.
    pub head_dim: u32,
    /// Width of the SwiGLU.
    pub intermediate: u32,
    /// Layers with a sliding window.
    pub window_layers: u32,
    /// That window, tokens; 0: none.
    pub window: u32,
    /// Outputs of target layers that are concatenated into its input projection.
    pub features: u32,
    /// Bytes of a parameter.
    pub bytes_per_param: f64,
    /// How it drafts.
    pub kind: DrafterKind,
    /// Where each field comes from.
    pub sources: Sources,
}

/// How a drafter drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrafterKind {
    /// Block diffusion: one pass over `block` rows proposes for `block − 1` positions. Head and embedding are the target's.
    Dflash {
        /// Tokens of a block, the committed one included.
        block: u32,
    },
    /// Autoregressive: one pass per step, each a row per node that is expanded. Has a head of its own.
    Eagle {
        /// Passes of a round.
        steps: u32,
    },
}

impl Drafter {
    /// Reads a profile's text; `file` is for messages.
    ///
    /// # Errors
    /// A key that is missing, unknown or out of range, or fields that contradict each other.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let doc = Doc::parse(text, file)?;
        let (f, mut s) = (doc.root(), Sources::default());
        let s = &mut s;
        let name = f.text("name")?;
        let kind = match f.text("kind")?.as_str() {
            "dflash" => {
                let block: u32 = f.field("block", s)?;
                if !(2..=4096).contains(&block) {
                    let problem =
                        format!("is {block}; it must be from 2 to 4096: the committed token and what follows");
                    return Err(f.error("block", problem));
                }
                DrafterKind::Dflash { block }
            }
            "eagle" => DrafterKind::Eagle { steps: f.size("steps", 4096, s)? },
            other => return Err(f.error("kind", format!("\"{other}\" is not known; \"dflash\" and \"eagle\" are"))),
        };
        let drafter = Self {
            name,
            hidden: f.size("hidden", 1 << 20, s)?,
            vocab: f.size("vocab", 1 << 24, s)?,
            layers: f.size("layers", 4096, s)?,
            heads: f.size("heads", 1 << 16, s)?,
            kv_heads: f.size("kv_heads", 1 << 16, s)?,
            head_dim: f.size("head_dim", 1 << 16, s)?,
            intermediate: f.size("intermediate", 1 << 20, s)?,
            window_layers: f.opt("window_layers", s)?.unwrap_or(0),
            window: f.opt("window", s)?.unwrap_or(0),
            features: f.size("features", 1024, s)?,
            bytes_per_param: f.positive("bytes_per_param", s)?,
            kind,
            sources: std::mem::take(s),
        };
        if !drafter.heads.is_multiple_of(drafter.kv_heads) {
            let problem = format!("{} heads cannot share {} key heads evenly", drafter.heads, drafter.kv_heads);
            return Err(f.error("kv_heads", problem));
        }
        if drafter.window_layers > drafter.layers {
            let problem = format!("is {}, but `layers` is {}", drafter.window_layers, drafter.layers);
            return Err(f.error("window_layers", problem));
        }
        if (drafter.window_layers > 0) != (drafter.window > 0) {
            return Err(f.error("window", "and `window_layers` belong together: give both or neither"));
        }
        f.finish()?;
        Ok(drafter)
    }

    /// The shape of a DFlash checkpoint's `config.json`, in bf16.
    ///
    /// # Errors
    /// A size that no model has.
    pub fn from_dflash(config: &DflashConfig, name: &str) -> Result<Self, ProfileError> {
        super::config::dflash(config, name)
    }

    /// Reads `config.json` of a DFlash checkpoint's folder, or that file.
    ///
    /// # Errors
    /// A config that is not understood.
    pub fn from_checkpoint(path: &Path) -> Result<Self, ProfileError> {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let config = if path.is_dir() {
            DflashConfig::from_dir(path)?
        } else {
            DflashConfig::from_json(&super::read_text(path)?, path)?
        };
        let name = folder.file_name().map_or("drafter".into(), |n| n.to_string_lossy().into_owned());
        Self::from_dflash(&config, &name)
    }

    /// Positions behind the committed token that it proposes for: `block − 1`, or steps.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self.kind {
            DrafterKind::Dflash { block } => block - 1,
            DrafterKind::Eagle { steps } => steps,
        }
    }

    /// Parameters of its layers: q, k, v, o, gate, up, down. An EAGLE layer projects from twice the width (embedding beside
    /// feature).
    #[must_use]
    pub fn layer_params(&self) -> f64 {
        let (h, heads) = (f64::from(self.hidden), f64::from(self.heads));
        let (kv, d) = (f64::from(self.kv_heads), f64::from(self.head_dim));
        let into = if matches!(self.kind, DrafterKind::Eagle { .. }) { 2.0 * h } else { h };
        let attention = into * d * (heads + 2.0 * kv) + heads * d * h;
        f64::from(self.layers) * (attention + 3.0 * h * f64::from(self.intermediate))
    }

    /// Parameters of the projection of the target's features, `features × hidden → hidden`.
    #[must_use]
    pub fn feature_params(&self) -> f64 {
        f64::from(self.features) * f64::from(self.hidden) * f64::from(self.hidden)
    }

    /// Parameters of a head of its own; 0 where it uses the target's.
    #[must_use]
    pub fn head_params(&self) -> f64 {
        match self.kind {
            DrafterKind::Dflash { .. } => 0.0,
            DrafterKind::Eagle { .. } => f64::from(self.vocab) * f64::from(self.hidden),
        }
    }

    /// All parameters but norms.
    #[must_use]
    pub fn params(&self) -> f64 {
        self.layer_params() + self.feature_params() + self.head_params()
    }

    /// Elements that it caches per token over all layers, all ranks together.
    #[must_use]
    pub fn kv_elements(&self) -> f64 {
        2.0 * f64::from(self.layers) * f64::from(self.kv_heads) * f64::from(self.head_dim)
    }

    /// Checks that it can draft for `model`.
    ///
    /// # Errors
    /// Another width, or a vocabulary that the target does not have.
    pub fn check_model(&self, model: &Model) -> Result<(), ProfileError> {
        let mismatch = |what: &str, mine: u32, its: u32| ProfileError::Mismatch {
            problem: format!("drafter {} has {what} {mine}, model {} has {its}", self.name, model.name),
            hint: "name the drafter that was trained for this model".into(),
        };
        if self.hidden != model.hidden {
            return Err(mismatch("width", self.hidden, model.hidden));
        }
        let dflash = matches!(self.kind, DrafterKind::Dflash { .. });
        if self.vocab > model.vocab || (dflash && self.vocab != model.vocab) {
            return Err(mismatch("vocabulary", self.vocab, model.vocab));
        }
        Ok(())
    }
}

impl fmt::Display for Drafter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "drafter {}", self.name)?;
        writeln!(f, "  {:.3} G parameters, drafts {} positions", self.params() / 1e9, self.depth())?;
        write!(f, "{}", self.sources)
    }
}
