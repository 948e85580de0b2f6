//! Where every figure of a model comes from, in words, and a digest of it.

use super::line::Tier;
use super::model::CostModel;
use super::setup::CostSetup;
use super::target::Formulation;
use crate::profile::{Allreduce, TableRef};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Words that are made once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Words {
    /// 90th percentile of a calibration's held-out error.
    pub held_out: f64,
    /// Largest error of the experts' fit.
    pub moe_worst: Option<f64>,
    pub text: String,
    pub digest: String,
}

fn table(t: &TableRef) -> String {
    let kernel = t.kernel.as_ref().map(|k| format!(" ({k})")).unwrap_or_default();
    format!("{} {}{kernel}", t.engine.key(), t.version)
}

impl Words {
    pub(super) fn of(setup: &CostSetup<'_>, formulation: Formulation, moe_worst: Option<f64>) -> Self {
        let digest = digest(setup);
        let text = text(setup, formulation).unwrap_or_default();
        let held_out = setup.calibration.map_or(0.0, |c| c.held_out.p90);
        Self { held_out, moe_worst, text, digest }
    }
}

fn text(setup: &CostSetup<'_>, formulation: Formulation) -> Result<String, std::fmt::Error> {
    let (d, t) = (setup.deployment, &setup.deployment.tables);
    let mut s = String::new();
    writeln!(s, "tier {}, overhead_scale {}", setup.tier, setup.overhead_scale)?;
    for (name, scale) in setup.scales.entries() {
        if scale != 1.0 {
            writeln!(s, "times of {name} × {scale}")?;
        }
    }
    match setup.tier {
        Tier::Bound => writeln!(s, "every op: max(bytes / bandwidth, flops / peak) of the datasheet; a lower limit")?,
        Tier::Table => {
            writeln!(s, "dense products: {}", table(&t.gemm))?;
            let how = match formulation {
                Formulation::Module => "module table, products of further rows from the table of dense products",
                Formulation::Kernels => "kernel table, products from the table of dense products",
            };
            writeln!(
                s,
                "attention: {}, {how}; rows beyond one a request add their flops (table+flops)",
                table(&t.attention)
            )?;
            if let Some(moe) = &t.moe {
                writeln!(s, "routed experts: {}, t0 + c·U + h(T) fitted to balanced rows", table(moe))?;
            }
            if let Some(draft) = &t.draft_attention {
                writeln!(s, "draft attention: {}", table(draft))?;
            }
            match (&d.allreduce, &t.allreduce) {
                (Allreduce::Table { .. }, Some(ar)) => writeln!(s, "all-reduce: {}", table(ar))?,
                (Allreduce::None, _) => writeln!(s, "all-reduce: none; what ranks exchange is left out")?,
                (Allreduce::OneShot { alpha_us }, _) => {
                    writeln!(s, "all-reduce: one-shot, {alpha_us} µs and its bytes")?
                }
                (Allreduce::TwoShot { alpha_us }, _) => {
                    writeln!(s, "all-reduce: two-shot, {alpha_us} µs and its bytes")?
                }
                (Allreduce::Nvls { alpha_us, bytes_s }, _) => {
                    writeln!(
                        s,
                        "all-reduce: in the switch (NVLS), {alpha_us} µs and its bytes at {:.0} GB/s",
                        bytes_s / 1e9
                    )?;
                }
                (Allreduce::Table { .. }, None) => writeln!(s, "all-reduce: no table is named")?,
            }
        }
        Tier::Calibrated => {
            if let Some(c) = setup.calibration {
                let m = &c.manifest;
                writeln!(
                    s,
                    "calibration {} on {} ({}; {}), {} {}",
                    c.digest,
                    m.gpu,
                    m.words(),
                    m.machine,
                    m.engine,
                    m.engine_commit
                )?;
                writeln!(
                    s,
                    "held-out error over {} steps: median {:.1} %, p90 {:.1} %, bias {:+.1} %",
                    c.held_out.points,
                    100.0 * c.held_out.median,
                    100.0 * c.held_out.p90,
                    100.0 * c.held_out.bias
                )?;
            }
        }
    }
    if let Some(experts) = &setup.experts {
        writeln!(s, "distinct experts: {}", experts.words())?;
    }
    write!(s, "{d}{}{}", setup.hardware, setup.model)?;
    if let Some(drafter) = setup.drafter {
        write!(s, "{drafter}")?;
    }
    Ok(s)
}

/// Hash of everything that a price depends on.
fn digest(setup: &CostSetup<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{:?}{:?}{:?}{:?}", setup.hardware, setup.model, setup.drafter, setup.deployment));
    hash.update(format!("{:?}{}{:?}{:?}", setup.tier, setup.overhead_scale, setup.experts, setup.scales));
    match setup.tier {
        Tier::Table => hash.update(format!("{:016x}", setup.tables.digest())),
        Tier::Calibrated => hash.update(setup.calibration.map_or("", |c| c.digest.as_str())),
        Tier::Bound => {}
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

impl CostModel {
    /// Where every figure comes from: tables and their versions, profiles field by field, what is not modelled.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.words.text
    }

    /// 32 hexadecimal digits that change with anything that a price depends on.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.words.digest
    }
}
