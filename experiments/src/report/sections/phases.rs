//! Where the time of a step goes.

use super::{Section, name, panels};
use crate::report::fmt::short;
use crate::report::model::Group;
use crate::report::plot::{Bar, Bars, Part};

/// Classes of the phases' colours, in order.
const PHASES: [&str; 8] = ["ph0", "ph1", "ph2", "ph3", "ph4", "ph5", "ph6", "ph7"];

/// The phases of a round in their order; others come behind.
const ORDER: [&str; 6] = ["draft", "tree", "verify", "walk", "commit", "host"];

/// Step time by phase.
pub(super) fn phases(groups: &[Group<'_>]) -> Option<Section> {
    let mut names: Vec<&str> = Vec::new();
    for (phase, ms) in groups.iter().flat_map(|g| g.all()).filter_map(|(_, e)| e.detail).flat_map(|d| &d.phases) {
        if *ms > 0.0 && !names.contains(&phase.as_str()) {
            names.push(phase);
        }
    }
    names.sort_by_key(|n| ORDER.iter().position(|o| o == n).unwrap_or(ORDER.len()));
    let figures = panels(groups, |group| {
        let bars = group.all().filter_map(|(line, e)| {
            let phases = &e.detail?.phases;
            let value = |n: &&str| phases.iter().filter(|(p, v)| p == n && v.is_finite()).map(|p| p.1).sum::<f64>();
            let values: Vec<f64> = names.iter().map(value).collect();
            let total: f64 = values.iter().sum();
            let parts: Vec<String> = phases.iter().map(|(p, v)| format!("{p} {} ms", short(*v))).collect();
            let label = name(line, e);
            let note = format!("{label}: {}", parts.join(", "));
            (total > 0.0).then(|| Bar {
                label,
                values,
                mark: None,
                strip: Vec::new(),
                total: format!("{} ms", short(total)),
                note,
            })
        });
        Bars {
            title: format!("Step time by phase, {}", group.label),
            label: "mean time of a decode step (ms)".to_owned(),
            parts: names
                .iter()
                .enumerate()
                .map(|(i, n)| Part { label: (*n).to_owned(), class: PHASES[i % PHASES.len()] })
                .collect(),
            bars: bars.collect(),
            strips: Vec::new(),
            mark: String::new(),
            end: None,
        }
        .draw()
    })?;
    Some(Section {
        id: "phases",
        title: "Where a step's time goes",
        lead: Vec::new(),
        figures,
        note: "Mean per decode step; prefill is left out.".to_owned(),
    })
}
