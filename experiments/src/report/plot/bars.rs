//! Horizontal bars made of parts.

use maud::{Markup, html};

use super::scale::{Kind, Scale};
use super::{FONT, WIDTH, clipped, px, text_width};

const ROW: f64 = 22.0;
const THICK: f64 = 14.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 42.0;

/// A kind of part, named in the legend above the bars.
pub(in crate::report) struct Part {
    /// Its name.
    pub label: String,
    /// Class of the style sheet that fills it.
    pub class: &'static str,
}

/// One bar.
pub(in crate::report) struct Bar {
    /// Written to its left.
    pub label: String,
    /// One value per part, from the left.
    pub values: Vec<f64>,
    /// A tick across the bar at this value.
    pub mark: Option<f64>,
    /// A second division of the same length, as a thin bar below: values with their classes. Often empty.
    pub strip: Vec<(f64, &'static str)>,
    /// Written to its right.
    pub total: String,
    /// What it says when pointed at.
    pub note: String,
}

/// Bars over one axis.
pub(in crate::report) struct Bars {
    /// For readers who do not see it.
    pub title: String,
    /// What the axis measures, with its unit.
    pub label: String,
    /// Parts, in the order of the values.
    pub parts: Vec<Part>,
    /// From the top.
    pub bars: Vec<Bar>,
    /// Kinds of pieces in the thin bars, for the legend.
    pub strips: Vec<Part>,
    /// Name of the tick.
    pub mark: String,
    /// End of the axis when it is not the longest bar.
    pub end: Option<f64>,
}

/// Bars as drawn, their legend apart.
pub(in crate::report) struct Drawn {
    /// Name and class of each part; the tick has no class.
    pub legend: Vec<(String, &'static str)>,
    /// The bars.
    pub svg: Markup,
    /// Height of `svg` in its own units.
    pub height: f64,
}

impl Bars {
    /// Picture with its legend, or nothing without a positive finite bar. Negative and absent parts count as 0.
    pub fn draw(mut self) -> Option<Markup> {
        let drawn = self.draw_parts()?;
        Some(html! {
            @if !drawn.legend.is_empty() {
                p class="legend" {
                    @for (label, class) in &drawn.legend {
                        span { i class={ "key " (if class.is_empty() { "tickmark" } else { class }) } {} (label) }
                    }
                }
            }
            @if !self.strips.is_empty() {
                p class="legend" {
                    span { "thin bar, held by:" }
                    @for part in &self.strips { span { i class={ "key thin " (part.class) } {} (part.label) } }
                }
            }
            (drawn.svg)
        })
    }

    /// As [`Bars::draw`], with the legend as data.
    pub fn draw_parts(&mut self) -> Option<Drawn> {
        let clean = |v: &f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
        for b in &mut self.bars {
            b.values = b.values.iter().map(clean).collect();
            b.mark = b.mark.filter(|m| m.is_finite());
        }
        let length = |b: &Bar| b.values.iter().sum::<f64>().max(b.mark.unwrap_or(0.0));
        let longest = self.bars.iter().map(length).fold(0.0, f64::max);
        if longest <= 0.0 {
            return None;
        }
        let left = self.bars.iter().map(|b| text_width(&b.label)).fold(40.0, f64::max).min(175.0) + 10.0;
        let right = self.bars.iter().map(|b| text_width(&b.total)).fold(4.0, f64::max).min(90.0) + 10.0;
        let height = TOP + ROW * self.bars.len() as f64 + BOTTOM;
        let base = height - BOTTOM;
        let x = Scale::new(Kind::Linear, 0.0, self.end.unwrap_or(longest), left, WIDTH - right, 5);
        let mut legend = Vec::new();
        if self.parts.len() > 1 || !self.mark.is_empty() {
            let named = self.parts.iter().filter(|p| !p.label.is_empty());
            legend.extend(named.map(|p| (p.label.clone(), p.class)));
            legend.extend((!self.mark.is_empty()).then(|| (self.mark.clone(), "")));
        }
        let svg = html! {
            svg class="plot" viewBox={ "0 0 " (px(WIDTH)) " " (px(height)) } role="img" aria-label=(self.title) {
                @for (v, text) in &x.ticks {
                    line class="grid" x1=(px(x.at(*v))) x2=(px(x.at(*v))) y1=(px(TOP)) y2=(px(base)) {}
                    text class="tick mid" x=(px(x.at(*v))) y=(px(base + 14.0)) { (text) }
                }
                text class="title mid" x=(px((left + WIDTH - right) / 2.0)) y=(px(height - 7.0)) { (self.label) }
                @for (i, bar) in self.bars.iter().enumerate() {
                    (row(bar, &self.parts, &x, TOP + ROW * i as f64 + (ROW - THICK) / 2.0, left))
                }
            }
        };
        Some(Drawn { legend, svg, height })
    }
}

fn row(bar: &Bar, parts: &[Part], x: &Scale, y: f64, left: f64) -> Markup {
    let mut sum = 0.0;
    let pieces: Vec<(f64, f64, &str)> = bar
        .values
        .iter()
        .zip(parts)
        .map(|(v, part)| {
            let from = x.at(sum);
            sum += v;
            (from, x.at(sum) - from, part.class)
        })
        .filter(|p| p.1 > 0.05)
        .collect();
    let mut ends = 0.0;
    let mut thin = Vec::new();
    for (v, class) in bar.strip.iter().filter(|(v, _)| v.is_finite() && *v > 0.0) {
        thin.push((x.at(ends), x.at(ends + v) - x.at(ends), *class));
        ends += v;
    }
    let middle = y + THICK / 2.0 + 0.35 * FONT;
    html! {
        g {
            @if !bar.note.is_empty() { title { (bar.note) } }
            text class="row end" x=(px(left - 7.0)) y=(px(middle)) { (clipped(&bar.label, 176.0)) }
            @for (from, width, class) in &pieces {
                rect class={ "part " (class) } x=(px(*from)) y=(px(y)) width=(px(*width)) height=(px(THICK)) {}
            }
            @for (from, width, class) in &thin {
                rect class=(class) x=(px(*from)) y=(px(y + THICK + 0.5)) width=(px(*width)) height="3.5" {}
            }
            @if let Some(m) = bar.mark {
                line class="tickmark" x1=(px(x.at(m))) x2=(px(x.at(m))) y1=(px(y - 3.0)) y2=(px(y + THICK + 3.0)) {}
            }
            @if !bar.total.is_empty() {
                text class="row" x=(px(x.at(sum.max(bar.mark.unwrap_or(0.0))) + 6.0)) y=(px(middle)) { (bar.total) }
            }
        }
    }
}
