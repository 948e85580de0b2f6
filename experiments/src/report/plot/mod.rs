//! A small SVG plotter: axes with round ticks and units, interval bars, labels beside the data, colours from the page's
//! style sheet (so that dark mode and print need no second picture).
//!
//! Plotting crates write fixed colours and legend boxes into their pictures; a report that is read on a phone, in the
//! dark and on paper needs neither. Everything here is a pure function of its input; coordinates have one decimal.

mod bars;
mod chart;
mod dots;
mod heat;
mod marks;
mod place;
mod scale;
mod shades;
mod steps;
mod strokes;
mod tile;

pub(super) use bars::{Bar, Bars, Drawn, Part};
pub(super) use chart::{Axis, Chart, Look, Point, Reference, Series};
pub(super) use dots::{Dot, DotRow, Dots};
pub(super) use heat::{Heat, Size};
pub(super) use marks::swatch;
pub(super) use scale::Kind;
pub(super) use shades::{EDGES, edge, heat_key, shade};
pub(super) use steps::{Move, Step, Steps};
pub(super) use tile::{HeatRow, Tile, printed};

/// Width of every picture in its own units; the page scales it.
const WIDTH: f64 = 440.0;

/// Font size of all text in a picture.
const FONT: f64 = 11.5;

/// About how wide a text is drawn at size [`FONT`], for the wider of the sans-serif fonts that readers have.
pub(super) fn text_width(text: &str) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.32,
            't' | 'f' | 'r' | '(' | ')' | '-' | ' ' | '/' => 0.4,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.93,
            'A'..='Z' => 0.72,
            _ => 0.63,
        })
        .sum();
    em * FONT
}

/// How much wider bold text is.
const BOLD: f64 = 1.1;

/// The text, cut with an ellipsis to about `room` units.
fn clipped(text: &str, room: f64) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if text_width(&out) > room - 0.6 * FONT {
            out.pop();
            break;
        }
    }
    out.push('…');
    out
}

/// A coordinate with one decimal.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
