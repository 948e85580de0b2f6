//! `treeline run FILE`: load, run, write the report, print the answer.

use super::out::Out;
use super::{RunArgs, Usage};
use crate::config::{Backend, Experiment, Overrides};
use crate::{report, run};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treeline_checkpoint::{Ffn, TargetConfig};
use treeline_policies::Registry;

/// Where runs are left unless the command line says otherwise.
const RUNS: &str = "runs";

/// Runs an experiment.
pub(super) fn run(args: &RunArgs, registry: &Registry, out: &Out) -> anyhow::Result<ExitCode> {
    let overrides = Overrides {
        backend: args.backend.map(|b| b.kind().to_owned()),
        trace: args.trace.clone(),
        ..Overrides::default()
    };
    let experiment = super::load(&args.file, registry, &overrides)?;
    let (folder, resume) = folder(args, &experiment)?;
    let options = run::Options {
        out: folder,
        resume,
        quiet: args.quiet,
        replay_observations: args.replay_observations.clone(),
        ..run::Options::default()
    };
    super::interrupt::hint(&args.file, &options.folder);
    let outcome = run::run(&experiment, registry, &options)?;
    write_report(&experiment, &outcome)?;
    out.note(&format!("run folder: {}", outcome.dir.display()));
    out.note(&format!("report: {}", outcome.dir.join("report.html").display()));
    if args.json {
        out.json(&outcome.summary)?;
    } else {
        let answer = report::answer(&outcome.summary, &outcome.details, outcome.priced.as_ref());
        let table = report::table(&outcome.summary, &outcome.details, outcome.priced.as_ref(), out.colour, out.width);
        out.data(&format!("{answer}\n\n{table}"))?;
        let split = outcome.priced.as_ref().map_or(&[][..], |p| p.split.as_slice());
        if !split.is_empty() {
            out.data(&format!("\n{}", crate::split::markdown(split)))?;
        }
    }
    for warning in &outcome.summary.warnings {
        out.note(&format!("warning: {warning}"));
    }
    for (cell, why) in &outcome.failed {
        out.note(&format!("failed: {cell}: {why}"));
    }
    Ok(if outcome.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes `report.html` beside the results that it shows.
fn write_report(experiment: &Experiment, outcome: &run::Outcome) -> anyhow::Result<()> {
    let read = |name: &str| {
        let path = outcome.dir.join(name);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let context = report::Context {
        resolved_toml: read("experiment.resolved.toml")?,
        manifest: serde_json::from_str(&read("manifest.json")?)?,
        command: command(std::env::args_os().map(|a| a.to_string_lossy().into_owned())),
        seed: Some(experiment.seed),
        experts: experts(&experiment.backend)?,
        failed: outcome.failed.clone(),
        priced: outcome.priced.clone(),
    };
    let page = report::html(&outcome.summary, &outcome.details, &context);
    let path = outcome.dir.join("report.html");
    run::write_atomic(&path, page.as_bytes()).with_context(|| path.display().to_string())
}

/// The command line as it was typed, but for the folder of the program.
fn command(mut args: impl Iterator<Item = String>) -> String {
    let program = args.next().unwrap_or_default();
    let program = Path::new(&program).file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let quoted = |arg: String| if arg.contains(char::is_whitespace) { format!("'{arg}'") } else { arg };
    std::iter::once(program).chain(args.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// The router of a live target.
pub(super) fn experts(backend: &Backend) -> anyhow::Result<Option<report::RoutedExperts>> {
    let Some(live) = backend.live() else { return Ok(None) };
    let config = TargetConfig::from_dir(&live.target.path)?;
    let moe = config.layers.iter().find_map(|layer| match &layer.ffn {
        Ffn::Moe(moe) => Some(moe),
        Ffn::Dense { .. } => None,
    });
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(moe.map(|m| report::RoutedExperts { total: count(m.experts), per_token: count(m.top_k) }))
}

/// The run folder, where the command line names or implies one, and whether it is resumed.
fn folder(args: &RunArgs, experiment: &Experiment) -> anyhow::Result<(Option<PathBuf>, bool)> {
    let (dir, resumed) = place(args, experiment)?;
    if let (Some(dir), true) = (&dir, resumed)
        && let Some(name) = name_of(dir)
        && name != experiment.name
    {
        let why = format!(
            "{} holds a run of `{name}`, and this file is `{}`: resume it with its own file, or write elsewhere with --out",
            dir.display(),
            experiment.name
        );
        return Err(Usage(why).into());
    }
    Ok((dir, resumed))
}

/// The name of the experiment whose run lies in a folder, where it says.
fn name_of(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join(super::folder::RESOLVED)).ok()?;
    let table: toml::Table = toml::from_str(&text).ok()?;
    table.get("name")?.as_str().map(str::to_owned)
}

fn place(args: &RunArgs, experiment: &Experiment) -> anyhow::Result<(Option<PathBuf>, bool)> {
    match (&args.resume, &args.out) {
        (None, out) => Ok((out.clone(), false)),
        (Some(Some(_)), Some(_)) => {
            Err(Usage("name the run folder once: with --resume DIR or with --out DIR".into()).into())
        }
        (Some(Some(dir)), None) | (Some(None), Some(dir)) if dir.is_dir() => Ok((Some(dir.clone()), true)),
        (Some(Some(dir)), None) | (Some(None), Some(dir)) => {
            Err(Usage(format!("nothing to resume: no run folder {}", dir.display())).into())
        }
        (Some(None), None) => match newest(Path::new(RUNS), &experiment.name) {
            Some(dir) => Ok((Some(dir), true)),
            None => Err(Usage(format!("nothing to resume: no run of `{}` in {RUNS}", experiment.name)).into()),
        },
    }
}

/// The newest run of the experiment `name` in `runs`: its folders carry a time that sorts.
fn newest(runs: &Path, name: &str) -> Option<PathBuf> {
    let stamp = |entry: &std::fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let stamp = file.strip_prefix(name)?.strip_prefix('-')?.to_owned();
        let plain = stamp.len() == 15
            && stamp.bytes().enumerate().all(|(i, b)| if i == 8 { b == b'-' } else { b.is_ascii_digit() });
        plain.then_some(stamp)
    };
    let found = std::fs::read_dir(runs).ok()?.flatten().filter_map(|e| Some((stamp(&e)?, e.path())));
    found.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_no_folder_of_the_program() {
        let typed = ["/a/b/treeline", "run", "my file.toml", "--json"].map(str::to_owned);
        assert_eq!(command(typed.into_iter()), "treeline run 'my file.toml' --json");
    }

    #[test]
    fn the_newest_run_of_the_right_name_is_found() {
        let runs = tempfile::tempdir().unwrap();
        assert_eq!(newest(runs.path(), "a"), None);
        for name in ["a-20260101-000000", "a-20261231-235959", "a-b-20270101-000000", "a-notes", "b-20280101-000000"] {
            std::fs::create_dir(runs.path().join(name)).unwrap();
        }
        assert_eq!(newest(runs.path(), "a"), Some(runs.path().join("a-20261231-235959")));
        assert_eq!(newest(runs.path(), "a-b"), Some(runs.path().join("a-b-20270101-000000")));
    }
}
