//! Means with intervals by category, single observations behind them.

use maud::{Markup, html};

use super::marks::{self, RADIUS};
use super::scale::{Kind, Scale};
use super::{FONT, WIDTH, clipped, px, text_width};

const SUB: f64 = 13.0;
const GAP: f64 = 10.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 42.0;

/// One mean.
pub(in crate::report) struct Dot {
    /// Palette slot.
    pub slot: usize,
    /// The value.
    pub mid: f64,
    /// Its interval.
    pub ends: Option<(f64, f64)>,
    /// Single observations.
    pub behind: Vec<f64>,
    /// Drawn as an outline, to tell it from another cell of the same policy.
    pub hollow: bool,
    /// What it says when pointed at.
    pub note: String,
}

/// The means of one category.
pub(in crate::report) struct DotRow {
    /// Its name.
    pub label: String,
    /// From the top.
    pub dots: Vec<Dot>,
}

/// Categories over one axis.
pub(in crate::report) struct Dots {
    /// For readers who do not see it.
    pub title: String,
    /// What the axis measures, with its unit.
    pub label: String,
    /// From the top.
    pub rows: Vec<DotRow>,
    /// A value that must be inside.
    pub include: f64,
}

impl Dots {
    /// The picture, or nothing without a finite mean.
    pub fn draw(mut self) -> Option<Markup> {
        for row in &mut self.rows {
            row.dots.retain(|d| d.mid.is_finite());
        }
        self.rows.retain(|r| !r.dots.is_empty());
        if self.rows.is_empty() {
            return None;
        }
        let values = self.rows.iter().flat_map(|r| &r.dots).flat_map(|d| {
            let ends = d.ends.map_or([d.mid; 2], |e| [e.0, e.1]);
            d.behind.iter().copied().chain(ends).chain([d.mid])
        });
        let (lo, hi) =
            values.filter(|v| v.is_finite()).fold((self.include, self.include), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let left = self.rows.iter().map(|r| text_width(&r.label)).fold(40.0, f64::max).min(150.0) + 14.0;
        let x = Scale::new(Kind::Linear, lo, hi, left, WIDTH - 14.0, 6);
        let mut top = TOP;
        let mut placed = Vec::new();
        for row in &self.rows {
            placed.push((row, top));
            top += GAP + SUB * row.dots.len() as f64;
        }
        let height = top + BOTTOM;
        Some(html! {
            svg class="plot" viewBox={ "0 0 " (px(WIDTH)) " " (px(height)) } role="img" aria-label=(self.title) {
                @for (v, text) in &x.ticks {
                    line class="grid" x1=(px(x.at(*v))) x2=(px(x.at(*v))) y1=(px(TOP)) y2=(px(top)) {}
                    text class="tick mid" x=(px(x.at(*v))) y=(px(top + 14.0)) { (text) }
                }
                text class="title mid" x=(px((left + WIDTH - 14.0) / 2.0)) y=(px(height - 7.0)) { (self.label) }
                @for (row, y) in &placed {
                    @if *y > TOP { line class="grid" x1="0" x2=(px(WIDTH - 14.0)) y1=(px(*y)) y2=(px(*y)) {} }
                    @let middle = y + (GAP + SUB * row.dots.len() as f64) / 2.0;
                    text class="row end" x=(px(left - 9.0)) y=(px(middle + 0.35 * FONT)) { (clipped(&row.label, 150.0)) }
                    @for (i, dot) in row.dots.iter().enumerate() {
                        (draw_dot(dot, &x, y + GAP / 2.0 + SUB * (i as f64 + 0.5)))
                    }
                }
            }
        })
    }
}

fn draw_dot(dot: &Dot, x: &Scale, y: f64) -> Markup {
    html! {
        g class={ "s" (dot.slot) @if dot.hollow { " hollow" } } {
            @for v in dot.behind.iter().filter(|v| v.is_finite()) {
                circle class="behind" cx=(px(x.at(*v))) cy=(px(y)) r="2.2" {}
            }
            @if let Some((lo, hi)) = dot.ends {
                path class="bar" d={ "M" (px(x.at(lo))) " " (px(y - 3.0)) "v6m0-3H" (px(x.at(hi))) "m0-3v6" } {}
            }
            (marks::mark(dot.slot, x.at(dot.mid), y, RADIUS, &dot.note))
        }
    }
}
