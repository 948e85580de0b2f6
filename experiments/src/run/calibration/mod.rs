//! What rounds cost on this machine, as a calibration file: measured steps, the ops fitted to some of them, and the error on
//! the others.

mod fit;
mod points;

use super::cpu::CpuSource;
use super::cuda::CudaSource;
use super::source::Source;
use super::synthetic::SyntheticSource;
use super::{machine, refused};
use crate::config::{Backend, Experiment};
use serde_json::Value;
use treeline_sim::cost::{Calibration, HeldOut, Manifest};

/// The fewest measured steps that can be fitted and checked.
const FEWEST: usize = 6;

/// Measures rounds of best-first trees on the experiment's models, at each of its concurrencies and at budgets up to its
/// largest, and fits the calibration of tier `calibrated` to two thirds of them.
///
/// # Errors
/// An experiment without models or clock, a conditional drafter, models that cannot be read, too few steps to fit.
pub fn calibration(experiment: &Experiment, command: &str, quiet: bool) -> anyhow::Result<Calibration> {
    match &experiment.backend {
        Backend::Cpu(live) => {
            let source = CpuSource::load(experiment, live).map_err(refused)?;
            of(&source, experiment, "eager", command, quiet)
        }
        Backend::Cuda(_, cuda) if cuda.emulated => no_clock(),
        Backend::Cuda(live, cuda) => {
            let source = CudaSource::load(experiment, live, cuda, 0).map_err(refused)?;
            of(&source, experiment, execution(cuda.graphs), command, quiet)
        }
        Backend::Synthetic(what) if what.cuda.emulated => no_clock(),
        Backend::Synthetic(what) => {
            let source = SyntheticSource::load(experiment, what).map_err(refused)?;
            of(&source, experiment, execution(what.cuda.graphs), command, quiet)
        }
        _ => anyhow::bail!("this experiment runs no models: a replay has no clock"),
    }
}

fn no_clock() -> anyhow::Result<Calibration> {
    anyhow::bail!("kernels on the processor say nothing of a GPU's time: drop `emulated`, on a machine with a GPU")
}

fn execution(graphs: bool) -> &'static str {
    if graphs { "graph" } else { "eager" }
}

fn of<S: Source>(
    source: &S,
    experiment: &Experiment,
    execution: &str,
    command: &str,
    quiet: bool,
) -> anyhow::Result<Calibration> {
    let steps = points::measure(source, experiment, quiet)?;
    anyhow::ensure!(
        steps.len() >= FEWEST,
        "{} kinds of steps were timed often enough, a calibration needs {FEWEST}: give more budgets or concurrencies, or longer responses",
        steps.len()
    );
    let facts = source.facts();
    let fitted = fit::fit(&steps);
    let text = |key: &str| match &facts.manifest[key] {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        other => Some(other.to_string()),
    };
    let (gpu, driver) = facts.gpu.clone().unwrap_or_else(|| ("none".to_owned(), "none".to_owned()));
    let mut notes = vec![
        "clocks as the machine sets them; rounds of best-first trees, the first two of a response left out".to_owned(),
    ];
    notes.extend(facts.notes.iter().cloned());
    Ok(Calibration {
        schema_version: 1,
        manifest: Manifest {
            machine: machine::line(),
            gpu,
            ranks: 1,
            of_ranks: (facts.ranks > 1).then_some(facts.ranks),
            driver,
            engine: format!("treeline {}, backend {}", env!("CARGO_PKG_VERSION"), facts.backend),
            engine_commit: super::manifest::commit(&experiment.folder).unwrap_or_else(|| "unknown".to_owned()),
            model: facts.deployment.clone().unwrap_or_else(|| "unknown".to_owned()),
            drafter: text("drafter"),
            execution: execution.to_owned(),
            command: command.to_owned(),
            notes,
        },
        domain: fitted.domain,
        ops: fitted.ops,
        points: fitted.points,
        // Filled in when the file is written.
        held_out: HeldOut { points: 0, median: 0.0, p90: 0.0, bias: 0.0 },
        digest: String::new(),
    })
}
