//! What a step costs: time against rows tier by tier, and distinct experts against rows.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::view::View;
use super::words;
use crate::report::fmt::{self, finite, percent, short};
use crate::report::plot::{Axis, Chart, Kind, Look, Point, Series};
use crate::report::sections::Section;
use crate::results::{PricedCurve, PricedPoint};

/// Curves drawn; more would not be read.
const SHOWN: usize = 4;

/// A tier: its name, palette slot, whether dashed, and its time.
type Tier = (&'static str, usize, bool, fn(&PricedPoint) -> Option<f64>);

/// Tiers in the order in which they are drawn.
const TIERS: [Tier; 3] = [
    ("bound", 0, true, |p| p.bound_ms),
    ("table", 1, false, |p| p.table_ms),
    ("calibrated", 3, false, |p| p.calibrated_ms),
];

/// Step time against rows at the report's context for few, some and many users.
pub(super) fn curves(view: &View<'_>) -> Option<Section> {
    let all = &view.priced.curves;
    let contexts: Vec<u32> = all.iter().map(|c| c.context).collect::<BTreeSet<_>>().into_iter().collect();
    let context = super::view::nearest(&contexts, view.context()?)?;
    let mut shown: Vec<&PricedCurve> = all.iter().filter(|c| c.context == context).collect();
    shown.sort_by_key(|c| c.concurrency);
    let picked = spread(shown.len(), SHOWN);
    let shown: Vec<&PricedCurve> = picked.into_iter().map(|i| shown[i]).collect();
    let deployments = shown.iter().map(|c| (&c.hardware, &c.deployment)).collect::<BTreeSet<_>>().len();
    let figures: Vec<(Markup, Markup)> = shown
        .iter()
        .filter_map(|c| {
            let name = format!("{}, {}", words::users(c.concurrency), words::at_context(c.context));
            let name = if deployments > 1 { format!("{name}, {}", c.deployment) } else { name };
            Some((html! { (name) }, chart(view, c, &name)?))
        })
        .collect();
    if figures.is_empty() {
        return None;
    }
    let error = shown.iter().filter_map(|c| finite(c.error)).reduce(f64::max);
    let mut note =
        "The staircase is the padding to the next graph bucket or kernel tile: nodes up to the end of a tread \
                    cost the same. Bound: the roofline without any latency, a lower limit and never a prediction."
            .to_owned();
    if let Some(e) = error {
        note.push_str(&format!(
            " Band: the stated error of the tier, ± {}; most of it is common to all sizes and cancels in a speed-up.",
            percent(e)
        ));
    }
    if shown.iter().flat_map(|c| &c.points).any(|p| !p.in_domain) {
        note.push_str(" Pale dots: some look-up lay outside its table's domain.");
    }
    Some(Section { id: "curves", title: "Step time against rows", lead: Vec::new(), figures, note })
}

/// Indices of up to `n` of `len` things, spread evenly, first and last among them.
fn spread(len: usize, n: usize) -> Vec<usize> {
    if len <= n { (0..len).collect() } else { (0..n).map(|i| i * (len - 1) / (n - 1)).collect() }
}

fn chart(view: &View<'_>, curve: &PricedCurve, name: &str) -> Option<Markup> {
    let tier = view.priced.setup.tier.as_str();
    let mut series = Vec::new();
    for (label, slot, dashed, pick) in TIERS {
        let error = finite(curve.error).filter(|_| label == tier);
        let points: Vec<Point> = curve
            .points
            .iter()
            .filter_map(|p| {
                let y = finite(pick(p))?;
                let ends = error.map(|e| (y * (1.0 - e), y * (1.0 + e)));
                Some(Point { x: f64::from(p.rows), y, ends, ..Point::default() })
            })
            .collect();
        if !points.is_empty() {
            let look = Look::Curve { stairs: !dashed, dashed };
            series.push(Series { label: label.to_owned(), slot, points, look });
        }
    }
    let outside: Vec<Point> = curve
        .points
        .iter()
        .filter(|p| !p.in_domain)
        .filter_map(|p| {
            Some(Point { x: f64::from(p.rows), y: finite(p.calibrated_ms.or(p.table_ms))?, ..Point::default() })
        })
        .collect();
    if !outside.is_empty() {
        series.push(Series { label: String::new(), slot: 2, points: outside, look: Look::Faint });
    }
    let measured: Vec<Point> = curve
        .points
        .iter()
        .filter_map(|p| {
            let y = finite(p.measured_ms)?;
            let note = format!("measured: {} ms at {}", short(y), fmt::plural(u64::from(p.rows), "row"));
            Some(Point { x: f64::from(p.rows), y, note, ..Point::default() })
        })
        .collect();
    if !measured.is_empty() {
        series.push(Series { label: "measured".to_owned(), slot: 2, points: measured, look: Look::Marks });
    }
    Chart {
        title: format!("Step time against rows, {name}"),
        x: Axis {
            ticks: [1, 9, 17, 33, 49, 65, 97, 129].map(|r| (f64::from(r), r.to_string())).into(),
            ..Axis::linear("rows verified per user (1 + nodes)", &[1.0])
        },
        y: Axis::linear("time of a step (ms)", &[0.0]),
        series,
        references: Vec::new(),
    }
    .draw()
}

/// Distinct experts against rows, every form side by side.
pub(super) fn experts(view: &View<'_>) -> Option<Section> {
    let forms = &view.priced.experts;
    let series: Vec<Series> = forms
        .iter()
        .enumerate()
        .filter_map(|(i, form)| {
            let points: Vec<Point> = form
                .points
                .iter()
                .filter(|p| p.rows > 0)
                .map(|p| {
                    let note =
                        format!("{}, {}: {} experts", form.model, fmt::plural(u64::from(p.rows), "row"), short(p.u));
                    Point { x: f64::from(p.rows), y: p.u, note, ..Point::default() }
                })
                .collect();
            let slot = [1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10, 11][i % 12];
            // Curves have many points and need no marks; public figures have a few and are marks.
            let look = if points.len() > 8 { Look::Curve { stairs: false, dashed: i % 2 == 1 } } else { Look::Joined };
            let look = if points.len() < 4 { Look::Marks } else { look };
            (!points.is_empty()).then(|| Series { label: form.model.clone(), slot, points, look })
        })
        .collect();
    let svg = Chart {
        title: "Distinct experts per layer against rows".to_owned(),
        x: Axis { kind: Kind::Log2, ..Axis::linear("rows of one user's tree (1 + nodes)", &[1.0]) },
        y: Axis::linear("distinct experts per MoE layer", &[0.0]),
        series,
        references: Vec::new(),
    }
    .draw()?;
    let used = view.priced.setup.experts.as_ref().map_or_else(String::new, |e| format!(" Priced here: {e}."));
    Some(Section {
        id: "experts",
        title: "Distinct experts against rows",
        lead: Vec::new(),
        figures: vec![(html! { "One user's tree" }, svg)],
        note: format!(
            "How many routed experts the rows of one tree touch in a layer, which is what a small batch reads from memory; \
             every form side by side.{used}"
        ),
    })
}
