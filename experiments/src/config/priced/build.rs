//! From the sections as written to a priced run: what belongs together is joined, what contradicts is refused.

use super::super::diagnostic::{ConfigError, Doc};
use super::super::file::File;
use super::super::location::Location;
use super::super::types::PolicySpec;
use super::file::{Acceptance, AnchorPolicy, AnchorText, Arrivals, Prefill, Tier};
use super::{
    AcceptanceKind, AcceptanceSpec, Anchor, ArrivalsSpec, DeploymentSpec, PrefillName, PricedRun, REQUESTS, ROUNDS,
    TierName,
};
use std::path::Path;

/// Keys and sections that only a priced run reads.
const PRICED_ONLY: [&str; 9] = [
    "deployment",
    "acceptance",
    "reference",
    "split",
    "workload.context",
    "workload.response",
    "workload.arrivals",
    "workload.requests",
    "workload.rounds",
];

/// Refuses what a run without a deployment does not read. `why` says what to do.
pub(crate) fn sections(doc: &Doc<'_>, why: &str) -> Result<(), ConfigError> {
    match PRICED_ONLY.iter().find(|path| doc.has(path)) {
        None => Ok(()),
        Some(path) => {
            let name = path.rsplit('.').next().unwrap_or(path);
            Err(doc.error(doc.key(path), format!("`{name}` is not read here"), Some(why.to_owned())))
        }
    }
}

/// Whether a file describes a priced run.
pub(crate) fn named(file: &File) -> bool {
    file.deployment.is_some()
}

/// Joins the sections of a priced run. `trace` is the command line's, in place of the file's sources.
pub(crate) fn priced(
    doc: &Doc<'_>,
    file: &File,
    folder: &Path,
    policies: &[PolicySpec],
    trace: Option<Location>,
) -> Result<PricedRun, ConfigError> {
    let deployment = deployment(doc, file, folder)?;
    if file.backend.trace.is_some() {
        let hint = "write [[acceptance]] with `name` and `trace`: a priced run may have several sources";
        return Err(doc.error(doc.key("backend.trace"), "`trace` is not read here", Some(hint.to_owned())));
    }
    if file.cost.is_some() {
        let hint = "the deployment prices steps: leave [cost] out".to_owned();
        return Err(doc.error(doc.key("cost"), "two costs of a step contradict each other", Some(hint)));
    }
    // Beside a trace of the command line, what the file's processes need is left unread.
    let given = trace.is_some();
    let acceptance = match trace {
        Some(trace) => {
            // A file may have a name that a table cannot show.
            let stem = trace.path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            let stem = stem.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            vec![AcceptanceSpec { name: stem, source: AcceptanceKind::Trace { file: trace, stand_in: false } }]
        }
        None => sources(doc, file.acceptance.as_deref().unwrap_or(&[]), folder)?,
    };
    let w = &file.workload;
    let process = acceptance.iter().position(|a| matches!(a.source, AcceptanceKind::Process { .. }));
    let context: Vec<u32> = w.context.as_ref().map_or_else(Vec::new, |c| c.0.iter().map(|c| c.u32()).collect());
    let needs = |key: &str, i: usize, hint: &str| {
        let message = format!("a process has no {key} of its own: `workload.{key}` is missing");
        doc.error(doc.key(&format!("acceptance.{i}.process")), message, Some(hint.to_owned()))
    };
    match process {
        Some(i) if context.is_empty() => {
            return Err(needs("context", i, "positions before a response, as in context = [1024, 16384]"));
        }
        Some(i) if w.response.is_none() => return Err(needs("response", i, "tokens of one, as in response = 1024")),
        None => {
            for (key, present) in [("response", w.response.is_some()), ("requests", w.requests.is_some())] {
                if present && !given {
                    let message = format!("`{key}` is not read here");
                    let hint = "every acceptance is a trace, which has its own".to_owned();
                    return Err(doc.error(doc.key(&format!("workload.{key}")), message, Some(hint)));
                }
            }
        }
        Some(_) => {}
    }
    Ok(PricedRun {
        deployment,
        context,
        response: process.and(w.response.map(|r| r.u32())),
        arrivals: match &w.arrivals {
            None | Some(Arrivals::Closed(_)) => ArrivalsSpec::Closed,
            Some(Arrivals::Poisson(p)) => ArrivalsSpec::Poisson { rate: p.rate.0 },
        },
        requests: process.and(w.requests).map_or(REQUESTS, |r| r.u32()),
        rounds: w.rounds.map_or(ROUNDS, |r| r.u32()),
        reference: reference(doc, file, policies)?,
        split: file.split.is_some(),
        acceptance,
    })
}

fn reference(doc: &Doc<'_>, file: &File, policies: &[PolicySpec]) -> Result<Option<(String, u32)>, ConfigError> {
    let Some(r) = &file.reference else { return Ok(None) };
    let (policy, budget) = (&r.policy.0, r.budget.u32());
    if !policies.iter().any(|p| p.kind == *policy && p.budgets.contains(&budget)) {
        let message = format!("no policy of this file is `{policy}` with budget {budget}");
        let hint = "the reference is one of the file's own cells: add it to a [[policy]]".to_owned();
        return Err(doc.error(doc.value("reference"), message, Some(hint)));
    }
    Ok(Some((policy.clone(), budget)))
}

fn deployment(doc: &Doc<'_>, file: &File, folder: &Path) -> Result<DeploymentSpec, ConfigError> {
    let Some(d) = &file.deployment else {
        return Err(doc.error(doc.key("acceptance"), "missing section `deployment`", None));
    };
    let calibration = d.calibration.as_ref().map(|c| Location::new(&c.0, folder));
    match (d.tier, &calibration) {
        (Tier::Calibrated, None) => {
            let hint = "calibration = \"FILE\", which `treeline calibrate` writes".to_owned();
            return Err(doc.error(doc.value("deployment.tier"), "tier `calibrated` needs `calibration`", Some(hint)));
        }
        (Tier::Bound | Tier::Table, Some(_)) => {
            let hint = "only tier `calibrated` reads it".to_owned();
            return Err(doc.error(doc.key("deployment.calibration"), "`calibration` is not read here", Some(hint)));
        }
        _ => {}
    }
    if d.overhead_scale.is_some() && d.tier != Tier::Table {
        let hint = "only tier `table` reads it: bound is scale 0".to_owned();
        return Err(doc.error(doc.key("deployment.overhead_scale"), "`overhead_scale` is not read here", Some(hint)));
    }
    Ok(DeploymentSpec {
        engine: d.engine.0.clone(),
        hardware: d.hardware.as_ref().map(|h| h.0.clone()),
        model: d.model.0.clone(),
        drafter: d.drafter.0.clone(),
        tier: match d.tier {
            Tier::Bound => TierName::Bound,
            Tier::Table => TierName::Table,
            Tier::Calibrated => TierName::Calibrated,
        },
        calibration,
        overhead_scale: d.overhead_scale.as_ref().map_or(1.0, |s| s.0),
        allow_extrapolation: d.allow_extrapolation.unwrap_or(false),
        experts: d.experts.as_ref().map(|e| e.0.clone()),
        prefill: match d.prefill {
            Prefill::Charged => PrefillName::Charged,
            Prefill::Excluded => PrefillName::Excluded,
        },
    })
}

fn sources(doc: &Doc<'_>, written: &[Acceptance], folder: &Path) -> Result<Vec<AcceptanceSpec>, ConfigError> {
    if written.is_empty() {
        let hint = "[[acceptance]] with `name` and `trace = \"FILE\"` (`treeline trace record`, or your engine's own), or \
                    `process = \"NAME\"` with `tau`; there is no default source";
        return Err(doc.error(doc.key("deployment"), "nothing says what is accepted", Some(hint.to_owned())));
    }
    let mut out: Vec<AcceptanceSpec> = Vec::new();
    for (i, a) in written.iter().enumerate() {
        let at = |key: &str| format!("acceptance.{i}.{key}");
        if out.iter().any(|b| b.name == a.name.0) {
            let message = format!("acceptance `{}` is listed twice", a.name.0);
            return Err(doc.error(doc.value(&at("name")), message, None));
        }
        let source = match (&a.trace, &a.process) {
            (Some(_), Some(_)) => {
                let message = "a source is a trace or a process, not both";
                return Err(doc.error(doc.key(&at("process")), message, None));
            }
            (None, None) => {
                let message = format!("acceptance `{}` needs `trace` or `process`", a.name.0);
                let hint = "`treeline profiles` lists the shipped processes".to_owned();
                return Err(doc.error(doc.value(&at("name")), message, Some(hint)));
            }
            (Some(trace), None) => {
                for (key, present) in [("tau", a.tau.is_some()), ("variants", a.variants.is_some())] {
                    if present {
                        let message = format!("`{key}` is not read beside a trace");
                        let hint = "a trace is replayed as it is; a process can be scaled".to_owned();
                        return Err(doc.error(doc.key(&at(key)), message, Some(hint)));
                    }
                }
                AcceptanceKind::Trace { file: Location::new(&trace.0, folder), stand_in: a.stand_in.unwrap_or(false) }
            }
            (None, Some(_)) if a.stand_in.is_some() => {
                let hint = "a process is of no models but those that its file describes".to_owned();
                return Err(doc.error(doc.key(&at("stand_in")), "`stand_in` is not read beside a process", Some(hint)));
            }
            (None, Some(process)) => AcceptanceKind::Process {
                process: process.0.clone(),
                anchor: a.tau.as_ref().map(anchor),
                variants: a.variants.unwrap_or(true),
            },
        };
        out.push(AcceptanceSpec { name: a.name.0.clone(), source });
    }
    Ok(out)
}

fn anchor(text: &AnchorText) -> Anchor {
    match text {
        AnchorText::Chain(tau) => Anchor { tau: tau.0, policy: "chain".to_owned(), budget: None },
        AnchorText::At(table) => Anchor {
            tau: table.value.0,
            policy: match table.policy {
                AnchorPolicy::Chain => "chain",
                AnchorPolicy::BestFirst => "best-first",
            }
            .to_owned(),
            budget: Some(table.budget.u32()),
        },
    }
}
