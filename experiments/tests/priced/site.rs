//! A small grid, and a folder to run it in.

use serde_json::Value;
use std::path::Path;
use treeline::config::{self, Experiment, Overrides};
use treeline::run::{self, Options, Outcome};
use treeline_policies::Registry;

/// A grid of 2 acceptances × 2 contexts × 2 concurrencies × (plain + chain + 2 × best-first + batch-wide).
pub const GRID: &str = r#"name = "grid"
seed = 5
record = "summary"
bootstrap = 200
reference = { policy = "best-first", budget = 8 }
[backend]
kind = "sim"
[deployment]
engine = "sglang-0.5.14-b300-tp8"
model = "kimi-k2.6"
drafter = "kimi-k2.6-dflash"
experts = "uniform"
tier = "table"
allow_extrapolation = true
prefill = "excluded"
[workload]
concurrency = [1, 16]
context = [1024, 8192]
response = 96
requests = 12
rounds = 512
[[acceptance]]
name = "chat"
process = "kimi-k2.5-dflash-mtbench"
variants = false
[[acceptance]]
name = "maths, by its tree"
process = "kimi-k2.6-dspark"
tau = { value = 6.0, policy = "best-first", budget = 16 }
variants = false
[[policy]]
kind = "chain"
budget = [7]
[[policy]]
kind = "best-first"
budget = [8, 32]
[[policy]]
kind = "batch-wide"
budget = [32]
calibration = "claimed"
off = false
"#;

/// A folder for files and runs.
pub struct Site(tempfile::TempDir);

impl Site {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub fn load(&self, text: &str) -> Result<Experiment, String> {
        std::fs::write(self.path("grid.toml"), text).unwrap();
        config::load_with(&self.path("grid.toml"), &Registry::builtin(), &Overrides::default())
            .map_err(|e| e.to_string())
    }

    pub fn go(&self, text: &str, out: &str, resume: bool) -> Outcome {
        let experiment = self.load(text).unwrap_or_else(|e| panic!("{e}"));
        let options = Options { out: Some(self.path(out)), quiet: true, resume, ..Options::default() };
        run::run(&experiment, &Registry::builtin(), &options).unwrap_or_else(|e| panic!("{e:#}"))
    }
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The files of the groups, by name.
pub fn groups(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir.join("cells")).unwrap();
    let mut files: Vec<_> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files
}
