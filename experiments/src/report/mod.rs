//! What a run found, for people: one sentence, a table, and a self-contained page.
//!
//! Pure functions of [`crate::results`]: the same figures give the same text, byte for byte. A missing value is a dash
//! and a section without data is left out; nothing is ever drawn from a default.

mod answer;
mod domains;
mod fmt;
mod grid;
mod markdown;
mod model;
mod page;
mod picture;
mod plot;
pub(crate) mod remarks;
mod sections;
mod stats;
mod table;

pub use answer::answer;
pub use markdown::markdown;
pub use page::html;
pub use picture::picture;
pub use table::table;

use crate::results::Priced;

/// What the page says beside the figures.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// `experiment.resolved.toml`.
    pub resolved_toml: String,
    /// `manifest.json`; `Null` when there is none.
    pub manifest: serde_json::Value,
    /// The command line that made the run.
    pub command: String,
    /// Seed of every random number.
    pub seed: Option<u64>,
    /// Routed experts of the target's MoE layers; `None` for a dense target or when unknown.
    pub experts: Option<RoutedExperts>,
    /// Cells that failed: name and message.
    pub failed: Vec<(String, String)>,
    /// `priced.json`, where the run has one: the page is then a map over acceptance, context, concurrency and budget.
    pub priced: Option<Priced>,
}

/// The router's shape, for the curve of independent rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutedExperts {
    /// Routed experts per layer.
    pub total: u32,
    /// Of them chosen per token.
    pub per_token: u32,
}
