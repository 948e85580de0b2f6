//! The page around the figures: head, answer, table.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::fmt::{self, MISSING, finite, plural};
use super::model::{Entry, Group, groups};
use super::plot::swatch;
use super::{Context, answer, grid, sections, table};
use crate::results::{CellDetail, Summary};

/// Colours, and the style of every picture.
pub(super) const PALETTE: &str = include_str!("palette.css");

/// Style of the page around the pictures.
pub(super) const STYLE: &str = include_str!("style.css");

/// The report as one self-contained page: no script, no network, dark and light by the reader's setting.
#[must_use]
pub fn html(summary: &Summary, details: &[CellDetail], ctx: &Context) -> String {
    if let Some(priced) = &ctx.priced {
        return grid::page(&grid::View::new(summary, priced), ctx);
    }
    let groups = groups(summary, details);
    let warnings = sections::warnings(summary, &groups, ctx);
    let notes = sections::notes(summary, &groups);
    let sections = sections::all(&groups, ctx.experts);
    let comparison = sections::comparison(summary);
    let reproduce = sections::reproduce(ctx);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (summary.experiment) " · Treeline" }
                style { (PreEscaped(PALETTE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        p class="brand" { "Treeline" span { " · " (summary.experiment) } }
                        h1 class="answer" { (fmt::unbroken(&answer(summary, details, None))) }
                        (facts(summary, &groups))
                    }
                    @if let Some(w) = &warnings { (w) }
                    @if let Some(n) = &notes { (n) }
                    @if !groups.is_empty() {
                        nav aria-label="Sections" {
                            a href="#table" { "All cells" }
                            @for s in &sections { a href={ "#" (s.id) } { (s.title) } }
                            @if comparison.is_some() { a href="#comparison" { "Predicted against measured" } }
                            @if reproduce.is_some() { a href="#reproduce" { "Run it again" } }
                        }
                        (cells(&groups))
                    }
                    @for s in &sections { (s.draw()) }
                    @if let Some(c) = &comparison { (c) }
                    @if let Some(r) = &reproduce { (r) }
                }
            }
        }
    };
    page.into_string()
}

/// What the answer covers: model, machine, workload, amount.
fn facts(summary: &Summary, groups: &[Group<'_>]) -> Markup {
    let distinct = |pick: fn(&crate::results::Cell) -> Option<String>| -> String {
        let mut seen: Vec<String> = Vec::new();
        for text in summary.cells.iter().filter_map(pick).filter(|t| !t.is_empty()) {
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        seen.join("; ")
    };
    let domains = {
        let mut seen: Vec<&str> = Vec::new();
        for row in groups.iter().flat_map(|g| g.all()).filter_map(|(_, e)| e.detail).flat_map(|d| &d.per_request) {
            if !seen.contains(&row.domain.as_str()) {
                seen.push(&row.domain);
            }
        }
        seen
    };
    let workload = distinct(|c| Some(c.workload.clone()));
    let steps: u64 = summary.cells.iter().map(|c| c.rounds).sum();
    let items = [
        ("Models", distinct(|c| c.deployment.as_deref().map(brief))),
        ("Backend", distinct(|c| Some(c.backend.clone()))),
        ("Machine", distinct(|c| c.hardware.clone())),
        ("Workload", workload.clone()),
        ("Domains", if domains.iter().all(|d| workload.contains(d)) { String::new() } else { domains.join(", ") }),
        ("Acceptance", distinct(|c| c.acceptance.clone())),
        ("Amount", if steps > 0 { amount(summary.cells.len() as u64, steps) } else { String::new() }),
    ];
    html! { dl class="facts" {
        @for (k, v) in items.iter().filter(|(_, v)| !v.is_empty()) { div { dt { (k) } dd { (v) } } }
    } }
}

/// The text without what it says in parentheses: the manifest below has it whole.
pub(super) fn brief(text: &str) -> String {
    let mut depth = 0u32;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.replace(" ,", ",").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn amount(cells: u64, steps: u64) -> String {
    format!("{}, {} in all", plural(cells, "cell"), plural(steps, "verify step"))
}

/// The table of all cells, with a picture of each interval.
fn cells(groups: &[Group<'_>]) -> Markup {
    let columns = table::columns(groups);
    let range = span(groups);
    html! {
        section id="table" {
            h2 { "All cells" }
            (sections::glossary())
            div class="scroll" {
                table {
                    thead { tr {
                        @for c in &columns {
                            th class=[c.text.then_some("text")] scope="col" { (c.long) @if !c.unit.is_empty() { small { (c.unit) } } }
                            @if c.long == "τ" && range.is_some() { th class="strip" scope="col" { (axis(range)) } }
                        }
                    } }
                    @for group in groups {
                        tbody {
                            tr class="group" { th class="text" scope="rowgroup" colspan=(columns.len() + usize::from(range.is_some())) { span { (group.label) } } }
                            @for (line, e) in group.all() {
                                tr {
                                    @for c in &columns {
                                        @let text = (c.show)(line, &e);
                                        td class=[class(c.text, &text)] {
                                            @if c.text { (swatch(line.slot, false)) }
                                            (text)
                                        }
                                        @if c.long == "τ" && range.is_some() { td class="strip" { (strip(line.slot, &e, range)) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class(text: bool, shown: &str) -> Option<&'static str> {
    match (text, shown) {
        (true, _) => Some("text"),
        (false, MISSING) => Some("missing"),
        (false, _) => None,
    }
}

/// Range of τ over all cells with their intervals; `None` when all are equal or absent.
fn span(groups: &[Group<'_>]) -> Option<(f64, f64)> {
    let cells = groups.iter().flat_map(|g| g.all()).map(|(_, e)| e.cell);
    let values = cells.flat_map(|c| [c.tau, c.tau_lo, c.tau_hi]).filter_map(finite);
    let (lo, hi) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
    (hi > lo).then_some((lo, hi))
}

/// Where a value lies in the strip, 4 to 96.
fn place(value: f64, (lo, hi): (f64, f64)) -> String {
    format!("{:.1}", 4.0 + 92.0 * (value - lo) / (hi - lo))
}

/// The ends of the strips' common axis.
fn axis(range: Option<(f64, f64)>) -> Markup {
    let Some((lo, hi)) = range else { return html! {} };
    html! { small class="ends" { span { (fmt::fixed(lo, 1)) } span { (fmt::fixed(hi, 1)) } } }
}

/// τ and its interval on the common axis.
fn strip(slot: usize, e: &Entry<'_>, range: Option<(f64, f64)>) -> Markup {
    let Some((tau, range)) = finite(e.cell.tau).zip(range) else { return html! {} };
    let ends = finite(e.cell.tau_lo).zip(finite(e.cell.tau_hi));
    html! {
        svg class={ "s" (slot) } viewBox="0 0 100 12" width="100" height="12" aria-hidden="true" {
            @if let Some((lo, hi)) = ends {
                line class="bar" x1=(place(lo, range)) x2=(place(hi, range)) y1="6" y2="6" {}
            }
            circle class="mark" cx=(place(tau, range)) cy="6" r="3.2" {}
        }
    }
}
