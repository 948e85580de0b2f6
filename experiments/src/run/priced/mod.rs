//! A priced run: every acceptance, context and concurrency of the file under every policy, and which of them pays.
//!
//! Where every policy's trees are prefixes of a best-first order, the loop is closed and prompts are free, the *grid*
//! simulates the steady state on nested tables. Everything else goes through the round protocol over a priced replay.

mod assemble;
mod cells;
mod decided;
mod eager;
mod extras;
mod grid;
mod plan;
mod replay;
mod scenarios;
mod store;

pub(crate) use store::GroupFile;

use super::execute::{execute_all, write, write_json};
use super::manifest::Manifest;
use super::plan::CellSpec;
use super::source::Facts;
use super::{Options, Outcome, RunWarning, files, refused, summary};
use crate::config::{ArrivalsSpec, Experiment, PrefillName, PricedRun, Record, resolved_toml};
use crate::priced::{PLAIN, Prepared};
use crate::results::{Answer, Cell, CellDetail, PricedAcceptance, RefusedCell};
use anyhow::Context as _;
use assemble::{Lost, doubts, missing, priced};
use grid::Done;
use plan::{Group, Plan};
use serde_json::json;
use std::time::Instant;
use treeline_policies::Registry;

/// Name of the file beside `summary.json`.
pub(crate) const PRICED_FILE: &str = "priced.json";

/// Runs a priced experiment.
pub(super) fn run(
    experiment: &Experiment,
    run: &PricedRun,
    registry: &Registry,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let prepared = Prepared::new(experiment, run).map_err(refused)?;
    let (groups, unfit) = Plan(&prepared).groups().map_err(refused)?;
    match gridded(&prepared) {
        false if run.split => {
            let why = prepared.untabled().map_or_else(String::new, |why| format!("; here {why}"));
            Err(refused(anyhow::anyhow!(
                "`split` needs cells on nested tables: closed arrivals, prefill excluded, record = \"summary\", a block \
                 drafter, and policies without a memory (`off = false`, `calibration = \"claimed\"`){why}"
            )))
        }
        true => grid(&prepared, &groups, unfit, options),
        false => replayed(&prepared, &groups, unfit, registry, options),
    }
}

/// Whether tables answer every question of the run.
fn gridded(p: &Prepared<'_>) -> bool {
    let trees = p.candidates.iter().all(|c| c.fast.is_some()) && p.untabled().is_none();
    let loops = p.run.arrivals == ArrivalsSpec::Closed && p.profiles.spec.prefill == PrefillName::Excluded;
    trees && loops && p.experiment.record == Record::Summary
}

/// Round by round, whatever the policies.
fn replayed(
    p: &Prepared<'_>,
    groups: &[Group],
    unfit: Vec<RefusedCell>,
    registry: &Registry,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let sources = replay::sources(p).map_err(refused)?;
    let group_of = |source: usize, concurrency: u32| {
        let s = &sources[source];
        let here = |g: &&Group| {
            p.sources[g.acceptance].name == s.acceptance.name && g.context == s.context && g.concurrency == concurrency
        };
        groups.iter().find(here)
    };
    let wanted = |source: usize, cell: &CellSpec| {
        let runs = |i: &usize| {
            let c = &p.candidates[*i];
            (c.kind == cell.kind && c.budget == cell.budget) && (c.params == cell.params || c.kind == PLAIN)
        };
        group_of(source, cell.concurrency).is_some_and(|g| g.runs.iter().any(runs))
    };
    let outcome = execute_all(&sources, &facts(p), p.experiment, registry, options, &wanted)?;
    let decider = decided::Decider::new(p, registry, &sources);
    let moving = sources.iter().any(|s| !s.acceptance.moves().is_empty());
    if moving && !options.quiet {
        super::progress::note("moving the parameters of the processes: the choices that decide are replayed with each");
    }
    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    for group in groups {
        let name = &p.sources[group.acceptance].name;
        let here = |d: &&CellDetail| {
            d.cell.acceptance.as_ref() == Some(name)
                && d.cell.concurrency == group.concurrency
                && group.context.is_none_or(|c| c == d.cell.context)
        };
        let details: Vec<&CellDetail> = outcome.details.iter().filter(here).collect();
        let source = sources.iter().find(|s| s.acceptance.name == *name && s.context == group.context);
        answers.extend(source.and_then(|s| decider.answer(s, group, &details)));
        failed.extend(missing(p, group, source, sources.len() > 1, &details, &outcome.failed));
    }
    let mut acceptances: Vec<PricedAcceptance> = Vec::new();
    for s in &sources {
        if acceptances.iter().all(|a| a.name != s.acceptance.name) {
            acceptances.push(s.acceptance.words());
        }
    }
    let cells: Vec<&Cell> = outcome.summary.cells.iter().collect();
    let doubts = doubts(p, &unfit, &cells);
    let mut summary = outcome.summary.clone();
    summary.warnings.extend(doubts.iter().map(ToString::to_string));
    let priced = priced(p, answers, acceptances, Lost { unfit, failed }, &summary.cells);
    write_json(&outcome.dir.join("summary.json"), &summary)?;
    write_json(&outcome.dir.join(PRICED_FILE), &priced)?;
    Ok(Outcome { summary, priced: Some(priced), ..outcome })
}

/// All groups on nested tables.
fn grid(
    prepared: &Prepared<'_>,
    groups: &[Group],
    unfit: Vec<RefusedCell>,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let experiment = prepared.experiment;
    if options.replay_observations.is_some() {
        anyhow::bail!("no policy of this experiment reads measured time: there are no observations to replay");
    }
    let dir = files::run_folder(options, &experiment.name).map_err(refused)?;
    // Held to the end: two runs in one folder would write over each other.
    let _lock = files::lock(&dir).map_err(refused)?;
    let manifest = Manifest::new(&facts(prepared), experiment, options);
    let mut warnings: Vec<RunWarning> = manifest.differs(&dir).filter(|_| options.resume).into_iter().collect();
    let absolute = dir.canonicalize().with_context(|| dir.display().to_string())?;
    write(&dir.join("experiment.resolved.toml"), resolved_toml(experiment, &absolute).as_bytes())?;
    // Written now as well, so that a run that is killed says what it was.
    write_json(&dir.join("manifest.json"), &manifest.unfinished())?;

    let done = grid::run(prepared, groups, &dir, options.resume, options.quiet);

    let walls: Vec<(String, bool, Option<f64>)> =
        groups.iter().zip(&done).map(|(g, d)| (g.key.clone(), d.kept, d.wall_s)).collect();
    let (mut details, mut failed, mut lost_cells) = (Vec::new(), Vec::new(), Vec::new());
    let (mut answers, mut acceptances): (Vec<Answer>, Vec<PricedAcceptance>) = (Vec::new(), Vec::new());
    for Done { file, failed: lost, .. } in done {
        failed.extend(lost.iter().map(|(label, f)| (label.clone(), f.reason.clone())));
        lost_cells.extend(lost.into_iter().map(|f| f.1));
        let Some(file) = file else { continue };
        answers.extend(file.answer);
        if acceptances.iter().all(|a| a.name != file.acceptance.name) {
            acceptances.push(file.acceptance);
        }
        details.extend(file.cells);
    }
    if !experiment.baseline {
        warnings.push(RunWarning::NoBaseline);
    }
    if !failed.is_empty() {
        warnings.push(RunWarning::Failed { cells: failed.len() });
    }
    let cells: Vec<&Cell> = details.iter().map(|d| &d.cell).collect();
    warnings.extend(doubts(prepared, &unfit, &cells));
    let summary = summary::summary(&experiment.name, &details, &warnings);
    let lost = Lost { unfit, failed: lost_cells };
    let mut priced = priced(prepared, answers, acceptances, lost, &summary.cells);
    if prepared.run.split {
        let note = |text: &str| {
            if !options.quiet {
                super::progress::note(text);
            }
        };
        priced.split = crate::split::score(prepared, &note)?;
    }
    write_json(&dir.join("summary.json"), &summary)?;
    write_json(&dir.join(PRICED_FILE), &priced)?;
    write_json(&dir.join("manifest.json"), &manifest.finished(begun.elapsed().as_secs_f64(), &walls, &failed))?;
    Ok(Outcome { dir, summary, details, failed, priced: Some(priced) })
}

/// What the manifest says.
fn facts(p: &Prepared<'_>) -> Facts {
    let digest = |text: String| super::sha256(text.as_bytes());
    let named = |name: &str, text: String| json!({ "name": name, "sha256": digest(text) });
    let profiles = &p.profiles;
    let sources = p.sources.iter().map(|s| json!({ "name": s.name, "sha256": s.digest }));
    let manifest = json!({
        "cost": {
            "tier": profiles.spec.tier.name(),
            "digest": p.cost.digest(),
            "hardware": named(&profiles.hardware.name, format!("{:?}", profiles.hardware)),
            "model": named(&profiles.model.name, format!("{:?}", profiles.model)),
            "drafter": named(&profiles.drafter.name, format!("{:?}", profiles.drafter)),
            "deployment": named(&profiles.deployment.name, format!("{:?}", profiles.deployment)),
            "experts": profiles.spec.experts,
            "calibration": profiles.calibration.as_ref().map(|c| c.digest.clone()),
        },
        "acceptance": sources.collect::<Vec<_>>(),
    });
    Facts {
        backend: "sim",
        hardware: Some(profiles.hardware.name.clone()),
        gpu: None,
        deployment: Some(profiles.words()),
        acceptance: String::new(),
        workload: String::new(),
        context: 0,
        ranks: profiles.deployment.ranks,
        width: 0,
        depth: profiles.drafter.depth(),
        temperatures: Vec::new(),
        clock: true,
        tokens: false,
        knows_truth: true,
        tau: "replayed",
        tier: profiles.spec.tier.name(),
        identity: json!(p.cost.digest()),
        manifest,
        notes: Vec::new(),
        warnings: Vec::new(),
    }
}
