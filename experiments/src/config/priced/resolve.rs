//! A priced run written back with every value in force.

use super::super::resolve::{float, list, pair, quote, section};
use super::super::types::Experiment;
use super::{AcceptanceKind, Anchor, ArrivalsSpec, PricedRun};

/// The keys of the top level; they come before any section.
pub(crate) fn top(out: &mut String, run: &PricedRun) {
    if let Some((policy, budget)) = &run.reference {
        pair(out, "reference", &format!("{{ policy = {}, budget = {budget} }}", quote(policy)));
    }
    if run.split {
        pair(out, "split", &quote("halves"));
    }
}

/// The sections of a priced run.
pub(crate) fn write(out: &mut String, e: &Experiment, run: &PricedRun) {
    let d = &run.deployment;
    section(out, "[backend]");
    pair(out, "kind", &quote("sim"));
    section(out, "[deployment]");
    pair(out, "engine", &quote(&d.engine));
    if let Some(hardware) = &d.hardware {
        pair(out, "hardware", &quote(hardware));
    }
    pair(out, "model", &quote(&d.model));
    pair(out, "drafter", &quote(&d.drafter));
    pair(out, "tier", &quote(d.tier.name()));
    if let Some(calibration) = &d.calibration {
        pair(out, "calibration", &quote(&calibration.written));
    }
    if d.tier == super::TierName::Table {
        pair(out, "overhead_scale", &float(d.overhead_scale));
    }
    pair(out, "allow_extrapolation", &d.allow_extrapolation.to_string());
    if let Some(experts) = &d.experts {
        pair(out, "experts", &quote(experts));
    }
    pair(out, "prefill", &quote(d.prefill.name()));
    section(out, "[workload]");
    pair(out, "concurrency", &list(&e.concurrency));
    if !run.context.is_empty() {
        pair(out, "context", &list(&run.context));
    }
    if let Some(response) = run.response {
        pair(out, "response", &response.to_string());
        pair(out, "requests", &run.requests.to_string());
    }
    pair(out, "rounds", &run.rounds.to_string());
    match run.arrivals {
        ArrivalsSpec::Closed => pair(out, "arrivals", &quote("closed")),
        ArrivalsSpec::Poisson { rate } => pair(out, "arrivals", &format!("{{ rate = {} }}", float(rate))),
    }
    for a in &run.acceptance {
        section(out, "[[acceptance]]");
        pair(out, "name", &quote(&a.name));
        match &a.source {
            AcceptanceKind::Trace { file, stand_in } => {
                pair(out, "trace", &quote(&file.written));
                pair(out, "stand_in", &stand_in.to_string());
            }
            AcceptanceKind::Process { process, anchor, variants } => {
                pair(out, "process", &quote(process));
                if let Some(anchor) = anchor {
                    pair(out, "tau", &tau(anchor));
                }
                pair(out, "variants", &variants.to_string());
            }
        }
    }
}

fn tau(anchor: &Anchor) -> String {
    match anchor.budget {
        None => float(anchor.tau),
        Some(budget) => {
            let (value, policy) = (float(anchor.tau), quote(&anchor.policy));
            format!("{{ value = {value}, policy = {policy}, budget = {budget} }}")
        }
    }
}
