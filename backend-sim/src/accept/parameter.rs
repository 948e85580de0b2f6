//! One named number of a process, with the range that its source leaves open.

use serde::{Deserialize, Serialize};

/// A parameter: the value in use, the range within which it may as well lie, and who says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value in use.
    pub value: f64,
    /// The least value that the source leaves open.
    pub low: f64,
    /// The greatest one.
    pub high: f64,
    /// Where value and range come from; says so when nobody published any.
    pub source: String,
}

impl Parameter {
    /// A parameter with its range.
    #[must_use]
    pub fn new(value: f64, low: f64, high: f64, source: &str) -> Self {
        Self { value, low, high, source: source.to_owned() }
    }

    /// `value` ± 1.96 standard errors.
    #[must_use]
    pub fn fitted(value: f64, error: f64, source: &str) -> Self {
        Self::new(value, value - 1.96 * error, value + 1.96 * error, source)
    }
}

/// How the drafter of a process drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drafts {
    /// A whole block in one pass: its rates belong to the size of that block.
    Block,
    /// One token behind the other: the rate at a position does not depend on how many more are drafted.
    Steps,
}

/// Conditional rates by position: the share of rounds that accept token *d* among those that accepted *d* − 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// r_1 … r_L, each within 0 and 1 (both excluded).
    pub values: Vec<f64>,
    /// Standard errors in the same order; empty when the source gives none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<f64>,
    /// Where they come from.
    pub source: String,
}
