//! From the file as written to an experiment: what belongs together is joined, what nobody reads is refused.

use super::diagnostic::{ConfigError, Doc};
use super::file::{self, BackendKind, ChatMode, DrafterKind, File, LawName};
use super::location::{Location, relative, tidy};
use super::policy;
use super::types::{
    Backend, Chat, Cost, Drafter, Experiment, LawKind, Live, PolicySpec, PromptFile, Record, Replay, Sampling, Workload,
};
use super::{Overrides, value};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;
use treeline_core::cost::CurveError;
use treeline_core::{CostCurve, Draw, Limits, Needs};
use treeline_policies::Registry;

/// Resamples of the intervals unless the file says otherwise.
const BOOTSTRAP: u32 = 2000;
/// Prompt tokens per forward unless the file says otherwise.
const PREFILL_CHUNK: u32 = 64;
/// Levels of a block of 16, the largest usual one.
const USUAL_DEPTH: u32 = 15;
/// Ranks per row that traces usually keep.
const USUAL_WIDTH: u32 = 64;

/// Sections that a replay does not read.
const LIVE_ONLY: [&str; 8] = [
    "target",
    "drafter",
    "sampling",
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
        .map_err(|e| doc.explain(&e, &["policy"]))?;
    let policies = policy::read(doc, policies, registry)?;
    let folder = match &file.folder {
        Some(f) => tidy(&folder.join(&f.0)),
        None => folder.to_owned(),
    };

    let named = file.backend.kind;
    let kind = chosen(doc, named, overrides)?;
    let unread = |path: &str, why: &str| {
        let name = path.rsplit('.').next().unwrap_or(path);
        Err(doc.error(doc.key(path), format!("`{name}` is not read here"), Some(why.to_owned())))
    };
    if named == BackendKind::Cpu && file.backend.trace.is_some() {
        return unread("backend.trace", "only backend `sim` reads it; `--backend sim --trace FILE` replays this file");
    }
    if named == BackendKind::Sim {
        if let Some(path) = LIVE_ONLY.iter().find(|path| doc.has(path)) {
            return unread(path, "backend `sim` takes it from the trace");
        }
        if file.backend.prefill_chunk.is_some() {
            return unread("backend.prefill_chunk", "only backend `cpu` reads it");
        }
    }
    // A file that names the other backend is checked in full, whatever the command line makes of it.
    let live =
        (named == BackendKind::Cpu || kind == BackendKind::Cpu).then(|| live(doc, &file, &folder)).transpose()?;
    let backend = match (kind, live) {
        (BackendKind::Sim, _) => Backend::Sim(Replay { trace: trace(doc, &file, &folder, overrides)? }),
        (_, Some(live)) => Backend::Cpu(live),
        // `chosen` refuses cuda and `live` is there for cpu.
        (_, None) => return Err(doc.error(doc.value("backend.kind"), "this backend cannot run", None)),
    };

    let concurrency: Vec<u32> = file.workload.concurrency.0.iter().map(|c| c.u32()).collect();
    let needs = policy::trial(doc, &policies, registry, &limits(&backend, &concurrency))?;
    let cost = file.cost.as_ref().map(|c| cost(doc, c)).transpose()?;
    match (&cost, needs.iter().position(|n| n.cost)) {
        (Some(_), None) => return unread("cost", "no policy of this file reads a step cost"),
        (None, Some(i)) => {
            let message = format!("policy `{}` needs a step cost", policies[i].kind);
            let hint = "add [cost] with a measured curve; `treeline calibrate FILE` prints one".to_owned();
            return Err(doc.error(doc.value(&format!("policy.{i}.kind")), message, Some(hint)));
        }
        _ => {}
    }
    if let Backend::Cpu(live) = &backend {
        laws_fit(doc, &policies, &needs, live)?;
    }
    Ok(Experiment {
        name: file.name.0,
        seed: file.seed.0,
        // The type of the key admits nothing else.
        record: value::record(&file.record.0).unwrap_or(Record::Summary),
        bootstrap: file.bootstrap.map_or(BOOTSTRAP, |b| b.u32()),
        baseline: file.baseline.unwrap_or(true),
        backend,
        concurrency,
        cost,
        policies,
        folder,
    })
}

/// Limits to try policies under before a checkpoint is opened: where only the checkpoint knows, what is usual.
fn limits(backend: &Backend, concurrency: &[u32]) -> Limits {
    let (depth, width) = match backend {
        Backend::Cpu(live) => (live.drafter.depth(), live.drafter.width()),
        Backend::Sim(_) => (None, USUAL_WIDTH),
    };
    let concurrency = concurrency.iter().copied().max().unwrap_or(1);
    Limits { budget: 1, depth: depth.unwrap_or(USUAL_DEPTH), width, concurrency }
}

/// Refuses a law of drawn candidates beside a policy or drafter that only ranks them.
fn laws_fit(doc: &Doc<'_>, policies: &[PolicySpec], needs: &[Needs], live: &Live) -> Result<(), ConfigError> {
    let law = live.sampling.law;
    if law.law(0).draw() == Draw::Ranked {
        return Ok(());
    }
    let name = law.name();
    if matches!(live.drafter, Drafter::Ngram { .. }) {
        let message = format!("law `{name}` verifies drawn candidates, and an n-gram drafter has nothing to draw from");
        return Err(doc.error(doc.value("sampling.law"), message, Some("use law `sample-match`".to_owned())));
    }
    if let Some(i) = needs.iter().position(|n| !n.draws) {
        let message = format!(
            "policy `{}` builds trees of ranked candidates; law `{name}` verifies drawn ones",
            policies[i].kind
        );
        let hint = "use law `sample-match`, or only policies that accept draws (`treeline policies` says which)";
        return Err(doc.error(doc.value(&format!("policy.{i}.kind")), message, Some(hint.to_owned())));
    }
    Ok(())
}

/// The backend that runs: the file's, unless the command line names another.
fn chosen(doc: &Doc<'_>, named: BackendKind, overrides: &Overrides) -> Result<BackendKind, ConfigError> {
    let kind = match overrides.backend.as_deref() {
        None => named,
        Some("cpu") => BackendKind::Cpu,
        Some("sim") => BackendKind::Sim,
        Some(_) => BackendKind::Cuda,
    };
    if kind == BackendKind::Cuda {
        let hint = "use `cpu`; `treeline doctor` says what this machine can run".to_owned();
        return Err(doc.error(doc.value("backend.kind"), "this build has no CUDA engine", Some(hint)));
    }
    Ok(kind)
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

fn live(doc: &Doc<'_>, file: &File, folder: &Path) -> Result<Live, ConfigError> {
    let missing = |section: &str, key: &str| {
        let message = format!("missing key `{key}`, which backend `cpu` needs");
        doc.error(doc.key(section), message, None)
    };
    let target = file.target.as_ref().ok_or_else(|| missing("backend", "target"))?;
    let drafter = file.drafter.as_ref().ok_or_else(|| missing("backend", "drafter"))?;
    let sampling = file.sampling.as_ref().ok_or_else(|| missing("backend", "sampling"))?;
    let w = &file.workload;
    let max_new = w.max_new.ok_or_else(|| missing("workload", "max_new"))?.u32();
    let ignore_eos = w.ignore_eos.ok_or_else(|| missing("workload", "ignore_eos"))?;
    let chat = w.chat.ok_or_else(|| missing("workload", "chat"))?;
    let prompts = w.prompts.as_ref().ok_or_else(|| missing("workload", "prompts"))?;
    let context = file.backend.context.ok_or_else(|| missing("backend", "context"))?.u32();
    if max_new >= context {
        let message = format!("{max_new} new tokens do not fit {context} positions beside a prompt");
        return Err(doc.error(doc.value("workload.max_new"), message, Some("raise `backend.context`".to_owned())));
    }
    let mut files = Vec::new();
    for (i, p) in prompts.0.iter().enumerate() {
        let file = Location::new(&p.file.0, folder);
        // The same file with another `take` would run its first prompts twice.
        if files.iter().any(|f: &PromptFile| tidy(&f.file.path) == tidy(&file.path)) {
            let at = doc.value(&format!("workload.prompts.{i}.file"));
            return Err(doc.error(at, "this prompt file is listed twice", None));
        }
        files.push(PromptFile { file, take: p.take.map(|t| t.u32()) });
    }
    Ok(Live {
        target: Location::new(&target.checkpoint.0, folder),
        drafter: drafter_of(doc, drafter, folder)?,
        context,
        prefill_chunk: file.backend.prefill_chunk.map_or(PREFILL_CHUNK, |c| c.u32()),
        workload: Workload {
            max_new,
            ignore_eos,
            chat: match chat {
                ChatMode::Off => Chat::Off,
                ChatMode::Plain => Chat::Plain,
                ChatMode::Thinking => Chat::Thinking,
            },
            prompts: files,
        },
        sampling: sampling_of(doc, sampling)?,
    })
}

fn drafter_of(doc: &Doc<'_>, d: &file::Drafter, folder: &Path) -> Result<Drafter, ConfigError> {
    let name = match d.kind {
        DrafterKind::Dflash => "dflash",
        DrafterKind::Autoregressive => "autoregressive",
        DrafterKind::Ngram => "ngram",
    };
    let missing = |key: &str| doc.error(doc.key("drafter"), format!("drafter `{name}` needs `{key}`"), None);
    let unread = |key: &str| {
        let message = format!("`{key}` is not read by drafter `{name}`");
        Err(doc.error(doc.key(&format!("drafter.{key}")), message, None))
    };
    let ngram = d.kind == DrafterKind::Ngram;
    for (key, present) in [
        ("checkpoint", ngram && d.checkpoint.is_some()),
        ("order", !ngram && d.order.is_some()),
        ("min_order", !ngram && d.min_order.is_some()),
    ] {
        if present {
            return unread(key);
        }
    }
    let width = d.width.u32();
    let depth = d.depth.map(|x| x.u32());
    let checkpoint = || d.checkpoint.as_ref().map(|c| Location::new(&c.0, folder)).ok_or_else(|| missing("checkpoint"));
    Ok(match d.kind {
        DrafterKind::Dflash => Drafter::Dflash { checkpoint: checkpoint()?, width, depth },
        DrafterKind::Autoregressive => {
            Drafter::Autoregressive { checkpoint: checkpoint()?, width, depth: depth.ok_or_else(|| missing("depth"))? }
        }
        DrafterKind::Ngram => {
            let order = d.order.ok_or_else(|| missing("order"))?.u32();
            let min_order = d.min_order.map_or(1, |m| m.u32());
            if min_order > order {
                let message = format!("the shortest suffix, {min_order}, is longer than the longest, {order}");
                return Err(doc.error(doc.value("drafter.min_order"), message, None));
            }
            Drafter::Ngram { width, depth: depth.ok_or_else(|| missing("depth"))?, order, min_order }
        }
    })
}

fn sampling_of(doc: &Doc<'_>, s: &file::Sampling) -> Result<Sampling, ConfigError> {
    let temperature: Vec<f64> = s.temperature.0.iter().map(|t| t.0).collect();
    let law = match s.law {
        LawName::Greedy => LawKind::Greedy,
        LawName::SampleMatch => LawKind::SampleMatch,
        LawName::Traversal => LawKind::Traversal,
        LawName::Residual => {
            let needs = || doc.error(doc.key("sampling"), "law `residual` needs `replace`", None);
            LawKind::Residual { replace: s.replace.ok_or_else(needs)? }
        }
    };
    if s.law != LawName::Residual && s.replace.is_some() {
        let message = format!("`replace` is not read by law `{}`", law.name());
        return Err(doc.error(doc.key("sampling.replace"), message, Some("only law `residual` reads it".to_owned())));
    }
    if law == LawKind::Greedy {
        let hint = "use law `sample-match`, which is argmax at 0";
        if let Some(i) = temperature.iter().position(|t| *t != 0.0) {
            let at = doc.value(&format!("sampling.temperature.{i}"));
            let message = format!("law `greedy` takes the argmax; temperature {} would not be read", temperature[i]);
            return Err(doc.error(at, message, Some(hint.to_owned())));
        }
        for (key, present) in [("top_k", s.top_k.is_some()), ("top_p", s.top_p.is_some())] {
            if present {
                let message = format!("`{key}` is not read by law `greedy`");
                return Err(doc.error(doc.key(&format!("sampling.{key}")), message, Some(hint.to_owned())));
            }
        }
    }
    Ok(Sampling {
        law,
        temperature,
        top_k: s.top_k.map_or(0, |k| k.u32()),
        top_p: s.top_p.as_ref().map_or(1.0, |p| p.0),
    })
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
        Backend::Cpu(live) => {
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
