//! The run itself: cells side by side, each written as it finishes, then the summary.

use super::cell::{Bench, Finished};
use super::manifest::{self, Manifest};
use super::observations::Observations;
use super::plan::{CellSpec, label, plan};
use super::progress::Progress;
use super::source::{Facts, Source};
use super::{Options, Outcome, RunWarning, files, refused, rounds, summary};
use crate::config::{Experiment, resolved_toml};
use crate::results::CellDetail;
use anyhow::Context as _;
use rayon::prelude::*;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;
use treeline_policies::Registry;

/// What became of one cell.
struct Done {
    result: Result<CellDetail, String>,
    kept: bool,
    wall_s: Option<f64>,
}

/// Runs all cells over `source`.
pub(super) fn execute<S: Source>(
    source: &S,
    experiment: &Experiment,
    registry: &Registry,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let all = |_: usize, _: &CellSpec| true;
    execute_all(std::slice::from_ref(source), source.facts(), experiment, registry, options, &all)
}

/// Runs the cells of several sources, one after the other in the summary, all at once in time. `facts` is what the manifest
/// says of the run; `wanted` whether a cell of the source with this index is run at all.
pub(super) fn execute_all<S: Source>(
    sources: &[S],
    facts: &Facts,
    experiment: &Experiment,
    registry: &Registry,
    options: &Options,
    wanted: &dyn Fn(usize, &CellSpec) -> bool,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let mut cells: Vec<(usize, CellSpec)> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let of = plan(source, experiment, registry).map_err(refused)?;
        let several = (sources.len() > 1).then(|| source.facts());
        let named = |c: CellSpec| {
            let label = label(&c.kind, c.budget, c.temperature, c.concurrency, several);
            (index, CellSpec { label, ..c })
        };
        cells.extend(of.into_iter().filter(|c| wanted(index, c)).map(named));
    }
    let dir = files::run_folder(options, &experiment.name).map_err(refused)?;
    // Held to the end: two runs in one folder would write over each other.
    let _lock = files::lock(&dir).map_err(refused)?;
    let mut warnings = facts.warnings.clone();
    let manifest = Manifest::new(facts, experiment, options);
    warnings.extend(manifest.differs(&dir).filter(|_| options.resume));
    let absolute = dir.canonicalize().with_context(|| dir.display().to_string())?;
    write(&dir.join("experiment.resolved.toml"), resolved_toml(experiment, &absolute).as_bytes())?;
    // Written now as well, so that a run that is killed says what it was.
    write_json(&dir.join("manifest.json"), &manifest.unfinished())?;

    let kept: Vec<Option<CellDetail>> =
        cells.iter().map(|(_, c)| options.resume.then(|| load_cell(&dir, c)).flatten()).collect();
    let left = kept.iter().filter(|k| k.is_none()).count();
    let serial = sources.iter().any(Source::one_at_a_time);
    let bench = |source| Bench {
        source,
        experiment,
        registry,
        side_by_side: if serial { 1 } else { left.min(rayon::current_num_threads()) },
        playback: options.replay_observations.as_deref(),
    };
    let benches: Vec<Bench<'_, S>> = sources.iter().map(bench).collect();
    if options.resume {
        tell_of_strangers(&dir, &cells);
    }
    if options.replay_observations.is_some() && !reads_time(&benches, &cells)? {
        anyhow::bail!("no policy of this experiment reads measured time: there are no observations to replay");
    }
    let tokens = |(source, c): &(usize, CellSpec)| {
        sources[*source].requests(c.temperature).iter().map(|r| u64::from(r.max_new) - 1).sum::<u64>()
    };
    let work: Vec<u64> = cells.iter().zip(&kept).map(|(c, k)| if k.is_some() { 0 } else { tokens(c) }).collect();
    let progress = Progress::new(cells.len(), cells.len() - left, work.iter().sum(), options.quiet);

    let run_one = |((source, spec), kept): (&(usize, CellSpec), Option<CellDetail>), work: u64| {
        if let Some(detail) = kept {
            return Done { result: Ok(detail), kept: true, wall_s: None };
        }
        let cell = progress.cell(work);
        let started = Instant::now();
        // A policy that panics ends its cell; the others know nothing of it.
        let run = AssertUnwindSafe(|| {
            let finished = benches[*source].run(spec, &|tokens| cell.tokens(tokens))?;
            store_cell(&dir, spec, &finished)?;
            anyhow::Ok(finished.detail)
        });
        let result = match catch_unwind(run) {
            Ok(result) => result.map_err(|e| format!("{e:#}")),
            Err(panic) => Err(format!("panicked: {}", message(&*panic))),
        };
        cell.done(&spec.label, result.as_ref());
        Done { result, kept: false, wall_s: Some(started.elapsed().as_secs_f64()) }
    };
    let jobs: Vec<_> = cells.iter().zip(kept).zip(work).collect();
    let done: Vec<Done> = match serial {
        true => jobs.into_iter().map(|(job, work)| run_one(job, work)).collect(),
        false => jobs.into_par_iter().with_max_len(1).map(|(job, work)| run_one(job, work)).collect(),
    };
    progress.finish();

    let walls: Vec<(String, bool, Option<f64>)> =
        cells.iter().zip(&done).map(|((_, c), d)| (c.key.clone(), d.kept, d.wall_s)).collect();
    let (mut details, mut failed) = (Vec::new(), Vec::new());
    for ((_, spec), done) in cells.iter().zip(done) {
        match done.result {
            Ok(detail) => details.push(detail),
            Err(why) => failed.push((spec.label.clone(), why)),
        }
    }
    if !experiment.baseline {
        warnings.push(RunWarning::NoBaseline);
    }
    if !failed.is_empty() {
        warnings.push(RunWarning::Failed { cells: failed.len() });
    }
    summary::add_speedups(&mut details);
    for detail in &details {
        write_json(&cell_path(&dir, &detail.key), detail)?;
    }
    let parts: Vec<PathBuf> = details.iter().map(|d| part_path(&dir, &d.key)).collect();
    rounds::join(&dir.join("rounds.parquet"), &parts)?;
    let summary = summary::summary(&experiment.name, &details, &warnings);
    write_json(&dir.join("summary.json"), &summary)?;
    write_json(&dir.join("manifest.json"), &manifest.finished(begun.elapsed().as_secs_f64(), &walls, &failed))?;
    Ok(Outcome { dir, summary, details, failed, priced: None })
}

fn reads_time<S: Source>(benches: &[Bench<'_, S>], cells: &[(usize, CellSpec)]) -> anyhow::Result<bool> {
    for (source, cell) in cells {
        let bench = &benches[*source];
        let facts = bench.source.facts();
        let limits = cell.limits(facts.width, facts.depth);
        if cell.policy(bench.registry, &limits)?.needs(&limits).time {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Says that a resumed folder holds cells which are none of this experiment's: it was changed meanwhile, or is another.
fn tell_of_strangers(dir: &Path, cells: &[(usize, CellSpec)]) {
    let entries = std::fs::read_dir(dir.join("cells")).into_iter().flatten().flatten();
    let stranger = |e: &std::fs::DirEntry| {
        let (path, name) = (e.path(), e.file_name());
        let key = name.to_str().and_then(|n| n.strip_suffix(".json"));
        path.is_file() && key.is_some_and(|k| !k.contains(".obs") && cells.iter().all(|(_, c)| c.key != k))
    };
    let count = entries.filter(stranger).count();
    if count > 0 {
        // A message that cannot be shown is no reason to stop.
        let _ = writeln!(
            std::io::stderr(),
            "{count} cells in {} are of other settings than this experiment's: they stay there and out of the summary",
            dir.display()
        );
    }
}

fn cell_path(dir: &Path, key: &str) -> PathBuf {
    dir.join("cells").join(format!("{key}.json"))
}

fn part_path(dir: &Path, key: &str) -> PathBuf {
    dir.join("cells").join(format!("{key}.parquet"))
}

/// A cell that an earlier run finished: whole files, and the key that says it is the same cell.
fn load_cell(dir: &Path, spec: &CellSpec) -> Option<CellDetail> {
    let detail: CellDetail = serde_json::from_slice(&std::fs::read(cell_path(dir, &spec.key)).ok()?).ok()?;
    (detail.key == spec.key && rounds::readable(&part_path(dir, &spec.key))).then_some(detail)
}

/// The detail comes last: it is what makes a cell count as finished.
fn store_cell(dir: &Path, spec: &CellSpec, finished: &Finished) -> anyhow::Result<()> {
    rounds::write_part(&part_path(dir, &spec.key), &finished.rows)?;
    if let Some(observations) = &finished.observations {
        write_json(&Observations::path(dir, &spec.key), observations)?;
    }
    write_json(&cell_path(dir, &spec.key), &finished.detail)
}

pub(super) fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value).with_context(|| path.display().to_string())?;
    text.push(b'\n');
    write(path, &text)
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    files::write_atomic(path, bytes).with_context(|| path.display().to_string())
}

/// What a panic said.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// The time now, as a folder's name carries it.
pub(super) fn stamp() -> String {
    manifest::utc(std::time::SystemTime::now()).1
}
