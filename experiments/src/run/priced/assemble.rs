//! From what ran to `priced.json`: answers beside what has none, and what a reader must know.

use super::plan::Group;
use super::{extras, replay, scenarios};
use crate::decide::FEW;
use crate::priced::{Candidate, PLAIN, Prepared};
use crate::results::{Answer, Cell, CellDetail, FailedCell, PRICED_VERSION, Priced, PricedAcceptance, RefusedCell};
use crate::run::RunWarning;
use crate::run::plan::label;
use crate::run::source::Source;

/// The cells of a group that failed, with what `failures` say of their labels.
pub(super) fn missing(
    p: &Prepared<'_>,
    group: &Group,
    source: Option<&replay::PricedSource>,
    many: bool,
    details: &[&CellDetail],
    failures: &[(String, String)],
) -> Vec<FailedCell> {
    let ran = |c: &Candidate| {
        let same = |d: &&&CellDetail| {
            (d.cell.policy == c.kind && d.cell.budget == c.budget)
                && (d.cell.policy_params == c.params || c.kind == PLAIN)
        };
        details.iter().find(same).is_some()
    };
    let lost = group.runs.iter().map(|&i| &p.candidates[i]).filter(|c| !ran(c));
    let cell = |c: &Candidate| {
        let why = source.and_then(|s| {
            let temperature = s.acceptance.temperature;
            let label = label(&c.kind, c.budget, temperature, group.concurrency, many.then_some(Source::facts(s)));
            failures.iter().find(|f| f.0 == label).map(|f| f.1.clone())
        });
        group.failed(p, Some(c.choice()), why.unwrap_or_else(|| "it did not run".to_owned()))
    };
    lost.map(cell).collect()
}

/// What a reader must know before believing the figures.
pub(super) fn doubts(p: &Prepared<'_>, unfit: &[RefusedCell], cells: &[&Cell]) -> Vec<RunWarning> {
    let mut out = Vec::new();
    let tree = &p.profiles.deployment.tree_attention;
    if !tree.native {
        out.push(RunWarning::Hypothetical { why: tree.note.clone() });
    }
    let d = &p.profiles.deployment;
    if p.profiles.spec.tier == crate::config::TierName::Table && d.other_version() {
        out.push(RunWarning::OtherTables { engine: format!("{} {}", d.engine.key(), d.version), ops: d.borrowed() });
    }
    if p.profiles.spec.tier == crate::config::TierName::Bound {
        out.push(RunWarning::BoundOnly);
    }
    if let Some(c) = &p.profiles.calibration
        && !names(&c.manifest.model, &p.profiles.model.name)
    {
        let (of, model) = (c.manifest.model.clone(), p.profiles.model.name.clone());
        out.push(RunWarning::OtherCalibration { of, model });
    }
    let outside = cells.iter().filter(|c| c.in_domain == Some(false)).count();
    if outside > 0 {
        out.push(RunWarning::Extrapolated { cells: outside, of: cells.len() });
    }
    if let Some(first) = unfit.first() {
        out.push(RunWarning::Unfit { cells: unfit.len(), first: first.reason.clone() });
    }
    let fewest = cells.iter().map(|c| c.requests).min().unwrap_or(0);
    if (fewest as usize) < FEW && !cells.is_empty() {
        let few = cells.iter().filter(|c| (c.requests as usize) < FEW).count();
        out.push(RunWarning::FewRequests { fewest, cells: few, of: cells.len() });
    }
    let emptied: Vec<(u32, u32)> = cells.iter().filter_map(|c| emptied(c)).collect();
    if let Some(&least) = emptied.iter().min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1))) {
        out.push(RunWarning::RunOut { cells: emptied.len(), of: cells.len(), least });
    }
    let noisy = cells.iter().filter(|c| c.mc_error.is_some_and(|e| e > 0.01)).count();
    if noisy > 0 {
        out.push(RunWarning::Noisy { cells: noisy, of: cells.len() });
    }
    out
}

/// Whether the words of a manifest name a model, however it is spelt.
fn names(words: &str, model: &str) -> bool {
    let plain = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    plain(words).contains(&plain(model))
}

/// Requests that decode together on average and the cap, of a closed loop that was replayed to its end and stays more than a
/// tenth below its cap. Steady states are full by construction, open loops are as full as they are.
fn emptied(c: &Cell) -> Option<(u32, u32)> {
    if c.mc_error.is_some() || c.busy.is_some() {
        return None;
    }
    // Tokens a step over tokens of a request's round.
    let together = c.tok_s? * c.step_ms? / 1e3 / c.tau?;
    (together < 0.9 * f64::from(c.concurrency)).then(|| (together.round() as u32, c.concurrency))
}

/// Cells without figures.
pub(super) struct Lost {
    /// They did not fit into the memory.
    pub unfit: Vec<RefusedCell>,
    /// They failed.
    pub failed: Vec<FailedCell>,
}

/// `priced.json`.
pub(super) fn priced(
    p: &Prepared<'_>,
    answers: Vec<Answer>,
    acceptances: Vec<PricedAcceptance>,
    lost: Lost,
    cells: &[Cell],
) -> Priced {
    let mut contexts: Vec<u32> = cells.iter().map(|c| c.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let concurrency = &p.experiment.concurrency;
    Priced {
        schema_version: PRICED_VERSION,
        setup: extras::setup(&p.profiles, p.run, &p.cost),
        curves: extras::curves(&p.profiles, &p.cost, &contexts, concurrency, &p.candidates),
        breakdowns: extras::breakdowns(&p.profiles, &p.cost, &contexts, concurrency, &answers),
        experts: extras::experts(&p.profiles),
        scenarios: scenarios::scenarios(p, cells),
        acceptances,
        answers,
        refused: lost.unfit,
        failed: lost.failed,
        split: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_its_model_however_it_is_spelt() {
        let words = "Kimi K2.6 on synthetic weights (61 layers, rank 0 of 8)";
        assert!(
            names(words, "kimi-k2.6") && !names(words, "kimi-k2.5") && !names("qwen3-8b on real weights", "kimi-k2.6")
        );
    }
}
