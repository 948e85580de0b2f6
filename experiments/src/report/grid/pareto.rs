//! Throughput of a GPU against speed for a user: every policy over all concurrencies, and the frontier.

use maud::{Markup, html};

use super::view::View;
use super::words;
use crate::report::fmt::{finite, short};
use crate::report::plot::{Axis, Chart, Kind, Look, Point, Series};
use crate::report::sections::Section;
use crate::results::Cell;

/// Budgets of the ladder that are drawn.
const BUDGETS: usize = 4;

/// One chart for each leading acceptance at the report's context.
pub(super) fn pareto(view: &View<'_>) -> Option<Section> {
    let context = view.context()?;
    let figures: Vec<(Markup, Markup)> = view
        .leading()
        .into_iter()
        .filter_map(|a| Some((html! { (view.anchor(a)) ", " (words::at_context(context)) }, chart(view, a, context)?)))
        .collect();
    (!figures.is_empty()).then(|| Section {
        id: "pareto",
        title: "Throughput per GPU against speed per user",
        lead: Vec::new(),
        figures,
        note: "A line joins the concurrencies of one policy, few users at the lower right, many at the upper left. Wide and pale: \
               the frontier of what is drawn, no point is better in both."
            .to_owned(),
    })
}

fn chart<'a>(view: &View<'a>, anchor: usize, context: u32) -> Option<Markup> {
    let column =
        |pick: &dyn Fn(u32) -> Option<&'a Cell>| view.users.iter().filter_map(|&u| pick(u)).collect::<Vec<_>>();
    let mut sets: Vec<(String, usize, Vec<&Cell>)> =
        vec![("plain".to_owned(), 0, column(&|u| view.plain((anchor, context, u))))];
    let mut slot = 1;
    for (i, line) in view.lines.iter().enumerate() {
        let budgets = if Some(i) == view.ladder { some(&line.budgets) } else { Vec::new() };
        for &b in &budgets {
            sets.push((words::count_nodes(b), slot, column(&|u| view.cell((anchor, context, u), i, b))));
            slot += 1;
        }
        if Some(i) != view.ladder {
            let label = if line.budgets.len() == 1 {
                format!("{} {}", line.label, line.budgets[0])
            } else {
                line.label.clone()
            };
            sets.push((label, slot, column(&|u| view.best_of((anchor, context, u), i))));
            slot += 1;
        }
    }
    let series: Vec<Series> = sets
        .into_iter()
        .filter_map(|(label, slot, cells)| {
            let points: Vec<Point> = cells.into_iter().filter_map(|c| point(&label, c)).collect();
            (!points.is_empty()).then_some(Series { label, slot: slot % 12, points, look: Look::Joined })
        })
        .collect();
    let front = frontier(series.iter().flat_map(|s| &s.points).map(|p| (p.x, p.y)));
    let points: Vec<Point> = front.into_iter().map(|(x, y)| Point { x, y, ..Point::default() }).collect();
    let behind = Series { label: String::new(), slot: 5, points, look: Look::Wide };
    Chart {
        title: format!("Throughput per GPU against speed per user, {}", view.anchor(anchor)),
        x: Axis { kind: Kind::Log2, ..Axis::linear("speed for a user (tok/s)", &[]) },
        y: Axis { kind: Kind::Log2, ..Axis::linear("throughput of a GPU (tok/s)", &[]) },
        series: std::iter::once(behind).chain(series).collect(),
        references: Vec::new(),
    }
    .draw()
}

fn point(label: &str, c: &Cell) -> Option<Point> {
    let (x, y) = (finite(c.tok_s_user).filter(|v| *v > 0.0)?, finite(c.tok_s_gpu).filter(|v| *v > 0.0)?);
    let note = format!("{label}, {}: {} tok/s a user, {} tok/s a GPU", words::users(c.concurrency), short(x), short(y));
    Some(Point { x, y, note, ..Point::default() })
}

/// Up to [`BUDGETS`] budgets: 8, 16, 32 and 64 where they are, else evenly spread.
fn some(budgets: &[u32]) -> Vec<u32> {
    let usual: Vec<u32> = [8, 16, 32, 64].into_iter().filter(|b| budgets.contains(b)).collect();
    if usual.len() >= 2 || budgets.len() <= BUDGETS {
        return if usual.len() >= 2 { usual } else { budgets.to_vec() };
    }
    (0..BUDGETS).map(|i| budgets[i * (budgets.len() - 1) / (BUDGETS - 1)]).collect()
}

/// Points that no other beats in both, from left to right.
fn frontier(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = points.collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut out: Vec<(f64, f64)> = Vec::new();
    for p in all {
        if out.last().is_none_or(|last| p.1 > last.1) {
            out.push(p);
        }
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_has_no_beaten_point() {
        let got = frontier([(1.0, 9.0), (2.0, 7.0), (2.0, 8.0), (1.5, 6.0), (4.0, 1.0)].into_iter());
        assert_eq!(got, [(1.0, 9.0), (2.0, 8.0), (4.0, 1.0)]);
        assert_eq!(some(&[4, 8, 12, 16, 64]), [8, 16, 64]);
        assert_eq!(some(&[1, 2, 3, 4, 5, 6, 7]), [1, 3, 5, 7]);
    }
}
