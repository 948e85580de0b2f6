//! One GPU and its links.

use std::fmt;

use super::load::Doc;
use super::{ProfileError, Sources};

/// A GPU as a profile describes it; rates are dense (no sparsity), per GPU, in units per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// Name of the profile.
    pub name: String,
    /// Key of this machine in the op tables: `h200`, `b200`, `b300`. None: no table was measured on it.
    pub system: Option<String>,
    /// Compute capability, `9.0`.
    pub capability: String,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Device memory as the driver reports it, bytes.
    pub hbm_bytes: u64,
    /// Memory bandwidth of the datasheet, bytes/s.
    pub hbm_bytes_s: f64,
    /// Read bandwidth that a kernel was measured to reach, bytes/s.
    pub hbm_measured_bytes_s: Option<f64>,
    /// BF16 tensor-core rate, flop/s; W4A16 kernels have the same roof.
    pub bf16_flops: f64,
    /// BF16 rate that a large product was measured to reach, flop/s.
    pub bf16_measured_flops: Option<f64>,
    /// FP8 tensor-core rate, flop/s.
    pub fp8_flops: f64,
    /// FP4 tensor-core rate, flop/s; None: the GPU has none.
    pub fp4_flops: Option<f64>,
    /// L2 cache, bytes.
    pub l2_bytes: u64,
    /// NVLink rate in one direction, bytes/s.
    pub nvlink_bytes_s: f64,
    /// GPUs that one NVLink domain of the server joins.
    pub nvlink_gpus: u32,
    /// Whether the switches of the domain can reduce (NVLS).
    pub nvls: bool,
    /// Board power limit, watts.
    pub board_w: f64,
    /// Power of a GPU that holds a model and runs nothing, watts.
    pub idle_w: f64,
    /// Energy of one byte moved between memory and the multiprocessors, joules.
    pub joules_per_byte: f64,
    /// Energy of one BF16 tensor-core operation, joules.
    pub joules_per_flop: f64,
    /// Where each field comes from.
    pub sources: Sources,
}

impl Hardware {
    /// Reads a profile's text; `file` is for messages.
    ///
    /// # Errors
    /// A key that is missing, unknown or out of range, or fields that contradict each other.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let doc = Doc::parse(text, file)?;
        let (f, mut s) = (doc.root(), Sources::default());
        let s = &mut s;
        let hardware = Self {
            name: f.text("name")?,
            system: if f.has("system") { Some(f.text("system")?) } else { None },
            capability: f.field("capability", s)?,
            sms: f.size("sms", 1024, s)?,
            hbm_bytes: f.field("hbm_bytes", s)?,
            hbm_bytes_s: f.positive("hbm_bytes_s", s)?,
            hbm_measured_bytes_s: f.opt_positive("hbm_measured_bytes_s", s)?,
            bf16_flops: f.positive("bf16_flops", s)?,
            bf16_measured_flops: f.opt_positive("bf16_measured_flops", s)?,
            fp8_flops: f.positive("fp8_flops", s)?,
            fp4_flops: f.opt_positive("fp4_flops", s)?,
            l2_bytes: f.field("l2_bytes", s)?,
            nvlink_bytes_s: f.positive("nvlink_bytes_s", s)?,
            nvlink_gpus: f.size("nvlink_gpus", 1024, s)?,
            nvls: f.field("nvls", s)?,
            board_w: f.positive("board_w", s)?,
            idle_w: f.positive("idle_w", s)?,
            joules_per_byte: f.amount("joules_per_byte", s)?,
            joules_per_flop: f.amount("joules_per_flop", s)?,
            sources: std::mem::take(s),
        };
        let contradiction = [
            ("hbm_bytes", hardware.hbm_bytes == 0, "is 0: a GPU has memory".to_owned()),
            (
                "idle_w",
                hardware.idle_w >= hardware.board_w,
                format!("is {} W, not below `board_w` = {} W", hardware.idle_w, hardware.board_w),
            ),
            (
                "hbm_measured_bytes_s",
                hardware.hbm_measured_bytes_s.is_some_and(|m| m > hardware.hbm_bytes_s),
                "exceeds `hbm_bytes_s`, the datasheet's rate".to_owned(),
            ),
            (
                "bf16_measured_flops",
                hardware.bf16_measured_flops.is_some_and(|m| m > hardware.bf16_flops),
                "exceeds `bf16_flops`, the datasheet's rate".to_owned(),
            ),
            (
                "fp8_flops",
                hardware.fp8_flops < hardware.bf16_flops,
                "is below `bf16_flops`: give dense rates of the same GPU".to_owned(),
            ),
        ];
        let number = |s: &str| !s.is_empty() && s.len() <= 3 && s.bytes().all(|b| b.is_ascii_digit());
        if !hardware.capability.split_once('.').is_some_and(|(major, minor)| number(major) && number(minor)) {
            let problem = format!("is \"{}\"; a compute capability is written \"9.0\"", hardware.capability);
            return Err(f.error("capability", problem));
        }
        if let Some((key, _, problem)) = contradiction.into_iter().find(|c| c.1) {
            return Err(f.error(key, problem));
        }
        f.finish()?;
        Ok(hardware)
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hardware {}", self.name)?;
        if let Some(system) = &self.system {
            writeln!(f, "  op tables of `{system}`")?;
        }
        write!(f, "{}", self.sources)
    }
}
