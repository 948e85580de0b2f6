//! What a reader must know before believing a run, with advice.

use crate::decide::{FEW, LEAST};
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
    /// Cells whose intervals stand on few requests.
    FewRequests {
        /// Requests of the cell that has fewest.
        fewest: u32,
        /// How many cells.
        cells: usize,
        /// All cells.
        of: usize,
    },
    /// The calibration does not say that it is of this model.
    OtherCalibration {
        /// What it says.
        of: String,
        /// The model that is priced.
        model: String,
    },
    /// Replayed cells whose requests ran out before the load was steady.
    RunOut {
        /// How many.
        cells: usize,
        /// All cells.
        of: usize,
        /// Requests that decoded together in the emptiest, on average, of its cap.
        least: (u32, u32),
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
            Self::FewRequests { .. } => {
                "read every ± as at least that wide; raise `workload.requests`, or record a longer trace"
            }
            Self::OtherCalibration { .. } => "name the model that was measured, or calibrate this one",
            Self::RunOut { .. } => {
                "lower the cap, or have some eight times as many requests (`workload.requests`, or a longer trace)"
            }
            Self::Noisy { .. } => "raise `workload.rounds`",
            Self::OtherBuild { .. } => "run into a new folder to have all cells from one build",
        }
    }
}

impl fmt::Display for RunWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContextShort { prompts, context } => {
                let leave = if *prompts == 1 { "leaves" } else { "leave" };
                let n = counted(*prompts, "prompt");
                write!(f, "{n} {leave} no room for a whole response in {context} positions")
            }
            Self::NoBaseline => write!(f, "there is no plain decoding to compare with"),
            Self::Failed { cells } => {
                let are = if *cells == 1 { "is" } else { "are" };
                write!(f, "{} failed and {are} in no figure", counted(*cells, "cell"))
            }
            Self::Hypothetical { why } => write!(f, "trees on this engine are hypothetical ({why})"),
            Self::OtherTables { engine, ops } => {
                write!(f, "no table of {engine} itself is used; {}", ops.join("; "))
            }
            Self::BoundOnly => write!(f, "tier `bound` is a lower limit of every time and no prediction"),
            Self::Extrapolated { cells, of } => {
                let have = if *cells == 1 { "has" } else { "have" };
                write!(f, "{cells} of {of} cells {have} steps outside of what was measured")
            }
            Self::Unfit { cells, first } => {
                let (n, do_not) = (counted(*cells, "cell"), if *cells == 1 { "does not" } else { "do not" });
                let were = if *cells == 1 { "was" } else { "were" };
                write!(f, "{n} {do_not} fit into the memory and {were} not run ({first})")
            }
            Self::FewRequests { fewest, cells, of } => {
                let stand = if *cells == 1 { "stands" } else { "stand" };
                write!(
                    f,
                    "{cells} of {of} cells {stand} on fewer than {FEW} requests (the fewest: {fewest}), over which a "
                )?;
                write!(f, "bootstrap is too narrow; over fewer than {LEAST} there is no interval")
            }
            Self::OtherCalibration { of, model } => {
                write!(f, "the calibration says that it measured `{of}`, and prices {model}")
            }
            Self::RunOut { cells, of, least: (mean, cap) } => {
                let have = if *cells == 1 { "has" } else { "have" };
                write!(
                    f,
                    "{cells} of {of} cells {have} slots that stay empty for want of requests (the emptiest: {mean} of {cap} \
                     decode together on average), which hides what trees cost at the cap"
                )
            }
            Self::Noisy { cells, of } => {
                let have = if *cells == 1 { "has" } else { "have" };
                write!(f, "{cells} of {of} cells {have} a Monte-Carlo error above 1 %")
            }
            Self::OtherBuild { was, is } => write!(f, "kept cells come from another build ({was}, now {is})"),
        }?;
        write!(f, ": {}", self.advice())
    }
}

/// `1 cell`, `3 cells`.
fn counted(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// The run's warnings, then those of its cells: one line for each, with the cells that it holds for.
pub(super) fn lines(run: &[RunWarning], details: &[CellDetail]) -> Vec<String> {
    let cells: Vec<&Cell> = details.iter().map(|d| &d.cell).collect();
    let of_cells: Vec<&[String]> = details.iter().map(|d| d.warnings.as_slice()).collect();
    let said = |Remark { text, scope }| format!("{text} ({scope})");
    run.iter().map(ToString::to_string).chain(merged(&cells, &of_cells).into_iter().map(said)).collect()
}
