//! Where labels go: beside their own marks, on nothing else.

use super::{FONT, text_width};

/// An axis-parallel box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    /// Left.
    pub x0: f64,
    /// Top.
    pub y0: f64,
    /// Right.
    pub x1: f64,
    /// Bottom.
    pub y1: f64,
}

impl Rect {
    /// Around a centre.
    pub fn around(x: f64, y: f64, half_width: f64, half_height: f64) -> Self {
        Self { x0: x - half_width, y0: y - half_height, x1: x + half_width, y1: y + half_height }
    }

    fn overlap(&self, other: &Self) -> f64 {
        let w = self.x1.min(other.x1) - self.x0.max(other.x0);
        let h = self.y1.min(other.y1) - self.y0.max(other.y0);
        if w > 0.0 && h > 0.0 { w * h } else { 0.0 }
    }

    fn holds(&self, x: f64, y: f64) -> bool {
        (self.x0..=self.x1).contains(&x) && (self.y0..=self.y1).contains(&y)
    }
}

/// A label that found its place.
pub(super) struct Placed {
    /// Left end of the text.
    pub x: f64,
    /// Baseline.
    pub y: f64,
    /// A thin line to its mark, when the two are apart.
    pub leader: Option<[(f64, f64); 2]>,
}

/// Places labels one after the other, each at the cheapest spot near one of its anchors.
pub(super) struct Placer {
    frame: Rect,
    marks: Vec<Rect>,
    strokes: Vec<[(f64, f64); 2]>,
    labels: Vec<Rect>,
}

impl Placer {
    /// Labels stay inside `frame`.
    pub fn new(frame: Rect) -> Self {
        Self { frame, marks: Vec::new(), strokes: Vec::new(), labels: Vec::new() }
    }

    /// A mark or an interval bar that no label should cover.
    pub fn avoid(&mut self, area: Rect) {
        self.marks.push(area);
    }

    /// A line that labels should rather not cross.
    pub fn avoid_line(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.strokes.push([from, to]);
    }

    /// The best place for `text` near the anchors, the first of which is liked best. `stretch`: its width over that of
    /// regular text. `None` without anchors or room.
    pub fn place(&mut self, text: &str, stretch: f64, anchors: &[(f64, f64)]) -> Option<Placed> {
        let (w, h) = (stretch * text_width(text), FONT);
        let mut best: Option<(f64, Rect, (f64, f64))> = None;
        for (rank, &(ax, ay)) in anchors.iter().enumerate() {
            for (ring, away) in [8.0, 16.0, 28.0, 42.0, 58.0].into_iter().enumerate() {
                let diagonal = away * 0.75;
                let spots = [
                    (ax + away, ay - h / 2.0, 0.0),
                    (ax + diagonal, ay - diagonal - h / 2.0, 1.0),
                    (ax + diagonal, ay + diagonal - h / 2.0, 1.0),
                    (ax - w / 2.0, ay - away - h / 2.0, 2.0),
                    (ax - w / 2.0, ay + away - h / 2.0, 2.0),
                    (ax - away - w, ay - h / 2.0, 3.0),
                    (ax - diagonal - w, ay - diagonal - h / 2.0, 3.0),
                    (ax - diagonal - w, ay + diagonal - h / 2.0, 3.0),
                ];
                for (x, y, taste) in spots {
                    let area = Rect { x0: x - 1.0, y0: y, x1: x + w + 1.0, y1: y + h };
                    let f = &self.frame;
                    if area.x0 < f.x0 || area.x1 > f.x1 || area.y0 < f.y0 || area.y1 > f.y1 {
                        continue;
                    }
                    let cost = taste + 4.0 * ring as f64 + 9.0 * rank as f64 + self.cost(&area);
                    if best.as_ref().is_none_or(|b| cost < b.0) {
                        best = Some((cost, area, (ax, ay)));
                    }
                }
            }
        }
        let (_, area, anchor) = best?;
        self.labels.push(area);
        let end = (anchor.0.clamp(area.x0, area.x1), anchor.1.clamp(area.y0, area.y1));
        let distance = (end.0 - anchor.0).hypot(end.1 - anchor.1);
        let leader = (distance > 11.0).then_some([anchor, end]);
        Some(Placed { x: area.x0 + 1.0, y: area.y1 - 0.24 * h, leader })
    }

    fn cost(&self, area: &Rect) -> f64 {
        let labels: f64 = self.labels.iter().map(|l| 40.0 * l.overlap(area).sqrt()).sum();
        let marks: f64 = self.marks.iter().map(|m| 9.0 * m.overlap(area).sqrt()).sum();
        let strokes = self.strokes.iter().map(|s| 2.5 * crossing(area, s)).sum::<f64>();
        labels + marks + strokes
    }
}

/// How many of the points along a stroke lie in the box.
fn crossing(area: &Rect, [a, b]: &[(f64, f64); 2]) -> f64 {
    let steps = ((b.0 - a.0).hypot(b.1 - a.1) / 4.0).clamp(1.0, 400.0) as usize;
    let at = |i: usize| {
        let t = i as f64 / steps as f64;
        (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))
    };
    (0..=steps).map(at).filter(|&(x, y)| area.holds(x, y)).count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_one_spot_do_not_overlap() {
        let mut placer = Placer::new(Rect { x0: 0.0, y0: 0.0, x1: 440.0, y1: 300.0 });
        for name in ["best-first", "spine-first", "top-k", "adaptive", "chain"] {
            placer.place(name, 1.1, &[(200.0, 150.0)]).unwrap();
        }
        for (i, a) in placer.labels.iter().enumerate() {
            for b in &placer.labels[..i] {
                assert_eq!(a.overlap(b), 0.0);
            }
        }
    }

    #[test]
    fn a_label_wider_than_the_frame_is_left_out() {
        let mut placer = Placer::new(Rect { x0: 0.0, y0: 0.0, x1: 20.0, y1: 300.0 });
        assert!(placer.place("a long name", 1.0, &[(10.0, 150.0)]).is_none());
    }
}
