//! The page of a priced run.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::view::{View, tokens};
use super::{about, answer, breakdown, curves, maps, pareto, tables, waterfall, words};
use crate::report::page::{PALETTE, STYLE};
use crate::report::plot::{Size, heat_key};
use crate::report::sections::{self, Section};
use crate::report::{Context, fmt};

/// Style of what only priced runs have.
pub(super) const GRID: &str = include_str!("../grid.css");

/// Acceptance sources up to which every large map stands open.
const OPEN: usize = 4;

/// The page: what to run, the maps, and where they come from.
pub(in crate::report) fn page(view: &View<'_>, ctx: &Context) -> String {
    let warnings = about::warnings(view, &ctx.failed);
    let figures: Vec<Section> = [
        waterfall::waterfall(view),
        breakdown::breakdowns(view),
        curves::curves(view),
        pareto::pareto(view),
        curves::experts(view),
    ]
    .into_iter()
    .flatten()
    .collect();
    let blocks: Vec<(&str, &str, Option<Markup>)> = vec![
        ("answers", "What to run", answers(view)),
        ("map", "The map", map(view)),
        ("scenarios", "The first questions", about::scenarios(view)),
        ("acceptance", "Acceptance", about::acceptances(view)),
        ("comparison", "Predicted against measured", sections::comparison(view.summary)),
        ("method", "What was priced", about::method(view)),
        ("reproduce", "Run it again", sections::reproduce(ctx)),
    ];
    let (front, back) = blocks.split_at(2);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (view.summary.experiment) " · Treeline" }
                style { (PreEscaped(PALETTE)) (PreEscaped(STYLE)) (PreEscaped(GRID)) }
            }
            body { main {
                header {
                    p class="brand" { "Treeline" span { " · " (view.summary.experiment) } }
                    h1 class="answer" { (words::glued(&answer::headline(view))) }
                    @let caveats = answer::page_caveats(view);
                    @if !caveats.is_empty() { p class="caveats" { "How far it carries: " (words::glued(&caveats.join("; "))) "." } }
                    (about::facts(view))
                }
                @if let Some(w) = &warnings { (w) }
                nav aria-label="Sections" {
                    @for (id, name, _) in front.iter().filter(|b| b.2.is_some()) { a href={ "#" (id) } { (name) } }
                    @for s in &figures { a href={ "#" (s.id) } { (s.title) } }
                    @for (id, name, _) in back.iter().filter(|b| b.2.is_some()) { a href={ "#" (id) } { (name) } }
                }
                @for (_, _, block) in front { @if let Some(b) = block { (b) } }
                @for s in &figures {
                    (s.draw())
                    @if s.id == "waterfall" { @if let Some(m) = waterfall::margins(view) { div class="after" { (m) } } }
                }
                @for (_, _, block) in back { @if let Some(b) = block { (b) } }
            } }
        }
    };
    page.into_string()
}

/// What to run: the table to act on, what stands behind the headline, everything else folded.
fn answers(view: &View<'_>) -> Option<Markup> {
    let context = view.context()?;
    let first = tables::overview(view, context)?;
    let behind = answer::behind(view);
    let others: Vec<(u32, Markup)> = view
        .contexts
        .iter()
        .filter(|c| **c != context)
        .filter_map(|&c| Some((c, tables::overview(view, c)?)))
        .collect();
    Some(html! {
        section id="answers" {
            h2 { "What to run at " (words::at_context(context)) }
            p class="glossary" {
                b { "Gain" } ": throughput over plain decoding with as many users; ± joins the 95 % interval over requests with what uncertain inputs of acceptance and cost may do at their stated ends; “at least” where something of it was not computed. "
                b { "Nodes" } ": draft nodes without the root; rows = 1 + nodes; ≈ where the policy chooses them step by step: their mean. "
                b { "Best in" } ": share of the resamples in which the choice wins."
            }
            (first)
            ul class="plain behind" { @for line in &behind { li { (words::glued(line)) } } }
            @if !others.is_empty() {
                details { summary { "Other contexts: " (fmt::listed(&others.iter().map(|(c, _)| tokens(*c)).collect::<Vec<_>>())) }
                    @for (c, table) in &others { h3 { (words::at_context(*c)) } (table) }
                }
            }
            details { summary { "Intervals, runners-up and what would change each answer" }
                @for a in 0..view.anchors.len() {
                    @if let Some(t) = tables::full(view, a, context) { h3 { (view.anchor(a)) ", " (words::at_context(context)) } (t) }
                }
            }
            details { summary { "In words, by acceptance" }
                dl class="spans" { @for (who, what) in answer::by_anchor(view) { dt { (who) } dd { (words::glued(&what)) } } }
            }
        }
    })
}

/// Maps with their captions.
fn figures(view: &View<'_>, context: u32, maps: &[(usize, Markup)]) -> Markup {
    html! { div class="figures maps" {
        @for (a, svg) in maps { figure { figcaption { (view.anchor(*a)) ", " (words::at_context(context)) } (svg) } }
    } }
}

/// The maps: large at the report's context, small for everything.
fn map(view: &View<'_>) -> Option<Markup> {
    let context = view.context()?;
    let draw = |a: usize| Some((a, maps::map(view, a, context, Size::Large)?.draw()?));
    let drawn: Vec<(usize, Markup)> = (0..view.anchors.len()).filter_map(draw).collect();
    // Many sources: the leading ones stand open, the others are one click away.
    let leading = view.leading();
    let few = drawn.len() <= OPEN;
    let (large, more): (Vec<_>, Vec<_>) = drawn.into_iter().partition(|(a, _)| few || leading.contains(a));
    let small = maps::multiples(view);
    if large.is_empty() && small.is_none() {
        return None;
    }
    let refused = !view.priced.refused.is_empty();
    let flags = view.summary.cells.iter().any(|c| c.in_domain == Some(false));
    let ladder = view.ladder.map(|l| view.lines[l].label.clone()).unwrap_or_default();
    Some(html! {
        section id="map" {
            h2 { "Speed-up by budget and concurrency" }
            p { "Rows: budgets of " b { (ladder) } " trees; the line is the ceiling, the budget that pays most at each concurrency." }
            (heat_key(refused, flags))
            (figures(view, context, &large))
            @if !more.is_empty() {
                details { summary { "Maps of the other " (more.len()) " acceptance sources" } (figures(view, context, &more)) }
            }
            @if let Some(s) = small { h3 { "Every acceptance and context" } p class="note" { "Across: users; up: budget. Colours and line as above." } (s) }
        }
    })
}
