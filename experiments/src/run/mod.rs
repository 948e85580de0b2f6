//! Runs an experiment: cells, their figures, and the folder that they are left in.
//!
//! A *cell* is one policy at one budget, temperature and concurrency; plain decoding is one more per temperature and
//! concurrency, the baseline of `speedup`. Cells run side by side over shared weights, each with an engine of its own; on a
//! GPU one after another. What a cell measured is on disk before the next one starts, so a run that is killed goes on where
//! it stopped.

mod calibrate;
mod calibration;
mod cell;
mod cpu;
mod cuda;
mod energy;
mod execute;
mod figures;
mod files;
mod gauge;
mod machine;
mod manifest;
mod models;
mod observations;
mod plan;
mod priced;
mod progress;
mod record;
mod rounds;
mod sim;
mod source;
mod summary;
mod synthetic;
mod warnings;
mod watched;
mod workload;

pub use calibrate::{ROWS, calibrate};
pub use calibration::calibration;
pub use record::{RecordOptions, record_trace};
pub use warnings::RunWarning;

pub(crate) use files::write_atomic;
pub(crate) use plan::sha256;
pub(crate) use priced::{GroupFile, PRICED_FILE};

use crate::config::{Backend, Experiment};
use crate::results::{CellDetail, Priced, Summary};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use treeline_policies::Registry;

/// A run, recording or measurement that did not begin: something that the experiment or the caller names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Refused(anyhow::Error);

/// Marks the errors of what comes before the first round.
fn refused(e: anyhow::Error) -> anyhow::Error {
    Refused(e).into()
}

/// How a run is carried out; nothing here changes a figure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The run folder; `None` = `runs/<name>-<time>` below the working folder.
    pub out: Option<PathBuf>,
    /// Whether to keep the cells that the folder holds already. Without it an existing run is not touched.
    pub resume: bool,
    /// No progress on stderr.
    pub quiet: bool,
    /// Told as soon as the run has its folder: what an interrupted run goes on in.
    pub folder: Arc<OnceLock<PathBuf>>,
    /// A run folder whose logged observations stand in for the clock, for policies that read measured time.
    pub replay_observations: Option<PathBuf>,
}

/// What a run leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The run folder.
    pub dir: PathBuf,
    /// `summary.json`.
    pub summary: Summary,
    /// `cells/*.json`, in the order of the summary's cells.
    pub details: Vec<CellDetail>,
    /// Cells that failed: label and why. The others finished.
    pub failed: Vec<(String, String)>,
    /// `priced.json`, where a cost model priced the run.
    pub priced: Option<Priced>,
}

/// Runs every cell of `experiment` and writes the run folder.
///
/// # Errors
/// Models, prompts or a trace that cannot be read; a policy that backend and law cannot serve (before anything runs); a
/// folder that holds another run; the file system. What went wrong before the first round is a [`Refused`]. A cell that
/// fails is part of the [`Outcome`].
pub fn run(experiment: &Experiment, registry: &Registry, options: &Options) -> anyhow::Result<Outcome> {
    match &experiment.backend {
        Backend::Cpu(live) => {
            let source = cpu::CpuSource::load(experiment, live).map_err(refused)?;
            execute::execute(&source, experiment, registry, options)
        }
        Backend::Cuda(live, device) => {
            let source = cuda::CudaSource::load(experiment, live, device, 0).map_err(refused)?;
            execute::execute(&source, experiment, registry, options)
        }
        Backend::Synthetic(what) => {
            let source = synthetic::SyntheticSource::load(experiment, what).map_err(refused)?;
            execute::execute(&source, experiment, registry, options)
        }
        Backend::Sim(replay) => {
            let source = sim::SimSource::load(replay).map_err(refused)?;
            execute::execute(&source, experiment, registry, options)
        }
        Backend::Priced(what) => priced::run(experiment, what, registry, options),
    }
}

#[cfg(test)]
mod tests;
