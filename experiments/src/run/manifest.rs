//! `manifest.json`: what a run was made with, so that it can be made again or doubted.

use super::source::Facts;
use super::{Options, RunWarning, machine};
use crate::config::Experiment;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// `schema_version` of the manifest.
const VERSION: u32 = 1;

/// The manifest of one run.
pub(super) struct Manifest {
    base: Value,
}

impl Manifest {
    /// What is known before the first cell.
    pub fn new(facts: &Facts, e: &Experiment, options: &Options) -> Self {
        let cost = e.cost.as_ref().map(|c| json!({ "rows": c.curve.rows(), "ms": c.curve.ms(), "source": c.source }));
        let base = json!({
            "schema_version": VERSION,
            "experiment": e.name,
            "started": utc(SystemTime::now()).0,
            "resumed": options.resume,
            "replayed_observations": options.replay_observations.is_some(),
            "treeline": env!("CARGO_PKG_VERSION"),
            "git": git(&e.folder),
            "machine": {
                "os": std::env::consts::OS,
                "arch": std::env::consts::ARCH,
                "cpu": machine::cpu(),
                "cores": machine::cores(),
                "memory_bytes": machine::memory(),
                "gpu": facts.gpu.as_ref().map(|(name, _)| name),
                "driver": facts.gpu.as_ref().map(|(_, driver)| driver),
                "clocks": null,
            },
            "threads": rayon::current_num_threads(),
            "seeds": { "run": e.seed, "bootstrap": e.seed },
            "backend": facts.backend,
            "deployment": facts.deployment,
            "inputs": facts.manifest,
            "cost_tier": facts.tier,
            "policy_cost": cost,
        });
        Self { base }
    }

    /// Before the end.
    pub fn unfinished(&self) -> Value {
        let mut out = self.base.clone();
        out["finished"] = Value::Bool(false);
        out
    }

    /// With the wall times: key of each cell, whether it was kept from an earlier run, seconds.
    pub fn finished(&self, wall_s: f64, cells: &[(String, bool, Option<f64>)], failed: &[(String, String)]) -> Value {
        let mut out = self.base.clone();
        out["finished"] = Value::Bool(true);
        out["wall_s"] = json!(wall_s);
        let cell =
            |(key, kept, wall): &(String, bool, Option<f64>)| json!({ "key": key, "kept": kept, "wall_s": wall });
        out["cells"] = cells.iter().map(cell).collect();
        out["failed"] = failed.iter().map(|(cell, why)| json!({ "cell": cell, "why": why })).collect();
        out
    }

    /// Whether the folder holds cells of another build.
    pub fn differs(&self, dir: &Path) -> Option<RunWarning> {
        let text = std::fs::read(dir.join("manifest.json")).ok()?;
        let earlier: Value = serde_json::from_slice(&text).ok()?;
        let build = |m: &Value| {
            let commit = m["git"]["commit"].as_str().map_or("no commit", |c| c.get(..12).unwrap_or(c)).to_owned();
            let version = m["treeline"].as_str().unwrap_or("unknown").to_owned();
            format!("{version} {commit}{}", if m["git"]["dirty"] == json!(true) { " with changes" } else { "" })
        };
        let (was, is) = (build(&earlier), build(&self.base));
        (was != is).then_some(RunWarning::OtherBuild { was, is })
    }
}

/// Commit of the checkout that `folder` lies in.
pub(super) fn commit(folder: &Path) -> Option<String> {
    git(folder)["commit"].as_str().map(str::to_owned)
}

/// Commit of the checkout that the experiment lies in, and whether it has changes; `null` outside of one.
fn git(folder: &Path) -> Value {
    let ask = |args: &[&str]| {
        let out = Command::new("git").arg("-C").arg(folder).args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(commit) = ask(&["rev-parse", "HEAD"]) else { return Value::Null };
    let changes = ask(&["status", "--porcelain", "--untracked-files=no"]);
    json!({ "commit": commit, "dirty": changes.map(|c| !c.is_empty()) })
}

/// A time in UTC: as RFC 3339, and as `YYYYMMDD-HHMMSS`.
pub(super) fn utc(time: SystemTime) -> (String, String) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    // Days since 1970-01-01 into year, month, day, in years that begin in March (Hinnant, "chrono-compatible low-level date
    // algorithms").
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let date = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (
        format!("{year:04}-{month:02}-{date:02}T{h:02}:{m:02}:{s:02}Z"),
        format!("{year:04}{month:02}{date:02}-{h:02}{m:02}{s:02}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_of_the_calendar() {
        let at = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0).0, "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399).1, "20000228-235959");
        assert_eq!(at(951_782_400).1, "20000229-000000");
        assert_eq!(at(951_868_800).1, "20000301-000000");
        assert_eq!(at(1_796_000_000).0, "2026-11-30T00:53:20Z");
        assert_eq!(at(4_107_542_400).1, "21000301-000000");
    }
}
