//! What a reader must know before believing a run, with advice.

use crate::report::remarks::{Remark, merged};
use crate::results::{Cell, CellDetail};
use std::fmt;

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
    /// Trees on this deployment are hypothetical.
    Hypothetical {
        /// Why.
        why: String,
    },
    /// The deployment's engine is priced by tables of another version.
    OtherTables {
        /// Engine and version.
        engine: String,
        /// Which op by which tables, and why.
        ops: Vec<String>,
    },
    /// Every time is a lower limit.
    BoundOnly,
    /// Steps outside of what was measured.
    Extrapolated {
        /// Cells with such steps.
        cells: usize,
        /// All cells.
        of: usize,
    },
    /// Cells whose cache does not fit.
    Unfit {
        /// How many.
        cells: usize,
        /// Why the first does not.
        first: String,
    },
    /// Cells that too few rounds were simulated for.
    Noisy {
        /// How many.
        cells: usize,
        /// All cells.
        of: usize,
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
            Self::Hypothetical { .. } => "take tree figures as what such a kernel would give; chains run today",
            Self::OtherTables { .. } => "read it as that version's machine, or name tables of this one",
            Self::BoundOnly => "use tier `table` to predict",
            Self::Extrapolated { .. } => "read them as trends, or leave the largest out",
            Self::Unfit { .. } => "they are hatched in the map; lower the concurrency or the context",
            Self::Noisy { .. } => "raise `workload.rounds`",
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
            Self::Hypothetical { why } => write!(f, "trees on this engine are hypothetical ({why})"),
            Self::OtherTables { engine, ops } => {
                write!(f, "no table of {engine} itself is used; {}", ops.join("; "))
            }
            Self::BoundOnly => write!(f, "tier `bound` is a lower limit of every time and no prediction"),
            Self::Extrapolated { cells, of } => {
                write!(f, "{cells} of {of} cells have steps outside of what was measured")
            }
            Self::Unfit { cells, first } => {
                write!(f, "{cells} cells do not fit into the memory and were not run ({first})")
            }
            Self::Noisy { cells, of } => write!(f, "{cells} of {of} cells have a Monte-Carlo error above 1 %"),
            Self::OtherBuild { was, is } => write!(f, "kept cells come from another build ({was}, now {is})"),
        }?;
        write!(f, ": {}", self.advice())
    }
}

/// The run's warnings, then those of its cells: one line for each, with the cells that it holds for.
pub(super) fn lines(run: &[RunWarning], details: &[CellDetail]) -> Vec<String> {
    let cells: Vec<&Cell> = details.iter().map(|d| &d.cell).collect();
    let of_cells: Vec<&[String]> = details.iter().map(|d| d.warnings.as_slice()).collect();
    let said = |Remark { text, scope }| format!("{text} ({scope})");
    run.iter().map(ToString::to_string).chain(merged(&cells, &of_cells).into_iter().map(said)).collect()
}
