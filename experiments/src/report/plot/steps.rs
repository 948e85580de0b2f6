//! A waterfall: bars that start where the one before them ended.

use maud::{Markup, html};

use super::scale::{Kind, Scale};
use super::{FONT, WIDTH, clipped, px, text_width};

const ROW: f64 = 22.0;
const THICK: f64 = 14.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 42.0;
/// Room for names.
const NAMES: f64 = 172.0;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Move {
    /// A level: the bar starts at the axis' origin.
    Level,
    /// A change from the bar above.
    Change,
}

/// One bar.
pub(in crate::report) struct Step {
    /// To its left.
    pub label: String,
    /// Level or change.
    pub kind: Move,
    /// The level, or by how much it changes.
    pub value: f64,
    /// To its right.
    pub text: String,
    /// What it says when pointed at.
    pub note: String,
}

/// A waterfall.
pub(in crate::report) struct Steps {
    /// For readers who do not see it.
    pub title: String,
    /// What the axis measures, with its unit.
    pub label: String,
    /// From the top.
    pub steps: Vec<Step>,
    /// A value with a line through all bars, and its name.
    pub level: Option<(f64, String)>,
}

impl Steps {
    /// The picture; nothing when a value is not finite or nothing is there.
    pub fn draw(&self) -> Option<Markup> {
        if self.steps.is_empty() || self.steps.iter().any(|s| !s.value.is_finite()) {
            return None;
        }
        let mut at = 0.0;
        let spans: Vec<(f64, f64)> = self
            .steps
            .iter()
            .map(|s| {
                let from = if s.kind == Move::Level { 0.0 } else { at };
                at = from + s.value;
                (from, at)
            })
            .collect();
        let ends = spans.iter().flat_map(|s| [s.0, s.1]).chain(self.level.iter().map(|l| l.0));
        let (lo, hi) = ends.fold((0.0f64, 0.0f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let left = self.steps.iter().map(|s| text_width(&s.label)).fold(40.0, f64::max).min(NAMES) + 10.0;
        let right = self.steps.iter().map(|s| text_width(&s.text)).fold(4.0, f64::max).min(110.0) + 10.0;
        let height = TOP + ROW * self.steps.len() as f64 + BOTTOM;
        let base = height - BOTTOM;
        let x = Scale::new(Kind::Linear, lo, hi, left, WIDTH - right, 5);
        Some(html! {
            svg class="plot" viewBox={ "0 0 " (px(WIDTH)) " " (px(height)) } role="img" aria-label=(self.title) {
                @for (v, text) in &x.ticks {
                    line class="grid" x1=(px(x.at(*v))) x2=(px(x.at(*v))) y1=(px(TOP)) y2=(px(base)) {}
                    text class="tick mid" x=(px(x.at(*v))) y=(px(base + 14.0)) { (text) }
                }
                text class="title mid" x=(px((left + WIDTH - right) / 2.0)) y=(px(height - 7.0)) { (self.label) }
                @for (i, (step, span)) in self.steps.iter().zip(&spans).enumerate() {
                    (bar(step, *span, &x, TOP + ROW * i as f64 + (ROW - THICK) / 2.0, left))
                    @if i + 1 < self.steps.len() {
                        line class="axis" x1=(px(x.at(span.1))) x2=(px(x.at(span.1))) y1=(px(TOP + ROW * i as f64 + (ROW + THICK) / 2.0)) y2=(px(TOP + ROW * (i as f64 + 1.0) + (ROW - THICK) / 2.0)) {}
                    }
                }
                @if let Some((v, name)) = &self.level {
                    line class="ref" x1=(px(x.at(*v))) x2=(px(x.at(*v))) y1=(px(TOP - 4.0)) y2=(px(base)) { title { (name) } }
                }
            }
        })
    }
}

fn bar(step: &Step, (from, to): (f64, f64), x: &Scale, y: f64, left: f64) -> Markup {
    let (a, b) = (x.at(from.min(to)), x.at(from.max(to)));
    let class = match step.kind {
        Move::Level => "level",
        Move::Change if step.value < 0.0 => "loss",
        Move::Change => "gain",
    };
    let middle = y + THICK / 2.0 + 0.35 * FONT;
    html! {
        g {
            @if !step.note.is_empty() { title { (step.note) } }
            text class="row end" x=(px(left - 7.0)) y=(px(middle)) { (clipped(&step.label, NAMES)) }
            rect class=(class) x=(px(a)) y=(px(y)) width=(px((b - a).max(0.8))) height=(px(THICK)) {}
            text class="row halo" x=(px(b + 6.0)) y=(px(middle)) { (step.text) }
        }
    }
}
