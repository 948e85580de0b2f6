//! The maps: speed-up over plain by budget and concurrency, with the ceiling drawn.

use maud::{Markup, html};

use super::view::{Place, View};
use super::words;
use crate::report::fmt::{fixed, interval, short};
use crate::report::plot::{Heat, HeatRow, Size, Tile};
use crate::results::Cell;

/// Names of the axes.
const X: &str = "users (requests decoded together)";
const Y: &str = "budget (nodes)";

/// The map of one acceptance and context; nothing where no cell was asked for.
pub(in crate::report) fn map(view: &View<'_>, anchor: usize, context: u32, size: Size) -> Option<Heat> {
    let ladder_line = view.ladder?;
    let place = |u: &u32| (anchor, context, *u);
    let column = |tile: &dyn Fn(Place) -> Tile| view.users.iter().map(|u| tile(place(u))).collect::<Vec<_>>();
    let none = if size == Size::Large { "plain" } else { "0" };
    let mut ladder =
        vec![HeatRow { label: none.to_owned(), tiles: column(&|at| tile(view, at, view.plain(at), 0, size)) }];
    for &budget in &view.lines[ladder_line].budgets {
        let tiles = column(&|at| tile(view, at, view.cell(at, ladder_line, budget), budget, size));
        ladder.push(HeatRow { label: budget.to_string(), tiles });
    }
    let others = view.lines.iter().enumerate().filter(|(i, _)| *i != ladder_line && size == Size::Large);
    let above = others.map(|(i, line)| {
        let one = if line.budgets.len() == 1 { format!(" {}", line.budgets[0]) } else { String::new() };
        let tiles = column(&|at| match view.best_of(at, i) {
            Some(cell) => tile(view, at, Some(cell), cell.budget, size),
            None => tile(view, at, None, line.budgets.first().copied().unwrap_or(0), size),
        });
        HeatRow { label: format!("{}{one}", line.label), tiles }
    });
    let asked = |r: &HeatRow| r.tiles.iter().any(|t| *t != Tile::Absent);
    let above: Vec<HeatRow> = above.filter(asked).collect();
    ladder.retain(asked);
    let heat = Heat {
        title: format!("Speed-up over plain decoding, {}, {}", view.anchor(anchor), words::at_context(context)),
        x_label: X.to_owned(),
        columns: view.users.iter().map(u32::to_string).collect(),
        y_label: Y.to_owned(),
        ladder,
        above,
        size,
    };
    (!heat.ladder.is_empty()).then_some(heat)
}

/// A cell, or why there is none.
fn tile(view: &View<'_>, at: Place, cell: Option<&Cell>, budget: u32, size: Size) -> Tile {
    if let Some((cell, value)) = cell.and_then(|c| Some((c, c.speedup.filter(|s| s.is_finite())?))) {
        let large = size == Size::Large;
        let note = if large { note(cell, value) } else { String::new() };
        return Tile::Ratio { value, note, flag: large && cell.in_domain == Some(false) };
    }
    let refused = view.refused(at).iter().find(|r| r.choice.budget == budget).or_else(|| {
        // What refuses plain decoding for want of memory refuses every tree.
        view.refused(at).iter().find(|r| r.choice.budget == 0 && r.missing_bytes.is_some())
    });
    refused.map_or(Tile::Absent, |r| Tile::Refused(if size == Size::Large { r.reason.clone() } else { String::new() }))
}

/// What a tile says when pointed at.
fn note(cell: &Cell, speedup: f64) -> String {
    let name = match cell.budget {
        0 => "plain".to_owned(),
        n => format!("{} {n}", cell.policy),
    };
    let ends = interval(cell.speedup_lo, cell.speedup_hi, 2).map_or_else(String::new, |i| format!(" ({i})"));
    let mut text = format!("{name}, {}: {}×{ends}", words::users(cell.concurrency), fixed(speedup, 2));
    if let Some(tau) = cell.tau {
        text.push_str(&format!(", τ {}", fixed(tau, 2)));
    }
    if let Some(ms) = cell.step_ms {
        text.push_str(&format!(", step {} ms", short(ms)));
    }
    text
}

/// All maps small, acceptance sources down and contexts across.
pub(super) fn multiples(view: &View<'_>) -> Option<Markup> {
    let anchors: Vec<usize> = (0..view.anchors.len())
        .filter(|&a| view.contexts.iter().any(|&c| map(view, a, c, Size::Small).is_some()))
        .collect();
    if anchors.is_empty() || view.contexts.len() * anchors.len() < 2 {
        return None;
    }
    let n = view.contexts.len();
    Some(html! {
        div class="scroll" {
            div class="multiples" style={ "grid-template-columns: minmax(72px, auto) repeat(" (n) ", minmax(112px, 1fr)); max-width: " (110 + 210 * n) "px" } {
                span {}
                @for &c in &view.contexts { b { (words::at_context(c)) } }
                @for &a in &anchors {
                    span class="who" { b { (view.anchors[a]) } @if let Some(tau) = view.unnamed_tau(a) { small { (tau) } } }
                    @for &c in &view.contexts {
                        div { @if let Some(svg) = map(view, a, c, Size::Small).and_then(|m| m.draw()) { (svg) } @else { span class="dim" { "–" } } }
                    }
                }
            }
        }
    })
}
