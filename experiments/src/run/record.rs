//! `trace record`: plain decoding with the drafter asked at every position.

use super::cpu::CpuSource;
use super::cuda::CudaSource;
use super::progress::Progress;
use super::source::{Capped, Source};
use super::{files, refused};
use crate::config::{Backend, Experiment};
use crate::trace::{self, Info, narrow, ranks_only};
use anyhow::Context as _;
use rayon::prelude::*;
use std::io::Write as _;
use std::path::PathBuf;
use treeline_core::Request;
use treeline_core::trace::Trace;
use treeline_sim::{Frontier, RecordSetup, Recorded, record};

/// How a trace is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordOptions {
    /// The file.
    pub out: PathBuf,
    /// Leave out token ids: what may be shared where text may not.
    pub ranks_only: bool,
    /// Ranks per row, at most the experiment's; `None` = as many.
    pub width: Option<u32>,
    /// The temperature; `None` = the experiment's only one.
    pub temperature: Option<f64>,
    /// What to expand of a conditional drafter.
    pub frontier: Frontier,
    /// No progress on stderr.
    pub quiet: bool,
}

/// Records a trace of the experiment's models on its workload. Requests that fail are left out and named on stderr.
///
/// # Errors
/// An experiment that itself replays, an unnamed choice between temperatures, models or prompts that cannot be read, a law
/// that leaves no trajectory, an output that is no trace's, the file system.
pub fn record_trace(experiment: &Experiment, options: &RecordOptions) -> anyhow::Result<Info> {
    let Some(live) = experiment.backend.live() else {
        anyhow::bail!("this experiment replays a trace: record with the backend that runs the models");
    };
    let temperature = match (options.temperature, live.sampling.temperature.as_slice()) {
        (Some(t), all) if all.contains(&t) => t,
        (Some(t), all) => anyhow::bail!("temperature {t} is not one of the experiment's: {all:?}"),
        (None, [only]) => *only,
        (None, all) => anyhow::bail!("a trace has one temperature: choose one of {all:?}"),
    };
    files::replaceable(&options.out).map_err(refused)?;
    let recorded = match &experiment.backend {
        Backend::Cuda(live, cuda) => {
            let source = CudaSource::load(experiment, live, cuda, 0).map_err(refused)?;
            record_with(&source, temperature, &options.frontier, options.quiet)?
        }
        _ => {
            let source = CpuSource::load(experiment, live).map_err(refused)?;
            record_with(&source, temperature, &options.frontier, options.quiet)?
        }
    };
    for (request, fault) in &recorded.faults {
        // A message that cannot be shown is no reason to stop.
        let _ = writeln!(std::io::stderr(), "request {request} is left out: {fault}");
    }
    let mut trace = recorded.trace;
    anyhow::ensure!(!trace.requests.is_empty(), "no request finished: there is nothing to record");
    if let Some(width) = options.width {
        trace = narrow(trace, width);
    }
    if options.ranks_only {
        trace = ranks_only(trace);
    }
    trace::write(&options.out, &trace)?;
    let named = || options.out.display().to_string();
    let bytes = std::fs::metadata(&options.out).with_context(named)?.len();
    Ok(Info::of(&trace, bytes))
}

/// Records all requests of a source, spread over engines that share its weights.
pub(super) fn record_with<S: Source>(
    source: &S,
    temperature: f64,
    frontier: &Frontier,
    quiet: bool,
) -> anyhow::Result<Recorded> {
    let requests = source.requests(temperature);
    let facts = source.facts();
    let tokens = requests.iter().map(|r| u64::from(r.max_new) - 1).sum();
    let progress = Progress::new(requests.len(), 0, tokens, quiet);
    let origin = facts.deployment.clone().unwrap_or_default();
    let one = |(index, request): (usize, &Request)| {
        let mut engine = Capped { inner: source.engine(1, 0)?, width: facts.width, depth: facts.depth };
        let law = source.law(temperature);
        let domains = [source.domain(index).to_owned()];
        let setup = RecordSetup {
            width: facts.width,
            frontier: *frontier,
            law: &law,
            concurrency: 1,
            domains: &domains,
            source: &origin,
        };
        let cell = progress.cell(u64::from(request.max_new) - 1);
        let recorded = record(&mut engine, std::slice::from_ref(request), &setup, &mut |t| cell.tokens(t));
        cell.ended(&format!("request {}", request.id));
        Ok(recorded?)
    };
    let parts: Vec<anyhow::Result<Recorded>> = match source.one_at_a_time() {
        true => requests.iter().enumerate().map(one).collect(),
        false => requests.par_iter().enumerate().with_max_len(1).map(one).collect(),
    };
    progress.finish();
    let mut whole: Option<Recorded> = None;
    for part in parts {
        let part = part?;
        match &mut whole {
            None => whole = Some(part),
            Some(all) => {
                let Trace { requests, .. } = part.trace;
                all.trace.requests.extend(requests);
                all.faults.extend(part.faults);
            }
        }
    }
    whole.context("the workload has no requests")
}
