//! Where the time of a step goes, and what takes back the tokens that a tree wins.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::view::View;
use super::words;
use crate::report::fmt::{self, percent, short};
use crate::report::plot::{Bar, Bars, Part};
use crate::report::sections::Section;
use crate::results::{PricedBreakdown, PricedOp};

/// Operations with a colour of their own; the others share one.
const OWN: usize = 7;

/// Colours, in order; the last is that of all others.
const COLOURS: [&str; 8] = ["ph0", "ph1", "ph2", "ph3", "ph4", "ph6", "ph7", "ph5"];

/// What holds an operation, with its colour.
const LIMITS: [(&str, &str); 5] = [
    ("memory", "lim-memory"),
    ("compute", "lim-compute"),
    ("kernel", "lim-kernel"),
    ("latency", "lim-latency"),
    ("link", "lim-link"),
];

/// The part of a step that an operation is counted to: what is not verification by its phase.
pub(super) fn part(op: &PricedOp) -> &str {
    if op.phase == "verify" { &op.name } else { &op.phase }
}

/// Milliseconds by part, of one step.
pub(super) fn by_part(step: &PricedBreakdown) -> BTreeMap<&str, f64> {
    let mut sums = BTreeMap::new();
    for op in step.ops.iter().filter(|op| op.ms.is_finite() && op.ms > 0.0) {
        *sums.entry(part(op)).or_insert(0.0) += op.ms;
    }
    sums
}

/// Time of a step.
pub(super) fn total(step: &PricedBreakdown) -> f64 {
    by_part(step).values().sum()
}

/// Steps at the report's context, taken apart; one figure for few, some and many users.
pub(super) fn breakdowns(view: &View<'_>) -> Option<Section> {
    let all = &view.priced.breakdowns;
    let contexts: Vec<u32> = sorted(all.iter().map(|b| b.context));
    let context = super::view::nearest(&contexts, view.context()?)?;
    let here: Vec<&PricedBreakdown> = all.iter().filter(|b| b.context == context && total(b) > 0.0).collect();
    let requests = sorted(here.iter().map(|b| b.requests));
    let near = |n| super::view::nearest(&requests, n);
    let picked: BTreeSet<u32> =
        [requests.first().copied(), near(8), near(32), requests.last().copied()].into_iter().flatten().collect();
    let own = own(&here);
    let figures: Vec<(Markup, Markup)> = picked
        .iter()
        .filter_map(|&n| {
            let mut steps: Vec<&PricedBreakdown> = here.iter().filter(|b| b.requests == n).copied().collect();
            steps.sort_by_key(|b| (b.rows, b.draft));
            steps.dedup_by_key(|b| (b.rows, b.draft));
            // Sizes that stand for all, where there are many.
            let usual = |b: &&PricedBreakdown| b.rows == 1 || [8, 16, 32, 64].contains(&(b.rows - 1));
            if steps.len() > 6 && steps.iter().filter(|b| usual(b)).count() > 2 {
                steps.retain(usual);
            }
            let name = format!("{}, {}", words::users(n), words::at_context(context));
            Some((html! { (name) }, bars(&steps, &own, &name)?))
        })
        .collect();
    let lead = picked.iter().filter_map(|&n| held(&here, n)).collect();
    (!figures.is_empty()).then(|| Section {
        id: "breakdown",
        title: "Where a step's time goes",
        lead,
        figures,
        note: "Upper bar: operations, all their calls in a step; draft, tree, walk and host are the other phases of a \
               round. Thin bar: the share of the same time by what holds it. Latency: more work would take hardly \
               longer. Kernel: it would, though both bandwidth and arithmetic are mostly idle."
            .to_owned(),
    })
}

/// Ascending, each once.
fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    values.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The parts with the most time in any step, in order of execution.
fn own<'a>(steps: &[&'a PricedBreakdown]) -> Vec<&'a str> {
    let mut most: Vec<(&str, f64)> = Vec::new();
    for step in steps {
        let sums = by_part(step);
        for op in &step.ops {
            let name = part(op);
            let ms = sums.get(name).copied().unwrap_or(0.0);
            match most.iter_mut().find(|(n, _)| *n == name) {
                Some((_, m)) => *m = m.max(ms),
                None => most.push((name, ms)),
            }
        }
    }
    let mut order: Vec<usize> = (0..most.len()).collect();
    order.sort_by(|a, b| most[*b].1.total_cmp(&most[*a].1));
    order.truncate(OWN);
    order.sort_unstable();
    order.into_iter().map(|i| most[i].0).collect()
}

fn bars(steps: &[&PricedBreakdown], own: &[&str], name: &str) -> Option<Markup> {
    let rows = steps.iter().map(|step| {
        let sums = by_part(step);
        let mut values: Vec<f64> = own.iter().map(|n| sums.get(n).copied().unwrap_or(0.0)).collect();
        let all: f64 = sums.values().sum();
        values.push((all - values.iter().sum::<f64>()).max(0.0));
        let label = match (step.rows, step.draft) {
            (1, false) => "plain".to_owned(),
            (n, true) => words::count_nodes(n.saturating_sub(1)),
            (n, false) => format!("{}, no draft", fmt::plural(u64::from(n), "row")),
        };
        let limits = LIMITS.map(|(limit, class)| (held_by(step, limit), class));
        let told = step
            .ops
            .iter()
            .filter(|op| op.ms > 0.0)
            .map(|op| format!("{} {} ms ({})", op.name, short(op.ms), op.limit));
        let note = format!("{label}: {}", told.collect::<Vec<_>>().join(", "));
        Bar { label, values, strip: limits.into(), total: format!("{} ms", short(all)), note, mark: None }
    });
    let mut parts: Vec<Part> =
        own.iter().zip(COLOURS).map(|(n, class)| Part { label: (*n).to_owned(), class }).collect();
    parts.push(Part { label: "all others".to_owned(), class: COLOURS[OWN] });
    let used = |class: &str| steps.iter().any(|s| LIMITS.iter().any(|l| l.1 == class && held_by(s, l.0) > 0.0));
    Bars {
        title: format!("Time of a step by operation, {name}"),
        label: "time of a step (ms)".to_owned(),
        bars: rows.collect(),
        strips: LIMITS.iter().filter(|l| used(l.1)).map(|(l, class)| Part { label: (*l).to_owned(), class }).collect(),
        parts,
        mark: String::new(),
        end: None,
    }
    .draw()
}

/// Milliseconds of a step that `limit` holds.
fn held_by(step: &PricedBreakdown, limit: &str) -> f64 {
    step.ops.iter().filter(|op| op.limit == limit && op.ms.is_finite()).map(|op| op.ms.max(0.0)).sum()
}

/// "32 users: of a plain step's 14.1 ms, 52 % is held by latency".
fn held(steps: &[&PricedBreakdown], requests: u32) -> Option<String> {
    let of = |draft: bool| {
        let mine = steps.iter().filter(|b| b.requests == requests && b.draft == draft);
        if draft { mine.max_by_key(|b| b.rows) } else { mine.min_by_key(|b| b.rows) }
    };
    let said = |step: &PricedBreakdown| {
        let (limit, ms) =
            LIMITS.iter().map(|(l, _)| (*l, held_by(step, l))).reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        let all = total(step);
        let limit = if limit == "kernel" { "kernels that use the machine badly" } else { limit };
        Some(format!("{} ms, {} of it held by {limit}", short(all), percent(ms / all)))
    };
    let (plain, tree) = (of(false)?, of(true)?);
    Some(format!(
        "{}: a plain step takes {}; one with {} {}.",
        words::users(requests),
        said(plain)?,
        fmt::plural(u64::from(tree.rows.saturating_sub(1)), "node"),
        said(tree)?
    ))
}
