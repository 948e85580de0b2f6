//! What was priced and how: engine, acceptance sources, what is not modelled, what did not fit, and the questions that the
//! project began with.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::view::{View, tokens};
use super::words;
use crate::report::fmt::{self, MISSING, finite, fixed, percent, plural};
use crate::report::plot::{Axis, Chart, Look, Point, Series};
use crate::report::remarks::{self, Remark};
use crate::results::{Cell, PricedAcceptance};

/// Facts below the answer.
pub(super) fn facts(view: &View<'_>) -> Markup {
    let s = &view.priced.setup;
    let pair = [Some(s.model.as_str()), s.drafter.as_deref()].into_iter().flatten().filter(|t| !t.is_empty());
    let machine = if s.ranks > 0 && !s.hardware.is_empty() {
        format!("{}× {}", s.ranks, s.hardware)
    } else {
        s.hardware.clone()
    };
    let range = |values: &[u32], show: &dyn Fn(u32) -> String| match values {
        [] => String::new(),
        [one] => show(*one),
        [first, .., last] => format!("{}–{}", show(*first), show(*last)),
    };
    let rounds: u64 = view.summary.cells.iter().map(|c| c.rounds).sum();
    let monte = view.summary.cells.iter().filter_map(|c| finite(c.mc_error)).reduce(f64::max);
    let mut amount = plural(view.summary.cells.len() as u64, "cell");
    if rounds > 0 {
        amount.push_str(&format!(", {}", plural(rounds, "round")));
    }
    if let Some(e) = monte {
        amount.push_str(&format!(", Monte-Carlo error at most {}", percent(e)));
    }
    let tier = if s.tier.is_empty() || s.tier == "bound" || s.overhead_scale == 1.0 {
        s.tier.clone()
    } else {
        format!("{}, overheads × {}", s.tier, fixed(s.overhead_scale, 2))
    };
    let items = [
        ("Models", pair.collect::<Vec<_>>().join(" with ")),
        ("Machine", machine),
        ("Engine priced", s.engine.clone()),
        ("Deployment", s.deployment.clone()),
        ("Tier of the times", tier),
        ("Experts counted as", s.experts.clone().unwrap_or_default()),
        ("Users", range(&view.users, &|u| u.to_string())),
        ("Contexts", range(&view.contexts, &tokens)),
        ("Arrivals", s.arrivals.clone()),
        ("Prefill", s.prefill.clone()),
        ("Amount", amount),
    ];
    html! { dl class="facts" {
        @for (k, v) in items.iter().filter(|(_, v)| !v.is_empty()) { div { dt { (k) } dd { (v) } } }
    } }
}

/// Warnings, failures, and what an engine of today cannot do; nothing when there is none.
pub(super) fn warnings(view: &View<'_>, failed: &[(String, String)]) -> Option<Markup> {
    // The run's own warnings may say it already.
    let said = view.summary.warnings.iter().any(|w| w.contains("hypothetical"));
    let hypothetical = view.priced.setup.hypothetical.as_ref().filter(|_| !said);
    if view.summary.warnings.is_empty() && failed.is_empty() && hypothetical.is_none() {
        return None;
    }
    Some(html! {
        section id="warnings" {
            h2 { "Before believing the figures" }
            ul class="warnings" {
                @if let Some(why) = hypothetical { li { b { "Hypothetical: " } (words::glued(why)) } }
                @for (cell, message) in failed { li class="bad" { b { (cell) " failed: " } (message) } }
                @for w in &view.summary.warnings { li { (words::glued(w)) } }
            }
        }
    })
}

/// How the times were priced and what was left out.
pub(super) fn method(view: &View<'_>) -> Option<Markup> {
    let s = &view.priced.setup;
    let refused = refused(view);
    let notes = notes(view);
    if s.describe.is_empty() && s.not_modelled.is_empty() && refused.is_empty() && notes.is_empty() {
        return None;
    }
    Some(html! {
        section id="method" {
            h2 { "What was priced, and what was not" }
            @if !s.not_modelled.is_empty() {
                h3 { "Not modelled" }
                ul class="plain" { @for line in &s.not_modelled { li { (words::glued(line)) } } }
            }
            @if !refused.is_empty() {
                h3 { "Refused" }
                ul class="plain" { @for line in &refused { li { (words::glued(line)) } } }
            }
            @if !notes.is_empty() {
                h3 { "Remarks on cells" }
                ul class="plain" { @for n in &notes { li { (words::glued(&n.text)) " " span class="dim" { "(" (words::glued(&n.scope)) ")" } } } }
            }
            @if !s.describe.is_empty() {
                details {
                    summary { "Where each figure comes from" }
                    ul class="plain" { @for line in &s.describe { li { (words::glued(line)) } } }
                    @if !s.digest.is_empty() { p class="note" { "Digest of the cost model: " code { (s.digest) } } }
                }
            }
        }
    })
}

/// Refused cells of one context and reason.
struct Refused<'a> {
    context: u32,
    reason: &'a str,
    cap: Option<u32>,
    users: BTreeSet<u32>,
    cells: u64,
}

/// Refused cells by reason: how many, where, and the largest cap that fits.
fn refused(view: &View<'_>) -> Vec<String> {
    let mut found: Vec<Refused<'_>> = Vec::new();
    for r in &view.priced.refused {
        // Reasons of one context that speak of memory differ in their figures only; the first stands for them.
        let same = |f: &Refused<'_>| f.context == r.context && (r.missing_bytes.is_some() || f.reason == r.reason);
        let at = found.iter().position(same).unwrap_or_else(|| {
            let users = BTreeSet::new();
            found.push(Refused { context: r.context, reason: &r.reason, cap: None, users, cells: 0 });
            found.len() - 1
        });
        let f = &mut found[at];
        f.cap = f.cap.max(r.largest_cap);
        f.users.insert(r.concurrency);
        f.cells += 1;
    }
    let said = |f: Refused<'_>| {
        // A reason may name the cap itself.
        let new = f.cap.filter(|c| !f.reason.contains(&c.to_string()));
        let cap = new.map_or_else(String::new, |c| format!("; at most {} fit", words::users(c)));
        let who = fmt::listed(&f.users.iter().map(u32::to_string).collect::<Vec<_>>());
        let (cells, at) = (plural(f.cells, "cell"), words::at_context(f.context));
        let people = if f.users.len() == 1 && f.users.contains(&1) { "user" } else { "users" };
        format!("{cells} at {at} with {who} {people}: {}{cap}.", f.reason.trim_end_matches('.'))
    };
    found.into_iter().map(said).collect()
}

/// Remarks that cells carry, each once.
fn notes(view: &View<'_>) -> Vec<Remark> {
    let cells: Vec<&Cell> = view.summary.cells.iter().collect();
    let noted: Vec<&[String]> = cells.iter().map(|c| c.notes.as_slice()).collect();
    remarks::merged(&cells, &noted)
}

/// The acceptance sources: a table, and their conditional rates by depth.
pub(super) fn acceptances(view: &View<'_>) -> Option<Markup> {
    let all = &view.priced.acceptances;
    if all.is_empty() {
        return None;
    }
    let series: Vec<Series> = all
        .iter()
        .enumerate()
        .filter_map(|(i, a)| {
            let rates = a.conditional.iter().enumerate().filter(|(_, r)| r.is_finite());
            let points: Vec<Point> = rates
                .map(|(d, r)| {
                    let note = format!("{}, depth {}: {}", a.name, d + 1, percent(*r));
                    Point { x: d as f64 + 1.0, y: 100.0 * r, note, ..Point::default() }
                })
                .collect();
            let slot = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][i % 11];
            (!points.is_empty()).then(|| Series { label: a.name.clone(), slot, points, look: Look::Joined })
        })
        .collect();
    let deepest = all.iter().map(|a| a.conditional.len()).max().unwrap_or(0);
    let chart = Chart {
        title: "Accepted share by depth on the spine".to_owned(),
        x: Axis {
            ticks: (1..=deepest).step_by(deepest / 12 + 1).map(|d| (d as f64, d.to_string())).collect(),
            ..Axis::linear("depth in the draft", &[0.5, deepest as f64 + 0.5])
        },
        y: Axis::linear("accepted when reached (%)", &[100.0]),
        series,
        references: Vec::new(),
    }
    .draw();
    Some(html! {
        section id="acceptance" {
            h2 { "Where acceptance comes from" }
            p { "No acceptance source is a default: each is named in the experiment, and the map is drawn for each. Anchors share one shape, so those of the same τ have the same figures." }
            div class="scroll" { table class="sources" {
                thead { tr {
                    th class="text" scope="col" { "Acceptance" }
                    th class="text" scope="col" { "Kind" }
                    th scope="col" { "τ" small { "scaled to" } }
                    th class="text" scope="col" { "of" }
                    th class="text wrap" scope="col" { "Source" }
                } }
                tbody { @for a in all { tr {
                    td class="text" { b { (a.name) } }
                    td class="text" { (a.kind) }
                    td { (fmt::or_dash(a.anchor_tau, |t| fixed(t, 2))) }
                    td class="text" { (anchored(a)) }
                    td class="text wrap" { (words::glued(&a.source)) }
                } } }
            } }
            @if let Some(svg) = chart { div class="figures" { figure { figcaption { "Accepted share by depth on the spine" } (svg) } } }
        }
    })
}

/// The text with each number kept beside its unit.
fn units(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |w: &str| w.chars().next_back().is_some_and(|c| c.is_ascii_digit());
    let mut out = String::new();
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            out.push(if number(words[i - 1]) { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    words::glued(&out)
}

/// What the τ of a source is of: "best-first 8", "the whole chain".
fn anchored(a: &PricedAcceptance) -> String {
    match (a.anchor_tau, &a.anchor_policy, a.anchor_budget) {
        (None, ..) => MISSING.to_owned(),
        (_, Some(policy), Some(b)) => format!("{policy} {b}"),
        (_, None, Some(b)) => format!("chain {b}"),
        (_, Some(policy), None) if policy != "chain" => policy.clone(),
        _ => "the whole chain".to_owned(),
    }
}

/// The questions that the project began with, each with its figures.
pub(super) fn scenarios(view: &View<'_>) -> Option<Markup> {
    let all = &view.priced.scenarios;
    (!all.is_empty()).then(|| {
        html! {
            section id="scenarios" {
                h2 { "The questions that it began with" }
                div class="cards" { @for s in all { article {
                    h3 { (s.title) }
                    p { (words::glued(&s.text)) }
                    @if !s.rows.is_empty() {
                        div class="scroll" { table {
                            @if !s.columns.is_empty() { thead { tr { @for (i, c) in s.columns.iter().enumerate() { th class=[(i == 0).then_some("text")] scope="col" { (c) } } } } }
                            tbody { @for row in &s.rows { tr { @for (i, v) in row.iter().enumerate() { td class=[(i == 0).then_some("text")] { (units(v)) } } } } }
                        } }
                    }
                } } }
            }
        }
    })
}
