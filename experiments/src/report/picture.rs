//! One picture of a run for a page that is not the report: τ against budget, and where tokens are lost.

use maud::{Markup, PreEscaped, html};

use super::answer::headline;
use super::fmt::plural;
use super::grid;
use super::model::{Group, groups};
use super::page::PALETTE;
use super::plot::{Drawn, px, text_width};
use super::sections::{tau_chart, waterfall_bars};
use crate::results::{CellDetail, Priced, Summary};

/// Width of a panel, as drawn.
const PANEL: f64 = 440.0;
/// Air around and between the panels.
const AIR: f64 = 22.0;
/// Top of the panels, below their titles.
const TOP: f64 = 56.0;
/// Height of the τ chart.
const CHART: f64 = 310.0;
/// From one line of the legend to the next.
const LINE: f64 = 18.0;
/// Left of a legend's word: its key and a gap.
const KEY: f64 = 18.0;

/// The headline panel as a self-contained SVG that follows the reader's light or dark setting on a ground of its own.
/// `None` when no cell has a τ to draw. Of a priced run: the maps of its leading acceptance sources.
#[must_use]
pub fn picture(summary: &Summary, details: &[CellDetail], priced: Option<&Priced>) -> Option<String> {
    if let Some(priced) = priced {
        return grid::picture(&grid::View::new(summary, priced));
    }
    let groups = groups(summary, details);
    let (group, _) = headline(&groups)?;
    let chart = tau_chart(group)?;
    let losses = waterfall_bars(group).draw_parts();
    let width = if losses.is_some() { 2.0 * PANEL + 3.0 * AIR } else { PANEL + 2.0 * AIR };
    let right = 2.0 * AIR + PANEL;
    let second = losses.map(|drawn| panel(&drawn, right));
    let bottom = second.as_ref().map_or(0.0, |(_, end)| *end).max(TOP + CHART);
    let height = bottom + 34.0;
    let title = format!("Accepted tokens against budget, {}", group.label);
    let page = html! {
        svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox={ "0 0 " (px(width)) " " (px(height)) } width=(px(width)) height=(px(height)) role="img" aria-label=(title) {
            style { (PreEscaped(PALETTE)) }
            rect class="ground" width=(px(width)) height=(px(height)) rx="8" {}
            text class="head" x=(px(AIR)) y="34" { (title) }
            svg x=(px(AIR)) y=(px(TOP)) width=(px(PANEL)) height=(px(CHART)) { (chart) }
            @if let Some((second, _)) = &second {
                text class="head" x=(px(right)) y="34" { "Where tokens are lost, " (group.label) }
                (second)
            }
            text class="title" x=(px(AIR)) y=(px(height - 14.0)) { (source(summary, group)) }
        }
    };
    // The page's markup has no void elements, so it is XML as it stands; only the file's end is added.
    Some(page.into_string() + "\n")
}

/// Bars below their legend, and where they end.
fn panel(drawn: &Drawn, left: f64) -> (Markup, f64) {
    let (mut x, mut y) = (0.0, TOP + 4.0);
    let mut keys = Vec::new();
    for (label, class) in &drawn.legend {
        let wide = KEY + text_width(label) + 12.0;
        if x > 0.0 && x + wide > PANEL {
            (x, y) = (0.0, y + LINE);
        }
        keys.push((left + x, y, label, class));
        x += wide;
    }
    let top = y + LINE - 4.0;
    let markup = html! {
        @for (x, y, label, class) in &keys {
            @if class.is_empty() {
                line class="tickmark" x1=(px(x + 6.0)) x2=(px(x + 6.0)) y1=(px(y - 2.0)) y2=(px(y + 12.0)) {}
            } @else {
                rect class=(class) x=(px(*x)) y=(px(y - 1.0)) width="12" height="12" rx="2" {}
            }
            text class="title" x=(px(x + KEY)) y=(px(y + 9.0)) { (label) }
        }
        svg x=(px(left)) y=(px(top)) width=(px(PANEL)) height=(px(drawn.height)) { (drawn.svg) }
    };
    (markup, top + drawn.height)
}

/// Where the figures come from, in one line.
fn source(summary: &Summary, group: &Group<'_>) -> String {
    let mut parts = Vec::new();
    if let Some((_, e)) = group.all().next() {
        parts.extend(e.cell.deployment.as_deref().map(super::page::brief));
        parts.push(plural(u64::from(e.cell.requests), "prompt"));
        let machine = e.cell.hardware.as_ref().map_or_else(String::new, |h| format!(" on {h}"));
        parts.push(format!("τ {}{machine}", e.cell.source.tau));
    }
    parts.push("bars: 95 % intervals over prompts".to_owned());
    format!("{}: {}", summary.experiment, parts.join("; "))
}
