//! What a user's TOML file is a profile of.

use super::load::Doc;
use super::{Drafter, Model, ProfileError, read_text};
use std::path::Path;

/// Kinds of files that an experiment names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A GPU.
    Hardware,
    /// A target.
    Model,
    /// A drafter.
    Drafter,
    /// An engine on a machine.
    Deployment,
    /// How distinct experts are counted.
    Experts,
    /// A drafter–target process.
    Process,
}

/// Keys of the top level that tell the kinds apart.
const KEYS: [(Kind, &[&str]); 6] = [
    (
        Kind::Hardware,
        &["system", "capability", "sms", "hbm_bytes", "hbm_bytes_s", "bf16_flops", "fp8_flops", "l2_bytes", "board_w"],
    ),
    (Kind::Model, &["attention", "moe", "dense_layers", "dense_intermediate", "tied", "max_context"]),
    (Kind::Drafter, &["block", "steps", "features", "heads", "kv_heads", "window", "window_layers"]),
    (
        Kind::Deployment,
        &["engine", "version", "ranks", "execution", "graphs", "allreduce", "tables", "overheads", "tree_attention"],
    ),
    (Kind::Experts, &["popularity", "novelty", "exponent", "rho", "points"]),
    (
        Kind::Process,
        &[
            "conditional",
            "width",
            "request_spread",
            "position_spread",
            "confidence_spread",
            "rank_exponent",
            "recovery",
        ],
    ),
];

/// Words of `kind` that only one kind of file has.
const WORDS: [(Kind, &[&str]); 2] = [
    (Kind::Drafter, &["dflash", "eagle"]),
    (Kind::Experts, &["uniform", "skewed", "power", "shared", "correlated", "measured"]),
];

impl Kind {
    /// The kind of the file at `path`: a checkpoint's folder or `config.json` is a model, or a drafter where it can be read as
    /// one; a TOML file what most of its keys belong to.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, or whose keys belong to no kind or to several alike.
    pub fn of(path: &Path) -> Result<Self, ProfileError> {
        if path.is_dir() || path.extension().is_some_and(|e| e == "json") {
            // A DFlash config says so; whatever else it is, the model's reader says what is wrong with it.
            return Ok(match (Drafter::from_checkpoint(path), Model::from_checkpoint(path)) {
                (Ok(_), Err(_)) => Self::Drafter,
                _ => Self::Model,
            });
        }
        let (text, file) = (read_text(path)?, path.display().to_string());
        let doc = Doc::parse(&text, &file)?;
        let root = doc.root();
        if let Ok(word) = root.text("kind")
            && let Some((kind, _)) = WORDS.iter().find(|w| w.1.contains(&word.as_str()))
        {
            return Ok(*kind);
        }
        let count = |keys: &[&str]| keys.iter().filter(|k| root.has(k)).count();
        let most = KEYS.iter().map(|k| count(k.1)).max().unwrap_or(0);
        let mut best = KEYS.iter().filter(|k| count(k.1) == most);
        match (best.next(), best.next()) {
            (Some((kind, _)), None) if most > 0 => Ok(*kind),
            _ => {
                let problem = "is neither hardware, model, drafter, deployment, expert model nor acceptance process: start \
                               from a copy of what ships (docs/profiles.md)";
                Err(ProfileError::At { file, line: 1, key: String::new(), problem: problem.into() })
            }
        }
    }
}
