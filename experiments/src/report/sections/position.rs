//! Acceptance by position in the draft, and which of the drafter's ranks it came from.

use maud::{Markup, html};

use super::{Section, name, panels};
use crate::report::fmt::{self, percent};
use crate::report::model::{Entry, Group, Line};
use crate::report::plot::{Axis, Bar, Bars, Chart, Part, Point, Series};
use crate::report::stats;

/// Observations below which an interval or a rate says too little to be drawn.
const FEW: u64 = 10;

/// Lines up to which their intervals can be told apart.
const FEW_LINES: usize = 5;

/// Conditional acceptance by position.
pub(super) fn by_position(groups: &[Group<'_>]) -> Option<Section> {
    let mut figures = panels(groups, |group| {
        let mut series: Vec<Series> = group.comparable().into_iter().filter_map(|(l, e)| position_line(l, e)).collect();
        if series.len() > FEW_LINES {
            series.iter_mut().flat_map(|s| &mut s.points).for_each(|p| p.ends = None);
        }
        let deepest = series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).fold(1.0, f64::max);
        let ticks: Vec<(f64, String)> =
            (1..=deepest as usize).step_by(deepest as usize / 12 + 1).map(|d| (d as f64, d.to_string())).collect();
        Chart {
            title: format!("Conditional acceptance by position, {}", group.label),
            x: Axis { ticks, ..Axis::linear("position in the draft", &[0.5, deepest + 0.5]) },
            y: Axis::linear("accepted when reached (%)", &[0.0, 100.0]),
            series,
            references: Vec::new(),
        }
        .draw()
    })?;
    figures.extend(groups.iter().filter_map(ranks));
    Some(Section {
        id: "position",
        title: "Acceptance by position",
        lead: Vec::new(),
        figures,
        note: "How often a step that reached a position with candidates there accepted one of them; one budget per \
               policy, the one closest to what most policies ran. Bars, where there is room for them: 95 % \
               binomial (Wilson), which takes steps of one response as independent and is therefore narrow. Positions reached fewer than ten times are left out. \
               The bars split the accepted ones by the rank that the drafter gave the token: what is not rank 0 is what \
               the tree has over a chain."
            .to_owned(),
    })
}

fn position_line(line: &Line<'_>, e: Entry<'_>) -> Option<Series> {
    let rows = e.detail?.by_depth.iter().filter(|r| r.reached >= FEW && r.accepted <= r.reached);
    let points: Vec<Point> = rows
        .map(|r| {
            let share = r.accepted as f64 / r.reached as f64;
            let ends = stats::wilson(r.accepted, r.reached).map(|(a, b)| (100.0 * a, 100.0 * b));
            let [first, second, other] = r.by_rank;
            let note = format!(
                "{}, position {}: {} of {} steps; rank 0: {}, rank 1: {}, higher: {}",
                name(line, e),
                r.depth,
                percent(share),
                fmt::count(r.reached),
                fmt::count(first),
                fmt::count(second),
                fmt::count(other)
            );
            Point { x: f64::from(r.depth), y: 100.0 * share, ends, note, tag: String::new() }
        })
        .collect();
    Series::joined(name(line, e), line.slot, points)
}

/// For the main policy at the common budget: the share of steps that reached a position and accepted each rank there.
fn ranks(group: &Group<'_>) -> Option<(Markup, Markup)> {
    let main = group.main()?;
    let (line, e) = group.comparable().into_iter().find(|(l, _)| std::ptr::eq(*l, main))?;
    let rows = e.detail?.by_depth.iter().filter(|r| r.reached >= FEW && r.by_rank.iter().sum::<u64>() > 0);
    let bars: Vec<Bar> = rows
        .map(|r| {
            let share = |n: u64| 100.0 * n as f64 / r.reached as f64;
            let values: Vec<f64> = r.by_rank.iter().map(|&n| share(n)).collect();
            let total = percent(values.iter().sum::<f64>() / 100.0);
            let label = format!("position {}", r.depth);
            let note = format!(
                "{label}: rank 0 {:.0} %, rank 1 {:.0} %, higher ranks {:.0} % of {}",
                values[0],
                values[1],
                values[2],
                fmt::plural(r.reached, "step")
            );
            Bar { label, values, mark: None, strip: Vec::new(), total, note }
        })
        .collect();
    // A chain has nothing but rank 0 to show.
    if bars.iter().all(|b| b.values[1] + b.values[2] <= 0.0) {
        return None;
    }
    let part = |label: &str, class| Part { label: label.to_owned(), class };
    let picture = Bars {
        title: format!("Accepted ranks by position, {}", group.label),
        label: "accepted when reached (%)".to_owned(),
        parts: vec![part("rank 0", "ph0"), part("rank 1", "ph2"), part("higher ranks", "ph3")],
        bars,
        strips: Vec::new(),
        mark: String::new(),
        end: Some(100.0),
    }
    .draw()?;
    Some((html! { (group.label) ", accepted ranks of " (name(line, e)) }, picture))
}
