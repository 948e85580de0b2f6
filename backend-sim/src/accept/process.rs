//! The parameters of a synthetic drafter–target process, and their file.

use super::parameter::{Drafts, Parameter, Rates};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Deepest block of a process.
pub const MAX_DEPTH: usize = 31;

/// Why a process cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProcessError {
    /// No process of that name: there is no default.
    #[error("acceptance `{name}` is unknown: name one of {known}, or the path of a TOML file, `./{name}.toml`")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read acceptance file {file}: {why}")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The file is no process.
    #[error("acceptance file {file}: {why}")]
    Parse {
        /// The file.
        file: String,
        /// Line, key and what is wrong.
        why: String,
    },
    /// The drafter that is priced is no drafter of this process.
    #[error("acceptance `{process}` does not fit drafter {drafter}: {why}\nhelp: {help}")]
    Drafter {
        /// The process.
        process: String,
        /// The drafter's profile.
        drafter: String,
        /// What differs.
        why: String,
        /// What to change.
        help: String,
    },
    /// A value contradicts its meaning.
    #[error("acceptance `{process}`, key `{key}`: {why}")]
    Value {
        /// The process.
        process: String,
        /// The parameter.
        key: String,
        /// What is wrong and what would do.
        why: String,
    },
}

/// A drafter–target pair as a random process: what its block drafter proposes, and where the truth ranks.
///
/// At every position of every request, independently given the request: the chance that the drafter's first choice at depth
/// *d* is right *on the spine* has the logit μ_d + `request_spread`·z_request + `position_spread`·z_position +
/// `confidence_spread`·ε_d with standard normal z and ε; the μ_d are solved so that the chain of a whole run accepts with
/// exactly the `conditional` rates. Where the first choice is wrong, the true rank k ≥ 1 follows k^−e. Behind a wrong first
/// choice the logit changes by `after_sibling` (a listed rank was right) or `after_unlisted` (none was), and by what
/// `recovery` leaves of it further on: a Markov chain over ranks by depth. The drafter reports the marginal over what it
/// cannot know (whether its earlier first choices were right), so its rows are calibrated up to `temper`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Name, as results print it.
    pub name: String,
    /// What it stands for, and what it is not.
    pub about: String,
    /// How its drafter drafts.
    pub drafter: Drafts,
    /// Ranks that a row of a generated trace lists.
    pub width: u32,
    /// Vocabulary: where the tail of ranks ends.
    pub vocab: u32,
    /// Conditional rates of the chain, by position.
    pub conditional: Rates,
    /// Over-dispersion between requests: standard deviation of a request's logit. Logits, ≥ 0.
    pub request_spread: Parameter,
    /// Standard deviation of the logit that the levels of one block share. Logits, ≥ 0.
    pub position_spread: Parameter,
    /// Standard deviation of the logit of a single level: how much its confidence varies. Logits, ≥ 0.
    pub confidence_spread: Parameter,
    /// Reported log-probabilities are those of p^(1/temper): above 1 the drafter is too modest, below 1 too sure. > 0.
    pub temper: Parameter,
    /// Exponent e of the true token's rank k ≥ 1 where the first choice is wrong: P(k) ∝ k^−e up to the vocabulary. ≥ 0.
    pub rank_exponent: Parameter,
    /// Change of that exponent per logit of the first choice below even odds: unsure rows are flatter. ≥ 0.
    pub rank_slope: Parameter,
    /// Standard deviation of that exponent from row to row. ≥ 0.
    pub rank_spread: Parameter,
    /// Share of wrong first choices whose token the drafter has no idea of, on top of the power law. Within 0 and 1.
    pub rank_far: Parameter,
    /// Change of the logit right behind a wrong first choice where a listed rank was right: the independence error of a tree
    /// that follows a sibling. Logits.
    pub after_sibling: Parameter,
    /// The same where no listed rank was right. No tree goes there; the drafter's marginals do. Logits.
    pub after_unlisted: Parameter,
    /// What each right first choice that follows leaves of these changes. Within 0 and 1.
    pub recovery: Parameter,
    /// Correlation of a request's easiness with the experts that its rows share. Within −1 and 1.
    pub overlap_correlation: Parameter,
    /// Standard deviation of the log of a request's novelty factor ([`Process::novelty`]). ≥ 0.
    pub overlap_spread: Parameter,
}

impl Process {
    /// Levels of its block: the drafter proposes a row for each.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.conditional.values.len() as u32
    }

    /// Acceptance length of a chain of `depth` levels, the bonus included: 1 + Σ_k Π_{d≤k} r_d.
    #[must_use]
    pub fn tau(&self, depth: u32) -> f64 {
        tau_of(&self.conditional.values, depth)
    }

    /// The same process with its shape moved so that a chain of `depth` levels has the acceptance length `tau`: one shift
    /// in logits, the same at all positions. Standard errors of the rates are dropped with it: they are of a level that was
    /// counted, and the level is now the given one.
    ///
    /// # Errors
    /// [`ProcessError::Value`] when no shift gives it: `tau` must lie within 1 and `depth` + 1.
    pub fn to_tau(&self, tau: f64, depth: u32) -> Result<Self, ProcessError> {
        let depth = depth.min(self.depth());
        // At a shift of ±40 every rate is 0 or 1 to f64.
        let (mut low, mut high) = (-40.0, 40.0);
        if !(tau > 1.0 + 1e-6 && tau < f64::from(depth + 1) - 1e-6) {
            let why = format!(
                "a chain of {depth} levels cannot have the acceptance length {tau}: it lies within 1 and {}",
                depth + 1
            );
            return Err(self.value("tau", &why));
        }
        let at = |shift: f64| -> Vec<f64> {
            self.conditional.values.iter().map(|r| super::shape::logistic(super::shape::logit(*r) + shift)).collect()
        };
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if tau_of(&at(middle), depth) < tau { low = middle } else { high = middle }
        }
        let mut moved = self.clone();
        moved.conditional = Rates {
            values: at(0.5 * (low + high)),
            errors: Vec::new(),
            source: format!(
                "shape of `{}`, moved by {:+.3} logits to τ = {tau} at depth {depth}",
                self.name,
                0.5 * (low + high)
            ),
        };
        Ok(moved)
    }

    /// The parameters by name, with their units, in the order of the file.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, &'static str, &Parameter)> {
        vec![
            ("request_spread", "logits", &self.request_spread),
            ("position_spread", "logits", &self.position_spread),
            ("confidence_spread", "logits", &self.confidence_spread),
            ("temper", "factor", &self.temper),
            ("rank_exponent", "exponent", &self.rank_exponent),
            ("rank_slope", "exponent per logit", &self.rank_slope),
            ("rank_spread", "exponent", &self.rank_spread),
            ("rank_far", "share", &self.rank_far),
            ("after_sibling", "logits", &self.after_sibling),
            ("after_unlisted", "logits", &self.after_unlisted),
            ("recovery", "factor", &self.recovery),
            ("overlap_correlation", "correlation", &self.overlap_correlation),
            ("overlap_spread", "log of a factor", &self.overlap_spread),
        ]
    }

    /// The parameter called `key`, to be changed.
    pub fn parameter_mut(&mut self, key: &str) -> Option<&mut Parameter> {
        Some(match key {
            "request_spread" => &mut self.request_spread,
            "position_spread" => &mut self.position_spread,
            "confidence_spread" => &mut self.confidence_spread,
            "temper" => &mut self.temper,
            "rank_exponent" => &mut self.rank_exponent,
            "rank_slope" => &mut self.rank_slope,
            "rank_spread" => &mut self.rank_spread,
            "rank_far" => &mut self.rank_far,
            "after_sibling" => &mut self.after_sibling,
            "after_unlisted" => &mut self.after_unlisted,
            "recovery" => &mut self.recovery,
            "overlap_correlation" => &mut self.overlap_correlation,
            "overlap_spread" => &mut self.overlap_spread,
            _ => return None,
        })
    }

    /// Reads a process; `file` names it in errors.
    ///
    /// # Errors
    /// [`ProcessError`] with the line and key.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProcessError> {
        let parse = |why: String| ProcessError::Parse { file: file.to_owned(), why };
        let process: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let line = text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
            parse(format!("line {line}: {}", e.message().lines().next().unwrap_or_default()))
        })?;
        process.check().map_err(|e| match e {
            ProcessError::Value { key, why, .. } => parse(format!("`{key}`: {why}")),
            other => other,
        })?;
        Ok(process)
    }

    /// The process as a file that [`Process::from_toml`] reads.
    ///
    /// # Errors
    /// [`ProcessError::Value`] when it holds something that has no file form.
    pub fn to_toml(&self) -> Result<String, ProcessError> {
        toml::to_string(self).map_err(|e| self.value("toml", &e.to_string()))
    }

    pub(super) fn value(&self, key: &str, why: &str) -> ProcessError {
        ProcessError::Value { process: self.name.clone(), key: key.to_owned(), why: why.to_owned() }
    }
}

/// 1 + Σ_{k ≤ depth} Π_{d ≤ k} r_d.
pub(super) fn tau_of(rates: &[f64], depth: u32) -> f64 {
    let mut reach = 1.0;
    1.0 + rates
        .iter()
        .take(depth as usize)
        .map(|r| {
            reach *= r;
            reach
        })
        .sum::<f64>()
}
