//! What a priced run names, looked up: profiles, processes and traces, each error at the key that names it.

use super::super::diagnostic::{ConfigError, Doc};
use super::super::types::{Backend, Experiment};
use super::AcceptanceKind;
use crate::priced::{Acceptance, Problem, Profiles};

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
