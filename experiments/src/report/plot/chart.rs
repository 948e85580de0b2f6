//! Points and lines over two axes.

use maud::{Markup, html};

use super::marks::RADIUS;
use super::place::{Placed, Placer, Rect};
use super::scale::{Kind, Scale};
use super::strokes::{axes, reference, series};
use super::{BOLD, WIDTH, clipped, px, text_width};

/// Height of a chart.
pub(super) const TALL: f64 = 310.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Places beside each other, in the order in which they are taken.
const STEPS: [f64; 9] = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0];
/// Words beside single marks, above which there are too many to read.
const TAGS: usize = 14;

/// An axis and what it measures.
pub(in crate::report) struct Axis {
    /// What it measures, with its unit.
    pub label: String,
    /// How it is divided.
    pub kind: Kind,
    /// Values that must be inside whatever the data are.
    pub include: Vec<f64>,
    /// Ticks in place of round numbers, on an axis that ends where the data end; empty = round numbers (x only).
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Linear, with round ticks.
    pub fn linear(label: &str, include: &[f64]) -> Self {
        Self { label: label.to_owned(), kind: Kind::Linear, include: include.to_vec(), ticks: Vec::new() }
    }
}

/// One value.
#[derive(Debug, Clone, Default)]
pub(in crate::report) struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Interval of `y`.
    pub ends: Option<(f64, f64)>,
    /// What it says when pointed at.
    pub note: String,
    /// A word beside the mark.
    pub tag: String,
}

/// Points that belong together.
pub(in crate::report) struct Series {
    /// Written beside it; empty = no label.
    pub label: String,
    /// Palette slot.
    pub slot: usize,
    /// In the order in which a line joins them.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub look: Look,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Look {
    /// Marks alone.
    Marks,
    /// Marks joined by a line.
    Joined,
    /// Small pale dots without intervals.
    Faint,
    /// A wide pale line behind the others.
    Wide,
    /// A line without marks, its intervals as a band.
    Curve {
        /// Flat up to each point, as a size that others are padded to.
        stairs: bool,
        /// Dashed.
        dashed: bool,
    },
}

impl Series {
    /// Points joined by a line; `None` without points.
    pub fn joined(label: String, slot: usize, points: Vec<Point>) -> Option<Self> {
        (!points.is_empty()).then_some(Self { label, slot, points, look: Look::Joined })
    }
}

/// A curve that is not data.
pub(in crate::report) struct Reference {
    /// Written at its end.
    pub label: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
pub(in crate::report) struct Chart {
    /// For readers who do not see it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// Data.
    pub series: Vec<Series>,
    /// Curves to compare with, dashed.
    pub references: Vec<Reference>,
}

impl Chart {
    /// The picture, or nothing when there is no finite point.
    pub fn draw(mut self) -> Option<Markup> {
        for s in &mut self.series {
            s.points.retain(|p| p.x.is_finite() && p.y.is_finite());
            for p in &mut s.points {
                p.ends = p.ends.filter(|(a, b)| a.is_finite() && b.is_finite());
            }
        }
        self.series.retain(|s| !s.points.is_empty());
        for r in &mut self.references {
            r.points.retain(|p| p.0.is_finite() && p.1.is_finite());
        }
        self.references.retain(|r| !r.points.is_empty());
        if self.series.is_empty() {
            return None;
        }
        let (xs, ys) = self.extent();
        let room = self.right_margin(xs.1).min(205.0);
        let (x0, x1, y0, y1) = (LEFT, WIDTH - room, TALL - BOTTOM, TOP);
        let y = Scale::new(self.y.kind, ys.0, ys.1, y0, y1, 5);
        let x = match self.x.ticks.as_slice() {
            [] => Scale::new(self.x.kind, xs.0, xs.1, x0, x1, 6),
            ticks => Scale::exact(xs.0, xs.1, x0, x1, ticks),
        };
        let offsets = self.dodge(&x);
        let frame = Rect { x0: x0 + 2.0, y0: 0.0, x1: WIDTH, y1: y0 - 1.0 };
        let mut placer = Placer::new(frame);
        self.obstacles(&mut placer, &x, &y, &offsets);
        Some(html! {
            svg class="plot" viewBox={ "0 0 " (px(WIDTH)) " " (px(TALL)) } role="img" aria-label=(self.title) {
                (axes(&self.x.label, &self.y.label, &x, &y, (x0, x1, y0, y1)))
                @for r in &self.references { (reference(r, &x, &y, (x0, x1))) }
                @for (s, off) in self.series.iter().zip(&offsets) { (series(s, &x, &y, *off)) }
                (self.labels(&mut placer, &x, &y, &offsets))
            }
        })
    }

    /// Ranges of all data, intervals and wanted values.
    fn extent(&self) -> ((f64, f64), (f64, f64)) {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
        };
        let points = || self.series.iter().flat_map(|s| &s.points);
        let x = range(&mut points().map(|p| p.x).chain(self.x.include.iter().copied()));
        let y = range(
            &mut points()
                .flat_map(|p| p.ends.map_or([p.y; 3], |e| [p.y, e.0, e.1]))
                .chain(self.y.include.iter().copied()),
        );
        (x, y)
    }

    /// Room for the labels of lines that end at the right edge.
    fn right_margin(&self, hi: f64) -> f64 {
        let near = |s: &&Series| s.points.last().is_some_and(|p| p.x >= 0.8 * hi);
        self.series.iter().filter(near).map(|s| BOLD * text_width(&s.label) + 14.0).fold(12.0, f64::max)
    }

    /// Sideways shift per series, so that intervals at one place do not cover each other.
    fn dodge(&self, x: &Scale) -> Vec<f64> {
        let marked = |s: &Series| matches!(s.look, Look::Marks | Look::Joined);
        let with_bars = |s: &Series| marked(s) && s.points.iter().any(|p| p.ends.is_some());
        let shares = |a: &Series, b: &Series| {
            a.points.iter().any(|p| b.points.iter().any(|q| (x.at(p.x) - x.at(q.x)).abs() < 5.0))
        };
        // Many series share the room of a few.
        let step = if self.series.len() > 6 { 3.5 } else { 6.5 };
        let mut offsets = vec![0.0f64; self.series.len()];
        for i in 0..self.series.len() {
            let taken: Vec<f64> = (0..i)
                .filter(|&j| {
                    with_bars(&self.series[i]) && with_bars(&self.series[j]) && shares(&self.series[i], &self.series[j])
                })
                .map(|j| offsets[j])
                .collect();
            let free = STEPS.into_iter().map(|k| k * step).find(|o| !taken.contains(o));
            offsets[i] = free.unwrap_or(0.0);
        }
        offsets
    }

    fn obstacles(&self, placer: &mut Placer, x: &Scale, y: &Scale, offsets: &[f64]) {
        for (s, off) in self.series.iter().zip(offsets) {
            let at = |p: &Point| (x.at(p.x) + off, y.at(p.y));
            for p in &s.points {
                let (cx, cy) = at(p);
                let r = if matches!(s.look, Look::Marks | Look::Joined) { RADIUS + 1.0 } else { 2.0 };
                placer.avoid(Rect::around(cx, cy, r, r));
                if let Some((lo, hi)) = p.ends.filter(|_| matches!(s.look, Look::Marks | Look::Joined)) {
                    placer.avoid(Rect { x0: cx - 2.0, y0: y.at(hi), x1: cx + 2.0, y1: y.at(lo) });
                }
            }
            if !matches!(s.look, Look::Marks | Look::Faint) {
                s.points.windows(2).for_each(|w| placer.avoid_line(at(&w[0]), at(&w[1])));
            }
        }
        for r in &self.references {
            for w in r.points.windows(2) {
                placer.avoid_line((x.at(w[0].0), y.at(w[0].1)), (x.at(w[1].0), y.at(w[1].1)));
            }
        }
    }

    /// Names beside lines and curves, then the words beside single marks.
    fn labels(&self, placer: &mut Placer, x: &Scale, y: &Scale, offsets: &[f64]) -> Markup {
        let mut out = Vec::new();
        let zipped = || self.series.iter().zip(offsets);
        for (s, off) in zipped().filter(|(s, _)| !s.label.is_empty()) {
            let text = clipped(&s.label, 168.0);
            let anchors: Vec<(f64, f64)> = s.points.iter().rev().map(|p| (x.at(p.x) + off, y.at(p.y))).collect();
            if let Some(place) = placer.place(&text, BOLD, &anchors) {
                out.push(label(&format!("name s{}", s.slot), &text, &place));
            }
        }
        for r in &self.references {
            let anchors: Vec<(f64, f64)> = r.points.iter().rev().map(|p| (x.at(p.0), y.at(p.1))).collect();
            let text = clipped(&r.label, 220.0);
            if let Some(place) = placer.place(&text, 1.0, &anchors) {
                out.push(label("ref-name", &text, &place));
            }
        }
        let tags = self.series.iter().flat_map(|s| &s.points).filter(|p| !p.tag.is_empty()).count();
        for (s, off) in zipped().filter(|_| tags <= TAGS) {
            for p in s.points.iter().filter(|p| !p.tag.is_empty()) {
                if let Some(place) = placer.place(&p.tag, 0.87, &[(x.at(p.x) + off, y.at(p.y))]) {
                    out.push(label(&format!("tag s{}", s.slot), &p.tag, &place));
                }
            }
        }
        html! { @for l in &out { (l) } }
    }
}

fn label(class: &str, text: &str, place: &Placed) -> Markup {
    html! {
        @if let Some([a, b]) = place.leader {
            line class="leader" x1=(px(a.0)) y1=(px(a.1)) x2=(px(b.0)) y2=(px(b.1)) {}
        }
        text class=(class) x=(px(place.x)) y=(px(place.y)) { (text) }
    }
}
