//! Rotary position embedding: what the config says, and the frequencies and amplitude that follow from it.
//!
//! YaRN after arXiv 2309.00071, with the `mscale` fields of DeepSeek-V3's config; the Llama 3 rule after the long-context
//! note of the Llama 3.1 release. Frequencies are computed in f64 and rounded once.

use std::f64::consts::PI;
use std::fmt;

use serde_json::json;

use crate::error::Result;
use crate::json::Fields;

/// Rotary embedding of one attention head.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Rotated dimensions of a head; even.
    pub dim: usize,
    /// true: dimensions 2i and 2i+1 turn together (DeepSeek); false: i and i + dim/2 (Llama, Qwen, DFlash).
    pub interleaved: bool,
    /// How the frequencies are stretched beyond the trained context.
    pub scaling: RopeScaling,
    /// Amplitude of cos and sin, and where it comes from.
    pub attention_factor: AttentionFactor,
}

/// Stretching of the rotary frequencies.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as trained.
    None,
    /// YaRN.
    Yarn(Yarn),
    /// The rule of Llama 3.1 and later.
    Llama3(Llama3Scaling),
}

/// Fields of a YaRN `rope_scaling`.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    /// Context is stretched by this factor.
    pub factor: f64,
    /// Context length before stretching, in tokens.
    pub original: f64,
    /// Rotations over the original context above which a frequency is left alone (32 where the config is silent, as in the paper).
    pub beta_fast: f64,
    /// Rotations below which a frequency is divided by the full factor (1 where the config is silent).
    pub beta_slow: f64,
    /// DeepSeek's amplitude weight, if given and not zero.
    pub mscale: Option<f64>,
    /// DeepSeek's softmax-scale weight, if given and not zero.
    pub mscale_all_dim: Option<f64>,
    /// Amplitude spelt out in the config.
    pub attention_factor: Option<f64>,
    /// Whether the ramp's ends are rounded to whole dimensions (true where the config is silent).
    pub truncate: bool,
}

/// Fields of a `llama3` `rope_scaling`.
#[derive(Debug, Clone, PartialEq)]
pub struct Llama3Scaling {
    /// Low frequencies are divided by this factor.
    pub factor: f64,
    /// Wavelengths above `original / low_freq_factor` are stretched in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original / high_freq_factor` are left alone.
    pub high_freq_factor: f64,
    /// Context length before stretching, in tokens.
    pub original: f64,
}

/// Amplitude that multiplies cos and sin (so q·k grows by its square), with its origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionFactor {
    /// The factor; 1 leaves cos and sin alone.
    pub value: f64,
    /// Why it has this value.
    pub source: FactorSource,
}

/// Origin of an [`AttentionFactor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorSource {
    /// No YaRN: the amplitude is 1.
    NoYarn,
    /// `attention_factor` in the config.
    Config,
    /// YaRN's default, 1 + 0.1 ln factor.
    YarnDefault,
    /// DeepSeek's ratio of `mscale` to `mscale_all_dim`.
    MscaleRatio,
    /// A DFlash drafter: trained with 1 + 0.1 ln factor although its config gives `mscale` and `mscale_all_dim`.
    DflashTraining,
    /// Set by the caller.
    Caller,
}

impl fmt::Display for AttentionFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.source {
            FactorSource::NoYarn => "no YaRN",
            FactorSource::Config => "`attention_factor` of the config",
            FactorSource::YarnDefault => "YaRN: 1 + 0.1 ln factor",
            FactorSource::MscaleRatio => "YaRN: mscale over mscale_all_dim",
            FactorSource::DflashTraining => {
                "YaRN: 1 + 0.1 ln factor, as the drafter was trained; mscale and mscale_all_dim of its config are not used"
            }
            FactorSource::Caller => "set by the caller",
        };
        write!(f, "{:.4} ({why})", self.value)
    }
}

/// DeepSeek's magnitude 1 + 0.1 · weight · ln factor; 1 where the context is not stretched.
pub(crate) fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

impl Rope {
    /// Angle per position of each rotated pair, `dim / 2` values from fast to slow; the angle at position p is p times this.
    pub fn inv_freq(&self) -> Vec<f64> {
        let half = self.dim / 2;
        let plain = |i: usize| self.theta.powf(-((2 * i) as f64) / self.dim as f64);
        match &self.scaling {
            RopeScaling::None => (0..half).map(plain).collect(),
            RopeScaling::Yarn(yarn) => {
                let (low, high) = yarn.ramp(self.dim, self.theta);
                let blend = |i: usize| {
                    let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    plain(i) / yarn.factor * stretched + plain(i) * (1.0 - stretched)
                };
                (0..half).map(blend).collect()
            }
            RopeScaling::Llama3(s) => (0..half).map(|i| s.stretch(plain(i))).collect(),
        }
    }

    /// What the softmax scale of latent attention is multiplied by: DeepSeek's (1 + 0.1 · mscale_all_dim · ln factor)²
    /// under YaRN, else 1.
    pub fn mla_scale_factor(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Yarn(Yarn { factor, mscale_all_dim: Some(weight), .. }) => {
                yarn_magnitude(*factor, *weight).powi(2)
            }
            _ => 1.0,
        }
    }
}

impl Yarn {
    /// First and last dimension of the ramp between untouched and stretched frequencies.
    fn ramp(&self, dim: usize, theta: f64) -> (f64, f64) {
        let turns = |n: f64| dim as f64 * (self.original / (n * 2.0 * PI)).ln() / (2.0 * theta.ln());
        let (mut low, mut high) = (turns(self.beta_fast), turns(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
        // Equal ends would divide by zero; the paper's code widens them by the same amount.
        if low == high { (low, high + 0.001) } else { (low, high) }
    }
}

impl Llama3Scaling {
    fn stretch(&self, freq: f64) -> f64 {
        let turns = self.original * freq / (2.0 * PI);
        if turns > self.high_freq_factor {
            freq
        } else if turns < self.low_freq_factor {
            freq / self.factor
        } else {
            let smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
            (1.0 - smooth) * freq / self.factor + smooth * freq
        }
    }
}

/// Whose rule decides the amplitude under YaRN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AmplitudeRule {
    Target,
    Dflash,
}

/// Reads `rope_theta` with `rope_scaling`, or transformers 5's `rope_parameters`, which holds both.
pub(crate) fn read(fields: &Fields<'_>, dim: usize, interleaved: bool, rule: AmplitudeRule) -> Result<Rope> {
    if dim % 2 == 1 {
        return Err(fields.error("head_dim", format!("rotary embedding needs an even number of dimensions, not {dim}")));
    }
    let (old, new) = (fields.object("rope_scaling")?, fields.object("rope_parameters")?);
    let key = if new.is_some() { "rope_parameters" } else { "rope_scaling" };
    if old.is_some() && new.is_some() && fields.get("rope_scaling") != fields.get("rope_parameters") {
        return Err(fields.error("rope_scaling", "differs from `rope_parameters`: keep one of the two"));
    }
    let spec = new.or(old);
    let inner_theta = spec.as_ref().map(|s| s.opt_positive("rope_theta")).transpose()?.flatten();
    let outer_theta = fields.opt_positive("rope_theta")?;
    let theta = match (outer_theta, inner_theta) {
        (Some(a), Some(b)) if a != b => {
            return Err(
                fields.error("rope_theta", format!("is {a}, but `{key}.rope_theta` is {b}: keep one of the two"))
            );
        }
        (a, b) => match a.or(b) {
            Some(theta) => theta,
            None => fields.positive("rope_theta")?,
        },
    };
    if theta <= 1.0 {
        return Err(fields.error("rope_theta", format!("must be greater than 1, not {theta}")));
    }
    let scaling = spec.map_or(Ok(RopeScaling::None), read_scaling)?;
    let attention_factor = amplitude(&scaling, fields, key, rule)?;
    let rope = Rope { theta, dim, interleaved, scaling, attention_factor };
    if rope.inv_freq().iter().any(|f| !f.is_finite()) || !rope.mla_scale_factor().is_finite() {
        return Err(fields.error(key, "gives frequencies that are not finite numbers"));
    }
    Ok(rope)
}

fn read_scaling(spec: Fields<'_>) -> Result<RopeScaling> {
    let (new, old) = (spec.opt_str("rope_type")?, spec.opt_str("type")?);
    if let (Some(a), Some(b)) = (new, old)
        && a != b
    {
        return Err(spec.error("type", format!("is \"{b}\", but `rope_type` is \"{a}\": keep one of the two")));
    }
    spec.only("partial_rotary_factor", &json!(1.0), "every family here rotates all of its rotary dimensions")?;
    let Some(kind) = new.or(old) else {
        return Err(spec.error("rope_type", "missing: say \"default\", \"yarn\" or \"llama3\""));
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "yarn" => RopeScaling::Yarn(Yarn {
            factor: spec.positive("factor")?,
            original: spec.positive("original_max_position_embeddings")?,
            beta_fast: spec.opt_positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: spec.opt_positive("beta_slow")?.unwrap_or(1.0),
            mscale: spec.opt_f64("mscale")?.filter(|m| *m != 0.0),
            mscale_all_dim: spec.opt_f64("mscale_all_dim")?.filter(|m| *m != 0.0),
            attention_factor: spec.opt_positive("attention_factor")?,
            truncate: spec.opt_bool("truncate")?.unwrap_or(true),
        }),
        "llama3" => {
            let s = Llama3Scaling {
                factor: spec.positive("factor")?,
                low_freq_factor: spec.positive("low_freq_factor")?,
                high_freq_factor: spec.positive("high_freq_factor")?,
                original: spec.positive("original_max_position_embeddings")?,
            };
            if s.high_freq_factor <= s.low_freq_factor {
                return Err(spec.error("high_freq_factor", "must be greater than `low_freq_factor`"));
            }
            RopeScaling::Llama3(s)
        }
        other => {
            return Err(spec.error("rope_type", format!("\"{other}\" is not supported; default, yarn and llama3 are")));
        }
    };
    spec.finish()?;
    Ok(scaling)
}

fn amplitude(scaling: &RopeScaling, fields: &Fields<'_>, key: &str, rule: AmplitudeRule) -> Result<AttentionFactor> {
    let RopeScaling::Yarn(yarn) = scaling else {
        return Ok(AttentionFactor { value: 1.0, source: FactorSource::NoYarn });
    };
    let default = yarn_magnitude(yarn.factor, 1.0);
    let (value, source) = match (yarn.attention_factor, yarn.mscale, yarn.mscale_all_dim) {
        (Some(value), ..) => (value, FactorSource::Config),
        (None, None, None) => (default, FactorSource::YarnDefault),
        _ if rule == AmplitudeRule::Dflash => (default, FactorSource::DflashTraining),
        (None, Some(a), Some(b)) => {
            let ratio = yarn_magnitude(yarn.factor, a) / yarn_magnitude(yarn.factor, b);
            (ratio, FactorSource::MscaleRatio)
        }
        // The public readings of a lone field differ, except for mscale 1, where both give YaRN's default.
        (None, Some(1.0), None) => (default, FactorSource::YarnDefault),
        (None, ..) => {
            let problem = "gives one of `mscale` and `mscale_all_dim` without the other, which public code reads in different ways: give both, or `attention_factor`";
            return Err(fields.error(key, problem));
        }
    };
    if !value.is_finite() || value <= 0.0 {
        return Err(
            fields.error(key, format!("gives cos and sin the amplitude {value}; it must be positive and finite"))
        );
    }
    Ok(AttentionFactor { value, source })
}
