//! The marks of the palette: a colour and a shape each, so that no reading depends on colour alone.

use maud::{Markup, html};

use super::px;

/// Half the size of a mark.
pub(super) const RADIUS: f64 = 3.8;

/// The outline of a slot's mark around (x, y), as path data.
fn outline(slot: usize, x: f64, y: f64, r: f64) -> String {
    let corners = |list: &[(f64, f64)]| {
        let points: Vec<String> =
            list.iter().map(|(dx, dy)| format!("{} {}", px(x + dx * r), px(y + dy * r))).collect();
        format!("M{}Z", points.join("L"))
    };
    match slot % 7 {
        // Circle, as two arcs.
        1 => format!(
            "M{} {y}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z",
            px(x - r),
            y = px(y),
            r = px(r),
            d = px(2.0 * r)
        ),
        2 => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        3 => corners(&[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)]),
        4 => corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        5 => corners(&[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)]),
        6 => corners(&[(0.0, -1.25), (1.2, -0.3), (0.75, 1.1), (-0.75, 1.1), (-1.2, -0.3)]),
        // A cross of two bars for the chain.
        _ => corners(&[
            (-0.4, -1.2),
            (0.4, -1.2),
            (0.4, -0.4),
            (1.2, -0.4),
            (1.2, 0.4),
            (0.4, 0.4),
            (0.4, 1.2),
            (-0.4, 1.2),
            (-0.4, 0.4),
            (-1.2, 0.4),
            (-1.2, -0.4),
            (-0.4, -0.4),
        ]),
    }
}

/// One mark of radius `r`; `note` appears when pointed at.
pub(super) fn mark(slot: usize, x: f64, y: f64, r: f64, note: &str) -> Markup {
    html! { path class="mark" d=(outline(slot, x, y, r)) { @if !note.is_empty() { title { (note) } } } }
}

/// A mark in a line of text.
pub(in crate::report) fn swatch(slot: usize, hollow: bool) -> Markup {
    html! { svg class={ "swatch s" (slot) @if hollow { " hollow" } } viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" {
        (mark(slot, 6.0, 6.0, 4.2, ""))
    } }
}
