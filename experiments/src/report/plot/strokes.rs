//! What a chart is made of: frame, lines, bands, marks.

use maud::{Markup, html};
use std::fmt::Write as _;

use super::chart::{Look, Point, Reference, Series, TALL};
use super::marks::{self, RADIUS};
use super::scale::Scale;
use super::{FONT, px};

/// Frame, grid, ticks and axis titles.
pub(super) fn axes(
    x_label: &str,
    y_label: &str,
    x: &Scale,
    y: &Scale,
    (x0, x1, y0, y1): (f64, f64, f64, f64),
) -> Markup {
    html! {
        @for (v, text) in &y.ticks {
            line class="grid" x1=(px(x0)) x2=(px(x1)) y1=(px(y.at(*v))) y2=(px(y.at(*v))) {}
            text class="tick end" x=(px(x0 - 6.0)) y=(px(y.at(*v) + 0.35 * FONT)) { (text) }
        }
        @for (v, text) in &x.ticks {
            line class="axis" x1=(px(x.at(*v))) x2=(px(x.at(*v))) y1=(px(y0)) y2=(px(y0 + 4.0)) {}
            text class="tick mid" x=(px(x.at(*v))) y=(px(y0 + 16.0)) { (text) }
        }
        line class="axis" x1=(px(x0)) x2=(px(x1)) y1=(px(y0)) y2=(px(y0)) {}
        text class="title mid" x=(px((x0 + x1) / 2.0)) y=(px(TALL - 7.0)) { (x_label) }
        text class="title mid" transform={ "translate(11 " (px((y0 + y1) / 2.0)) ") rotate(-90)" } { (y_label) }
    }
}

/// Path data through points.
fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let steps: Vec<String> = points.map(|(x, y)| format!("{} {}", px(x), px(y))).collect();
    format!("M{}", steps.join("L"))
}

/// A dashed curve that is not data.
pub(super) fn reference(r: &Reference, x: &Scale, y: &Scale, (x0, x1): (f64, f64)) -> Markup {
    let (_, top) = y.ends();
    // A level crosses the whole frame; a curve that leaves the frame ends there.
    let level = r.points.iter().all(|p| p.1 == r.points[0].1);
    let inside = r.points.iter().take_while(|p| p.1 <= top).map(|p| (x.at(p.0), y.at(p.1)));
    let ends = [x0, x1].into_iter().map(|at| (at, y.at(r.points[0].1)));
    html! { path class="ref" d=(if level { path(ends) } else { path(inside) }) {} }
}

/// The points of a series with what joins them.
pub(super) fn series(s: &Series, x: &Scale, y: &Scale, off: f64) -> Markup {
    let at = |p: &Point| (x.at(p.x) + off, y.at(p.y));
    if let Look::Curve { stairs, dashed } = s.look {
        let line = if stairs { staircase(&s.points, x, y) } else { path(s.points.iter().map(at)) };
        return html! {
            g class={ "s" (s.slot) } {
                @if let Some(d) = band(&s.points, stairs, x, y) { path class="band" d=(d) {} }
                path class={ "join" @if dashed { " dashed" } } d=(line) {}
            }
        };
    }
    if s.look == Look::Wide {
        return html! { path class={ "front s" (s.slot) } d=(path(s.points.iter().map(at))) {} };
    }
    let faint = s.look == Look::Faint;
    html! {
        g class={ "s" (s.slot) @if faint { " faint" } } {
            @if s.look == Look::Joined && s.points.len() > 1 { path class="join" d=(path(s.points.iter().map(at))) {} }
            @for p in &s.points {
                @let (cx, cy) = at(p);
                @if let Some((lo, hi)) = p.ends.filter(|_| !faint) {
                    @let (a, b) = (y.at(hi), y.at(lo));
                    path class="bar" d={
                        "M" (px(cx - 3.0)) " " (px(a)) "h6m-3 0V" (px(b)) "m-3 0h6"
                    } {}
                }
                (marks::mark(s.slot, cx, cy, if faint { 2.0 } else { RADIUS }, &p.note))
            }
        }
    }
}

/// A line that has a point's height from the point before it on: what is padded to the next size costs as much as that.
fn staircase(points: &[Point], x: &Scale, y: &Scale) -> String {
    let mut d = String::new();
    for (i, p) in points.iter().enumerate() {
        let (px_, py) = (px(x.at(p.x)), px(y.at(p.y)));
        let _ = if i == 0 { write!(d, "M{px_} {py}") } else { write!(d, "V{py}H{px_}") };
    }
    d
}

/// The area between the ends of all points that have them, with the line's stairs.
fn band(points: &[Point], stairs: bool, x: &Scale, y: &Scale) -> Option<String> {
    let mut ends: Vec<(f64, (f64, f64))> = points.iter().filter_map(|p| Some((p.x, p.ends?))).collect();
    if ends.len() < 2 {
        return None;
    }
    if stairs {
        let treads = ends.windows(2).flat_map(|w| [(w[0].0, w[1].1), w[1]]);
        ends = std::iter::once(ends[0]).chain(treads).collect();
    }
    let upper = ends.iter().map(|(v, e)| (x.at(*v), y.at(e.1)));
    let lower = ends.iter().rev().map(|(v, e)| (x.at(*v), y.at(e.0)));
    Some(path(upper.chain(lower)) + "Z")
}
