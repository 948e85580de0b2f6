//! What to know before acting on an advice.

use super::Decided;
use crate::config::{AcceptanceKind, ArrivalsSpec, PrefillName, TierName};
use crate::priced::Prepared;

/// What to know before acting.
pub(super) fn notes(prepared: &Prepared<'_>, decided: &[Decided], replayed: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    let synthetic: Vec<&str> = prepared
        .run
        .acceptance
        .iter()
        .filter(|a| matches!(a.source, AcceptanceKind::Process { .. }))
        .map(|a| a.name.as_str())
        .collect();
    if !synthetic.is_empty() {
        out.push(format!(
            "acceptance of {} is a process, not a recording: a rank trace of your own pair and traffic replaces it \
             (treeline trace record, or the writer in docs/trace-format.md)",
            synthetic.join(", ")
        ));
    }
    let run = prepared.run;
    if run.arrivals != ArrivalsSpec::Closed || prepared.profiles.spec.prefill == PrefillName::Charged {
        out.push(
            "the file's arrivals and charged prompts are left out: advice is about the steady state of a closed loop with \
             free prompts, and `treeline run` prices both"
                .to_owned(),
        );
    }
    let mut left_out: Vec<&str> = Vec::new();
    for line in decided.iter().flat_map(|d| &d.answer.left_out) {
        if !left_out.contains(&line.as_str()) {
            left_out.push(line);
        }
    }
    if !left_out.is_empty() {
        out.push(format!("±≥ marks intervals that leave something out and are lower bounds: {}", left_out.join("; ")));
    }
    if let Some(cut) = decided.iter().map(|d| d.cut).filter(|c| *c > 0.005).max_by(f64::total_cmp) {
        out.push(format!(
            "up to {:.0} % of the best trees would have needed ranks that the trace does not list: their gain is a lower \
             bound",
            cut * 100.0
        ));
    }
    let outside = decided.iter().filter(|d| !d.in_domain).count();
    if outside > 0 {
        out.push(format!(
            "{outside} of {} settings were priced outside of what was measured (allow_extrapolation)",
            decided.len()
        ));
    }
    if prepared.run.deployment.tier == TierName::Bound {
        out.push(
            "tier bound is a lower limit of step times and no prediction: it favours trees that are too small".into(),
        );
    }
    if !replayed.is_empty() {
        out.push(format!("not compared, since only a replay runs them: {}", replayed.join(", ")));
    }
    out
}
