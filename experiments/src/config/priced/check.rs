//! What a priced run names, looked up: profiles, processes and traces, each error at the key that names it.

use super::super::diagnostic::{ConfigError, Doc};
use super::super::types::{Backend, Experiment, PolicySpec, Record};
use super::{AcceptanceKind, ArrivalsSpec, PrefillName, PricedRun};
use crate::priced::{Acceptance, Problem, Profiles, TABLE_NODES, beyond_tables, candidates};

/// Checks that everything a priced run names is there and fits.
pub(crate) fn check(doc: &Doc<'_>, e: &Experiment) -> Result<(), ConfigError> {
    let Backend::Priced(run) = &e.backend else { return Ok(()) };
    let at = |p: Problem| {
        let span = if doc.has(&p.key) { doc.value(&p.key) } else { doc.key(&p.key) };
        doc.error(span, p.message, p.hint)
    };
    let profiles = Profiles::load(&run.deployment, &e.folder).map_err(at)?;
    profiles.cost().map_err(|e| at(Problem::new("deployment.tier", &e)))?;
    let response = run.response.unwrap_or(0);
    let positions = profiles.model.max_context;
    if let Some(i) = run.context.iter().position(|c| c.saturating_add(response) > positions) {
        let place = format!("workload.context.{i}");
        let message = format!(
            "a response of {response} tokens behind {} does not fit {}, which has {positions} positions",
            run.context[i], profiles.model.name
        );
        let hint = "lower the context or `workload.response`, or name a model profile with a larger `max_context`";
        return Err(at(Problem { key: place, message, hint: Some(hint.to_owned()) }));
    }
    twins(e).map_err(at)?;
    tables(e, run, profiles.drafter.depth()).map_err(at)?;
    for (i, a) in run.acceptance.iter().enumerate() {
        let named = format!("acceptance.{i}");
        let AcceptanceKind::Trace { file: trace, .. } = &a.source else {
            Acceptance::check(a, &e.folder, &profiles.drafter, e.seed, &named).map_err(at)?;
            continue;
        };
        if trace.path.is_file() {
            continue;
        }
        let key = format!("{named}.trace");
        if !doc.has(&key) {
            // The command line named it.
            return Err(ConfigError::Read { path: trace.path.clone(), why: "no such trace".to_owned() });
        }
        let message = format!("no such trace: {}", trace.path.display());
        let hint = "relative paths start from the experiment file's folder".to_owned();
        return Err(doc.error(doc.value(&key), message, Some(hint)));
    }
    Ok(())
}

/// Refuses two policies of one kind with the same budget: answers name a choice by kind and budget, and could not tell them
/// apart.
fn twins(e: &Experiment) -> Result<(), Problem> {
    let all = || e.policies.iter().enumerate().flat_map(|(i, p)| (0..p.budgets.len()).map(move |j| (i, j, p)));
    for (i, j, p) in all() {
        let same = |&(k, l, q): &(usize, usize, &PolicySpec)| {
            (k, l) < (i, j) && q.kind == p.kind && q.budgets[l] == p.budgets[j]
        };
        if all().any(|other| same(&other)) {
            return Err(Problem {
                key: format!("policy.{i}.budget.{j}"),
                message: format!(
                    "`{}` with a budget of {} stands twice, and an answer could not tell the two apart",
                    p.kind, p.budgets[j]
                ),
                hint: Some("give one another budget, or compare them in two files".to_owned()),
            });
        }
    }
    Ok(())
}

/// Refuses what nested tables cannot hold, where the whole run stands on them. A run with another policy, arrivals by a clock,
/// charged prompts or recorded rounds goes round by round, which has no such limit.
fn tables(e: &Experiment, run: &PricedRun, depth: u32) -> Result<(), Problem> {
    let replayed = run.arrivals != ArrivalsSpec::Closed
        || run.deployment.prefill == PrefillName::Charged
        || e.record != Record::Summary;
    let all = || e.policies.iter().enumerate();
    let beyond = |kind: &str, params: &serde_json::Value, b: u32| beyond_tables(kind, params, b, depth);
    let on_tables = candidates(e, depth).iter().all(|c| c.fast.is_some() || beyond(&c.kind, &c.params, c.budget));
    if replayed && !run.split || !on_tables {
        return Ok(());
    }
    let budgets = || all().flat_map(|(i, p)| p.budgets.iter().enumerate().map(move |(j, b)| (i, j, p, *b)));
    if let Some((i, j, p, budget)) = budgets().find(|(_, _, p, b)| beyond(&p.kind, &p.params, *b)) {
        return Err(Problem {
            key: format!("policy.{i}.budget.{j}"),
            message: format!(
                "a budget of {budget} is beyond the {TABLE_NODES} nodes of the nested tables that `{}` is simulated on",
                p.kind
            ),
            hint: Some(format!(
                "{TABLE_NODES} at the most; or `record = \"sample:1000\"`, which replays every cell round by round"
            )),
        });
    }
    let most = candidates(e, depth).iter().filter(|c| c.spine().is_some()).map(|c| c.budget).max().unwrap_or(0);
    let positions = u64::from(run.requests) * u64::from(run.response.unwrap_or(0));
    if positions * u64::from(most) > u64::from(u32::MAX) {
        return Err(Problem {
            key: "workload.requests".to_owned(),
            message: format!(
                "{} requests of {} tokens with trees of {most} nodes come to more nodes than nested tables hold (2^32)",
                run.requests,
                run.response.unwrap_or(0)
            ),
            hint: Some("lower `requests`, `response` or the largest budget".to_owned()),
        });
    }
    Ok(())
}
