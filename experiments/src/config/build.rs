//! From the file as written to an experiment: what belongs together is joined, what nobody reads is refused.

use super::cuda;
use super::diagnostic::{ConfigError, Doc, list};
use super::file::{self, BackendKind, File};
use super::live::{PREFILL_CHUNK, laws_fit, live};
use super::location::{Location, relative, tidy};
use super::policy;
use super::types::{Backend, Cost, Experiment, Record, Replay};
use super::{Overrides, priced, synthetic, text};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;
use treeline_core::cost::CurveError;
use treeline_core::{CostCurve, Limits};
use treeline_policies::Registry;

/// Resamples of the intervals unless the file says otherwise.
const BOOTSTRAP: u32 = 2000;
/// Levels of a block of 16, the largest usual one.
const USUAL_DEPTH: u32 = 15;
/// Ranks per row that traces usually keep.
const USUAL_WIDTH: u32 = 64;

/// Keys that every experiment has.
const REQUIRED: [&str; 6] = ["name", "seed", "record", "backend", "workload", "policy"];

/// Sections that a replay does not read.
const LIVE_ONLY: [&str; 9] = [
    "target",
    "drafter",
    "sampling",
    "cuda",
    "backend.context",
    "workload.max_new",
    "workload.ignore_eos",
    "workload.chat",
    "workload.prompts",
];

/// Builds the experiment that `doc` describes.
pub(crate) fn experiment(
    doc: &Doc<'_>,
    folder: &Path,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Experiment, ConfigError> {
    let (span, mut root) = (doc.table.span(), doc.table.get_ref().clone());
    let policies = root.remove("policy");
    let file = File::deserialize(toml::de::Deserializer::from(Spanned::new(span, root)))
        .map_err(|e| incomplete(doc, &e).unwrap_or_else(|| doc.explain(&e, &["policy"])))?;
    let policies = policy::read(doc, policies, registry)?;
    let folder = match &file.folder {
        Some(f) => tidy(&folder.join(&f.0)),
        None => folder.to_owned(),
    };

    let named = file.backend.kind;
    let kind = chosen(named, overrides);
    if kind != BackendKind::Sim && overrides.trace.is_some() {
        let message = "`--trace` names a trace, which only backend `sim` reads";
        return Err(doc.error(doc.value("backend.kind"), message, Some("add `--backend sim`".to_owned())));
    }
    let unread = |path: &str, why: &str| {
        let name = path.rsplit('.').next().unwrap_or(path);
        Err(doc.error(doc.key(path), format!("`{name}` is not read here"), Some(why.to_owned())))
    };
    let plain = named == BackendKind::Cpu || named == BackendKind::Cuda && !synthetic::named(&file);
    if plain && file.backend.trace.is_some() {
        return unread("backend.trace", "only backend `sim` reads it; `--backend sim --trace FILE` replays this file");
    }
    if named == BackendKind::Sim {
        if let Some(path) = LIVE_ONLY.iter().find(|path| doc.has(path)) {
            return unread(path, "backend `sim` takes it from the trace");
        }
        if file.backend.prefill_chunk.is_some() {
            return unread("backend.prefill_chunk", "only backends `cpu` and `cuda` read it");
        }
    }
    let is_priced = named == BackendKind::Sim && priced::named(&file);
    if !is_priced {
        let why = match named {
            BackendKind::Sim => "it needs a section `deployment`, whose steps are priced",
            _ => "only backend `sim` with a section `deployment` reads it",
        };
        priced::sections(doc, why)?;
    }
    let build = |kind| {
        Ok(match kind {
            BackendKind::Sim if is_priced => {
                let given = overrides.trace.is_some().then(|| trace(doc, &file, &folder, overrides)).transpose()?;
                Backend::Priced(Box::new(priced::priced(doc, &file, &folder, &policies, given)?))
            }
            BackendKind::Sim => Backend::Sim(Replay { trace: trace(doc, &file, &folder, overrides)? }),
            BackendKind::Cpu => Backend::Cpu(live(doc, &file, &folder, "cpu", PREFILL_CHUNK)?),
            BackendKind::Cuda if synthetic::named(&file) => {
                Backend::Synthetic(synthetic::synthetic(doc, &file, &folder, &policies)?)
            }
            BackendKind::Cuda => {
                let live = live(doc, &file, &folder, "cuda", cuda::PREFILL_CHUNK)?;
                cuda::fits(doc, &file, &live, &policies)?;
                Backend::Cuda(live, cuda::cuda(doc, &file)?)
            }
        })
    };
    // A file that names another backend is checked in full, whatever the command line makes of it; a replay's trace may be
    // what the command line brings.
    if named != kind && named != BackendKind::Sim {
        build(named)?;
    }
    let backend = build(kind)?;

    let concurrency: Vec<u32> = file.workload.concurrency.0.iter().map(|c| c.u32()).collect();
    let needs = policy::trial(doc, &policies, registry, &limits(&backend, &concurrency))?;
    let cost = file.cost.as_ref().map(|c| cost(doc, c)).transpose()?;
    match (&cost, needs.iter().position(|n| n.cost)) {
        (Some(_), None) => return unread("cost", "no policy of this file reads a step cost"),
        (None, Some(i)) if !overrides.without_cost && !is_priced => {
            let message = format!("policy `{}` needs a step cost", policies[i].kind);
            let hint = "add [cost] with a measured curve; `treeline calibrate FILE` prints one".to_owned();
            return Err(doc.error(doc.value(&format!("policy.{i}.kind")), message, Some(hint)));
        }
        _ => {}
    }
    if let Some(live) = backend.live() {
        laws_fit(doc, &policies, &needs, live)?;
    }
    Ok(Experiment {
        name: file.name.0,
        seed: file.seed.0,
        // The type of the key admits nothing else.
        record: text::record(&file.record.0).unwrap_or(Record::Summary),
        bootstrap: file.bootstrap.map_or(BOOTSTRAP, |b| b.u32()),
        baseline: file.baseline.unwrap_or(true),
        backend,
        concurrency,
        cost,
        policies,
        folder,
    })
}

/// Where several sections are still to be written, all of them at once.
fn incomplete(doc: &Doc<'_>, e: &toml::de::Error) -> Option<ConfigError> {
    let absent: Vec<&str> = REQUIRED.into_iter().filter(|key| !doc.has(key)).collect();
    let several = e.message().starts_with("missing field `") && absent.len() > 1;
    several.then(|| {
        let hint = "`experiments/quickstart.toml` of the checkout is a whole one to start from";
        doc.error(0..0, format!("missing keys {}", list(&absent)), Some(hint.to_owned()))
    })
}

/// Limits to try policies under before a checkpoint is opened: where only the checkpoint knows, what is usual.
fn limits(backend: &Backend, concurrency: &[u32]) -> Limits {
    let (depth, width) = match backend {
        Backend::Cpu(live) | Backend::Cuda(live, _) => (live.drafter.depth(), live.drafter.width()),
        Backend::Synthetic(synthetic) => (None, synthetic.width),
        Backend::Sim(_) | Backend::Priced(_) => (None, USUAL_WIDTH),
    };
    let concurrency = concurrency.iter().copied().max().unwrap_or(1);
    Limits { budget: 1, depth: depth.unwrap_or(USUAL_DEPTH), width, concurrency }
}

/// The backend that runs: the file's, unless the command line names another.
fn chosen(named: BackendKind, overrides: &Overrides) -> BackendKind {
    match overrides.backend.as_deref() {
        None => named,
        Some("cpu") => BackendKind::Cpu,
        Some("sim") => BackendKind::Sim,
        Some(_) => BackendKind::Cuda,
    }
}

fn trace(doc: &Doc<'_>, file: &File, folder: &Path, overrides: &Overrides) -> Result<Location, ConfigError> {
    if let Some(path) = &overrides.trace {
        // Relative to where the command was typed; written down relative to the file, as every other path is.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let written = relative(folder, &tidy(&path));
        return Ok(Location { written: written.to_string_lossy().into_owned(), path: tidy(&path) });
    }
    match &file.backend.trace {
        Some(t) => Ok(Location::new(&t.0, folder)),
        None => {
            let hint =
                "`treeline trace record FILE -o OUT` makes one; then `--trace OUT` or `trace = \"OUT\"`".to_owned();
            Err(doc.error(doc.value("backend.kind"), "backend `sim` replays a trace, and none is named", Some(hint)))
        }
    }
}

fn cost(doc: &Doc<'_>, c: &file::Cost) -> Result<Cost, ConfigError> {
    let rows = c.curve.rows.0.iter().map(|r| r.u32()).collect();
    let ms = c.curve.ms.iter().map(|m| m.0).collect();
    let curve = CostCurve::new(rows, ms).map_err(|e| {
        let at = match &e {
            CurveError::Order(i) => doc.value(&format!("cost.curve.rows.{i}")),
            CurveError::Value(i) => doc.value(&format!("cost.curve.ms.{i}")),
            CurveError::Flat | CurveError::Length { .. } => doc.value("cost.curve.ms"),
        };
        doc.error(at, e.to_string(), None)
    })?;
    Ok(Cost { curve, source: c.curve.source.0.clone() })
}

/// Checks that every file and folder of the experiment exists.
pub(crate) fn check_files(doc: &Doc<'_>, e: &Experiment, overrides: &Overrides) -> Result<(), ConfigError> {
    let missing = |at: String, what: &str, path: &PathBuf| {
        let message = format!("no such {what}: {}", path.display());
        Err(doc.error(
            doc.value(&at),
            message,
            Some("relative paths start from the experiment file's folder".to_owned()),
        ))
    };
    match &e.backend {
        Backend::Sim(replay) => {
            if !replay.trace.path.is_file() {
                if overrides.trace.is_some() {
                    return Err(ConfigError::Read { path: replay.trace.path.clone(), why: "no such trace".to_owned() });
                }
                return missing("backend.trace".to_owned(), "trace", &replay.trace.path);
            }
        }
        // Profiles and processes are checked with them.
        Backend::Priced(_) => {}
        Backend::Synthetic(synthetic) => {
            if !synthetic.trace.path.is_file() {
                return missing("backend.trace".to_owned(), "trace", &synthetic.trace.path);
            }
        }
        Backend::Cpu(live) | Backend::Cuda(live, _) => {
            if !live.target.path.is_dir() {
                return missing("target.checkpoint".to_owned(), "checkpoint folder", &live.target.path);
            }
            if let Some(c) = live.drafter.checkpoint().filter(|c| !c.path.is_dir()) {
                return missing("drafter.checkpoint".to_owned(), "checkpoint folder", &c.path);
            }
            for (i, p) in live.workload.prompts.iter().enumerate() {
                if !p.file.path.is_file() {
                    return missing(format!("workload.prompts.{i}.file"), "prompt file", &p.file.path);
                }
            }
        }
    }
    Ok(())
}
