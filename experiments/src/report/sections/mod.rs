//! The sections of the page below the table: each takes the panels and gives a section, or nothing.

mod about;
mod acceptance;
mod cost;
mod losses;
mod phases;
mod position;

use maud::{Markup, html};

use super::fmt;
use super::model::{Entry, Group, Line};
use super::plot::swatch;

pub(super) use acceptance::tau_chart;
pub(super) use losses::waterfall_bars;

pub(super) use about::{comparison, glossary, notes, reproduce, warnings};

/// A section with its figures.
pub(super) struct Section {
    /// Anchor.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What the figures say, in words: a paragraph each.
    pub lead: Vec<String>,
    /// Caption and picture.
    pub figures: Vec<(Markup, Markup)>,
    /// How to read them.
    pub note: String,
}

/// All sections with something to show, in reading order.
pub(super) fn all(groups: &[Group<'_>], experts: Option<super::RoutedExperts>) -> Vec<Section> {
    [
        acceptance::tau_by_budget(groups),
        position::by_position(groups),
        losses::waterfall(groups),
        acceptance::domains(groups),
        acceptance::calibration(groups),
        cost::experts(groups, experts),
        cost::throughput(groups),
        cost::step_time(groups),
        phases::phases(groups),
        losses::loops(groups),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Section {
    /// The section as markup.
    pub fn draw(&self) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @for text in &self.lead { p { (fmt::unbroken(text)) } }
                div class="figures" {
                    @for (caption, picture) in &self.figures {
                        figure { figcaption { (caption) } (picture) }
                    }
                }
                @if !self.note.is_empty() { p class="note" { (fmt::unbroken(&self.note)) } }
            }
        }
    }
}

/// One figure per panel, captioned by the panel; `None` when no panel has one.
fn panels(groups: &[Group<'_>], draw: impl Fn(&Group<'_>) -> Option<Markup>) -> Option<Vec<(Markup, Markup)>> {
    let figures: Vec<_> = groups.iter().filter_map(|g| draw(g).map(|m| (html! { (g.label) }, m))).collect();
    (!figures.is_empty()).then_some(figures)
}

/// "best-first 16", "plain".
pub(super) fn name(line: &Line<'_>, entry: Entry<'_>) -> String {
    match entry.cell.budget {
        0 => line.label.clone(),
        n if entry.below_cap() => format!("{} ≤ {n}", line.label),
        n => format!("{} {n}", line.label),
    }
}

/// Names with their marks, for a caption.
fn key(entries: &[(usize, bool, String)]) -> Markup {
    html! { @for (slot, hollow, label) in entries { span class="key-item" { (swatch(*slot, *hollow)) (label) } } }
}
