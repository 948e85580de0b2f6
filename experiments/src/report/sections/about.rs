//! What a reader must know around the figures: warnings, comparison, words, and how to run it again.

use maud::{Markup, html};
use serde_json::Value;

use crate::report::fmt::{finite, fixed, percent, plural, short, unbroken};
use crate::report::model::{Group, scalar};
use crate::report::remarks::{self, Remark};
use crate::report::{Context, sections::name};
use crate::results::{Cell, Summary};

/// What a seed fixes where steps are timed.
const TIMED: &str = ": the same seed and files give the same trees and tokens on any number of threads; times differ.";

/// What a seed fixes where steps are priced.
const PRICED: &str = ": the same seed and files give the same figures on any number of threads.";

/// Lines of the manifest that are shown; a manifest is small.
const MANIFEST_LINES: usize = 200;

/// The run's warnings, failed cells and requests: what asks for something to be done. Nothing when there are none.
pub(in crate::report) fn warnings(summary: &Summary, groups: &[Group<'_>], ctx: &Context) -> Option<Markup> {
    let faults = faults(groups);
    if summary.warnings.is_empty() && faults.is_empty() && ctx.failed.is_empty() {
        return None;
    }
    Some(html! {
        section id="warnings" {
            h2 { "Before believing the figures" }
            ul class="warnings" {
                @for (cell, message) in &ctx.failed { li class="bad" { b { (cell) " failed: " } (message) } }
                @for w in &summary.warnings { li { (unbroken(w)) } }
                @for f in &faults { li class="bad" { (f) } }
            }
        }
    })
}

/// Requests that ended with a fault, one line for each message.
fn faults(groups: &[Group<'_>]) -> Vec<String> {
    let mut found: Vec<(&str, u64, String)> = Vec::new();
    for group in groups {
        for (line, e) in group.all() {
            for (id, message) in e.detail.map_or(&[][..], |d| &d.faults) {
                match found.iter_mut().find(|(text, _, _)| text == message) {
                    Some((_, n, _)) => *n += 1,
                    None => found.push((message, 1, format!("request {id} of {} ({})", name(line, e), group.label))),
                }
            }
        }
    }
    let said = |(message, n, first): (&str, u64, String)| match n {
        1 => format!("{first} ended with a fault: {message}"),
        n => format!("{} ended with the same fault, {first} among them: {message}", plural(n, "request")),
    };
    found.into_iter().map(said).collect()
}

/// How it was measured: facts that ask for nothing. Remarks that cells share are said once.
pub(in crate::report) fn notes(summary: &Summary, groups: &[Group<'_>]) -> Option<Markup> {
    let cells: Vec<&Cell> = summary.cells.iter().collect();
    let noted: Vec<&[String]> = cells.iter().map(|c| c.notes.as_slice()).collect();
    let mut notes = remarks::merged(&cells, &noted);
    notes.extend(undrafted(&cells, groups));
    (!notes.is_empty()).then(|| {
        html! {
            section id="notes" {
                h2 { "How it was measured" }
                ul { @for n in &notes { li { (unbroken(&n.text)) " " span class="dim" { "(" (unbroken(&n.scope)) ")" } } } }
            }
        }
    })
}

/// Steps at the end of a response have nothing to draft.
fn undrafted(cells: &[&Cell], groups: &[Group<'_>]) -> Option<Remark> {
    let mut steps: Vec<u64> = Vec::new();
    let mut at = Vec::new();
    for (_, e) in groups.iter().flat_map(|g| g.drafting()) {
        let drafted = e.detail.and_then(|d| d.by_depth.first()).map_or(0, |d| d.reached);
        let bare = e.cell.rounds.saturating_sub(drafted);
        // More than one a response has another reason, and then the run notes it itself.
        if drafted > 0 && bare > 0 && bare <= u64::from(e.cell.requests) {
            steps.push(bare);
            at.extend(cells.iter().position(|c| std::ptr::eq(*c, e.cell)));
        }
    }
    at.sort_unstable();
    let (lo, hi) = (*steps.iter().min()?, *steps.iter().max()?);
    let many = if lo == hi { plural(lo, "step") } else { format!("{lo}–{hi} steps") };
    let text = format!("{many} of a cell drafted nothing: the last token of a response needs no draft");
    Some(Remark { text, scope: remarks::scope(cells, &at) })
}

/// Predicted against measured, where the run has both.
pub(in crate::report) fn comparison(summary: &Summary) -> Option<Markup> {
    let c = &summary.comparison;
    if c.pairs.is_empty() {
        return None;
    }
    let facts: Vec<(&str, String)> = [
        ("mean absolute error", finite(c.mape).map(|v| format!("{} %", short(v)))),
        ("mean signed error", finite(c.bias).map(|v| format!("{} %", short(v)))),
        ("Kendall's τ of the policies' order", finite(c.kendall).map(|v| fixed(v, 2))),
        ("throughput lost by trusting the prediction", finite(c.regret).map(short)),
    ]
    .into_iter()
    .filter_map(|(k, v)| v.map(|v| (k, v)))
    .collect();
    Some(html! {
        section id="comparison" {
            h2 { "Predicted against measured" }
            dl { @for (k, v) in &facts { dt { (k) } dd { (v) } } }
            @if !c.config_match.is_empty() { p { "Both configurations share: " (c.config_match.join(", ")) "." } }
            div class="scroll" { table {
                thead { tr { th class="text" { "Cell" } th class="text" { "Metric" } th { "Predicted" } th { "Measured" } th { "Error" } } }
                tbody { @for p in &c.pairs { tr {
                    td class="text" { @match summary.cells.get(p.cell) {
                        Some(cell) => { (cell.policy) " " (cell.budget) ", T = " (crate::report::fmt::temperature(cell.temperature)) }
                        None => { (p.cell) }
                    } }
                    td class="text" { (p.metric) }
                    td { (short(p.predicted)) }
                    td { (short(p.measured)) }
                    td { (percent(p.error)) }
                } } }
            } }
        }
    })
}

/// The words of the page.
pub(in crate::report) fn glossary() -> Markup {
    html! {
        p class="glossary" {
            b { "τ" } ": tokens committed per verify step, the bonus token included; Σ tokens / Σ steps. Unweighted: mean of the responses' own τ. No loops: τ over the responses that do not end in one. "
            b { "Budget" } ": draft nodes without the root; 0 is plain decoding. "
            b { "Rows" } ": positions that the target verifies in a step, 1 + nodes. "
            b { "Intervals" } ": 95 %, bootstrap over prompts."
        }
    }
}

/// How to run it again, and on what it ran.
pub(in crate::report) fn reproduce(ctx: &Context) -> Option<Markup> {
    let mut lines = Vec::new();
    flatten("", &ctx.manifest, &mut lines);
    if ctx.command.is_empty() && lines.is_empty() && ctx.resolved_toml.is_empty() && ctx.seed.is_none() {
        return None;
    }
    Some(html! {
        section id="reproduce" {
            h2 { "Run it again" }
            @if !ctx.command.is_empty() { pre class="command" { code { (ctx.command) } } }
            @if let Some(seed) = ctx.seed {
                p { "Seed " code { (seed) } (if ctx.priced.is_some() { PRICED } else { TIMED }) }
            }
            @if !lines.is_empty() {
                details {
                    summary { "Machine, versions and digests" }
                    dl class="manifest" { @for (k, v) in &lines { dt { (k) } dd { code { (v) } } } }
                }
            }
            @if !ctx.resolved_toml.is_empty() {
                details {
                    summary { "Every setting in force" }
                    pre { code { (ctx.resolved_toml) } }
                }
            }
        }
    })
}

/// A JSON value as dotted keys with their scalars, lists of scalars in one line.
fn flatten(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
    if out.len() >= MANIFEST_LINES {
        return;
    }
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&join(k), v, out)),
        Value::Array(list) if list.iter().any(|v| v.is_object() || v.is_array()) => {
            list.iter().enumerate().for_each(|(i, v)| flatten(&join(&i.to_string()), v, out));
        }
        Value::Array(list) => out.push((path.to_owned(), list.iter().map(scalar).collect::<Vec<_>>().join(", "))),
        Value::Null if path.is_empty() => {}
        other => out.push((path.to_owned(), scalar(other))),
    }
}
