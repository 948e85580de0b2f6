//! What a reader must know before believing a run, with advice.

use crate::results::CellDetail;
use std::fmt;

/// Begins a note of a cell that is a warning: it is repeated in the summary.
pub(super) const NOTE: &str = "warning: ";

/// A doubt about the whole run; doubts about a cell are [`treeline_core::metrics::Warning`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunWarning {
    /// Prompts that leave no room for a whole response.
    ContextShort {
        /// How many.
        prompts: usize,
        /// Positions per request.
        context: u32,
    },
    /// No plain decoding to compare with.
    NoBaseline,
    /// Cells failed; the summary is of the others.
    Failed {
        /// How many.
        cells: usize,
    },
    /// Cells of a run by another build were kept.
    OtherBuild {
        /// What the earlier manifest says.
        was: String,
        /// What runs now.
        is: String,
    },
}

impl RunWarning {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::ContextShort { .. } => "raise `context`, lower `max_new`, or leave long prompts out",
            Self::NoBaseline => "set `baseline = true` to get speed-ups",
            Self::Failed { .. } => "read their messages, and repeat them with `--resume`",
            Self::OtherBuild { .. } => "run into a new folder to have all cells from one build",
        }
    }
}

impl fmt::Display for RunWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContextShort { prompts, context } => {
                write!(f, "{prompts} prompts leave no room for a whole response in {context} positions")
            }
            Self::NoBaseline => write!(f, "there is no plain decoding to compare with"),
            Self::Failed { cells } => write!(f, "{cells} cells failed and are not in this summary"),
            Self::OtherBuild { was, is } => write!(f, "kept cells come from another build ({was}, now {is})"),
        }?;
        write!(f, ": {}", self.advice())
    }
}

/// The run's warnings, then those of its cells: one line for each different text, with the cells that it holds for.
pub(super) fn lines(run: &[RunWarning], details: &[CellDetail]) -> Vec<String> {
    let mut lines: Vec<String> = run.iter().map(ToString::to_string).collect();
    let mut found: Vec<(&str, Vec<String>)> = Vec::new();
    for detail in details {
        let c = &detail.cell;
        for text in c.notes.iter().filter_map(|n| n.strip_prefix(NOTE)) {
            let label = format!("{} {} at T {}", c.policy, c.budget, c.temperature);
            match found.iter_mut().find(|(t, _)| *t == text) {
                Some((_, cells)) => cells.push(label),
                None => found.push((text, vec![label])),
            }
        }
    }
    let all = details.len();
    lines.extend(found.into_iter().map(|(text, cells)| match cells.len() {
        n if n == all && n > 1 => format!("{text} (all cells)"),
        n if n > 4 => format!("{text} ({}, … {n} cells)", cells[..3].join(", ")),
        _ => format!("{text} ({})", cells.join(", ")),
    }));
    lines
}
