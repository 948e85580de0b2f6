//! `treeline policy new NAME`: a crate with a policy of one's own, outside the workspace.

use super::Usage;
use super::out::Out;
use anyhow::Context as _;
use clap::Args;
use std::path::{Path, PathBuf};
use treeline_policies::template;

/// What to write, and where.
#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the policy and of its crate, as in `my-policy`.
    name: String,
    /// Folder that the crate's folder is put into.
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// The Treeline checkout that the crate is built against; the one that this program comes from unless given.
    #[arg(long, value_name = "PATH")]
    treeline: Option<PathBuf>,
}

/// An experiment of a few seconds that compares the new policy with two built-in ones.
const EXPERIMENT: &str = r#"# A first comparison, in seconds: few prompts, so τ is rough.
name = "{{name}}"
seed = 20261130
record = "all"
folder = {{experiments}}

[target]
checkpoint = "models/mini-target"

[drafter]
kind = "dflash"
checkpoint = "models/mini-dflash"
width = 64

[backend]
kind = "cpu"
context = 256

[workload]
max_new = 32
ignore_eos = true
chat = "off"
concurrency = [1]
[[workload.prompts]]
file = "prompts/humaneval.jsonl"
take = 2
[[workload.prompts]]
file = "prompts/heldout-prose.jsonl"
take = 2

[sampling]
law = "sample-match"
temperature = [0.7]

[[policy]]
kind = "chain"
budget = [7]

[[policy]]
kind = "best-first"
budget = [16]

[[policy]]
kind = "{{name}}"
budget = [16]
"#;

/// Writes the crate.
pub(super) fn new(args: &NewArgs, out: &Out) -> anyhow::Result<()> {
    let root = match &args.treeline {
        Some(path) if is_checkout(path) => path.clone(),
        Some(path) => return Err(Usage(format!("{} is no Treeline checkout", path.display())).into()),
        None => checkout().ok_or_else(|| {
            Usage("no Treeline checkout around this program or this folder: name one with --treeline PATH".into())
        })?,
    };
    let root = root.canonicalize().with_context(|| root.display().to_string())?;
    let root_text = root.to_str().ok_or_else(|| Usage(format!("{} is not UTF-8, as Cargo.toml is", root.display())))?;
    let files = template::render(&args.name, root_text).map_err(|e| Usage(e.to_string()))?;
    let experiments = toml::Value::from(format!("{root_text}/experiments")).to_string();
    let experiment = EXPERIMENT.replace("{{name}}", &args.name).replace("{{experiments}}", &experiments);

    let folder = args.dir.join(&args.name);
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Usage(format!("{} is there already and not empty", folder.display())).into());
    }
    for (path, text) in files.iter().map(|(p, t)| (*p, t)).chain([("quickstart.toml", &experiment)]) {
        write(&folder.join(path), text)?;
    }
    // The versions that Treeline itself is tested with, so that nothing is resolved anew.
    let lock = root.join("Cargo.lock");
    if lock.is_file() {
        std::fs::copy(&lock, folder.join("Cargo.lock")).with_context(|| lock.display().to_string())?;
    }
    out.note(&format!(
        "next: cd {} && cargo test --release && cargo run --release -- run quickstart.toml",
        folder.display()
    ));
    out.data(&folder.display().to_string())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The checkout around this program (`target/release/treeline`) or around the working folder.
fn checkout() -> Option<PathBuf> {
    let around = |path: PathBuf| path.ancestors().find(|a| is_checkout(a)).map(Path::to_owned);
    let program = std::env::current_exe().ok().and_then(|p| p.canonicalize().ok()).and_then(around);
    program.or_else(|| std::env::current_dir().ok().and_then(around))
}

fn is_checkout(path: &Path) -> bool {
    let named = |folder: &str, name: &str| {
        let text = std::fs::read_to_string(path.join(folder).join("Cargo.toml")).unwrap_or_default();
        text.parse::<toml::Table>().is_ok_and(|t| t.get("package").and_then(|p| p.get("name")?.as_str()) == Some(name))
    };
    named("policies", "treeline-policies") && named("core", "treeline-core") && named("experiments", "treeline")
}
