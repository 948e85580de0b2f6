//! Figures about what a step costs: experts, time, phases.

use super::{Section, name, panels};
use crate::report::RoutedExperts;
use crate::report::fmt::{self, finite, fixed, short};
use crate::report::model::{Entry, Group, Line};
use crate::report::plot::{Axis, Chart, Kind, Look, Point, Reference, Series};
use crate::report::stats;
use crate::results::{CellDetail, RowsPoint};

/// Samples of the reference curve.
const SAMPLES: u32 = 48;

/// Points of all cells of a line by rows, averaged over steps, ascending; row counts seen less than a tenth as often as the
/// most frequent one (ends of responses, mostly) are left out.
fn merged(line: &Line<'_>, pick: impl Fn(&CellDetail) -> &[RowsPoint]) -> Vec<RowsPoint> {
    let mut sums = std::collections::BTreeMap::<u32, (u64, f64)>::new();
    for p in line.entries.iter().filter_map(|e| e.detail).flat_map(pick) {
        if p.steps > 0 && p.mean.is_finite() {
            let sum = sums.entry(p.rows).or_default();
            sum.0 += p.steps;
            sum.1 += p.mean * p.steps as f64;
        }
    }
    let most = sums.values().map(|s| s.0).max().unwrap_or(0);
    let enough = |s: &(u64, f64)| s.0.saturating_mul(10) >= most;
    let kept = sums.into_iter().filter(|(_, s)| enough(s));
    kept.map(|(rows, (steps, sum))| RowsPoint { rows, steps, mean: sum / steps as f64 }).collect()
}

/// Distinct experts against rows.
pub(super) fn experts(groups: &[Group<'_>], router: Option<RoutedExperts>) -> Option<Section> {
    let router = router.filter(|r| r.total > 0 && r.per_token <= r.total);
    let figures = panels(groups, |group| {
        let series: Vec<Series> = group.lines.iter().filter_map(expert_line).collect();
        let rows = || series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let hi = rows().fold(0.0, f64::max);
        // The curve is shown whole unless that would press the data to the floor.
        let most = series.iter().flat_map(|s| s.points.iter().map(|p| p.y)).fold(0.0, f64::max);
        let bound = router.filter(|_| hi > 1.0).map(|r| stats::independent_experts(r.total, r.per_token, hi));
        let top = bound.unwrap_or(0.0).min(4.5 * most);
        let references = router.filter(|_| hi > 1.0).map(|r| independent(r, hi)).into_iter().collect();
        Chart {
            title: format!("Distinct experts per layer against rows of a step, {}", group.label),
            x: Axis { kind: Kind::Log2, ..Axis::linear("rows of a step (all requests, roots included)", &[1.0]) },
            y: Axis::linear("distinct experts per MoE layer", &[0.0, top]),
            series,
            references,
        }
        .draw()
    })?;
    let curve = match router {
        Some(r) => format!(
            " Dashed: {0}·(1 − (1 − {1}/{0})ⁿ), what n independent rows would touch with {1} of {0} experts each; a \
             formula, not a measurement.",
            r.total, r.per_token
        ),
        None => String::new(),
    };
    Some(Section {
        id: "experts",
        title: "Distinct experts against rows",
        lead: groups.iter().filter_map(|g| overlap(g, router)).take(1).collect(),
        figures,
        note: format!(
            "Mean number of routed experts that the rows of one step touch in one MoE layer: what a bandwidth-bound \
             verify step has to read. Row counts met less than a tenth as often as a \
             policy's most frequent one are left out.{curve}"
        ),
    })
}

fn expert_line(line: &Line<'_>) -> Option<Series> {
    let points: Vec<Point> = merged(line, |d| &d.experts_by_rows)
        .into_iter()
        .map(|p| Point {
            x: f64::from(p.rows),
            y: p.mean,
            note: format!(
                "{}, {} rows: {} experts per layer, {}",
                line.label,
                p.rows,
                fixed(p.mean, 1),
                fmt::plural(p.steps, "step")
            ),
            ..Point::default()
        })
        .filter(|p| p.x >= 1.0)
        .collect();
    Series::joined(line.label.clone(), line.slot, points)
}

fn independent(r: RoutedExperts, hi: f64) -> Reference {
    let at = |i: u32| hi.powf(f64::from(i) / f64::from(SAMPLES));
    Reference {
        label: "independent rows (formula)".to_owned(),
        points: (0..=SAMPLES).map(|i| (at(i), stats::independent_experts(r.total, r.per_token, at(i)))).collect(),
    }
}

/// How much the rows of the largest tree of the main policy share.
fn overlap(group: &Group<'_>, router: Option<RoutedExperts>) -> Option<String> {
    let line = group.main()?;
    let points = merged(line, |d| &d.experts_by_rows);
    let most = points.iter().max_by_key(|p| (p.steps, p.rows))?;
    let top = points.last().filter(|p| p.rows > most.rows).unwrap_or(most);
    let against = router.map_or(String::new(), |r| {
        let u = stats::independent_experts(r.total, r.per_token, f64::from(top.rows));
        format!("; {} independent rows would touch {}", top.rows, fixed(u, 1))
    });
    Some(format!(
        "{}: a {} step of {} rows touches {} distinct experts per layer{against}.",
        group.label,
        line.label,
        top.rows,
        fixed(top.mean, 1)
    ))
}

/// Throughput against budget.
pub(super) fn throughput(groups: &[Group<'_>]) -> Option<Section> {
    let figures = panels(groups, |group| {
        let series: Vec<Series> = group.lines.iter().filter_map(rate_line).collect();
        let budgets = || series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let (lo, hi) = budgets().fold((f64::INFINITY, 0.0f64), |(lo, hi), b| (lo.min(b), hi.max(b)));
        let plain = group.all().find(|(_, e)| e.is_plain()).and_then(|(_, e)| finite(e.cell.tok_s));
        let level = |rate: f64| Reference {
            label: format!("plain decoding, {} tok/s", short(rate)),
            points: vec![(lo, rate), ((lo * hi).sqrt(), rate), (hi, rate)],
        };
        Chart {
            title: format!("Tokens per second against budget, {}", group.label),
            x: Axis { kind: Kind::Log2, ..Axis::linear("budget (nodes without the root)", &[]) },
            y: Axis::linear("decoded tokens per second (tok/s)", &[0.0, plain.unwrap_or(0.0)]),
            references: plain.filter(|_| hi > 0.0).map(level).into_iter().collect(),
            series,
        }
        .draw()
    })?;
    Some(Section {
        id: "throughput",
        title: "Throughput against budget",
        lead: Vec::new(),
        figures,
        note: format!(
            "Decoded tokens of all requests per second of decoding; prefill is left out. Bars: 95 % intervals.{}",
            reservation(groups)
        ),
    })
}

fn rate_line(line: &Line<'_>) -> Option<Series> {
    let drafting = line.entries.iter().filter(|e| !e.is_plain());
    let points: Vec<Point> = drafting
        .filter_map(|e| {
            let rate = finite(e.cell.tok_s)?;
            let ends = finite(e.cell.tok_s_lo).zip(finite(e.cell.tok_s_hi));
            let times = finite(e.cell.speedup).map_or(String::new(), |s| format!(", {} times plain", fixed(s, 2)));
            let note = format!("{}: {} tok/s{times}", name(line, *e), short(rate));
            Some(Point { x: f64::from(e.cell.budget), y: rate, ends, note, tag: String::new() })
        })
        .collect();
    Series::joined(line.label.clone(), line.slot, points)
}

/// What times measured on a CPU are not.
fn reservation(groups: &[Group<'_>]) -> &'static str {
    let cpu = groups.iter().flat_map(|g| g.all()).any(|(_, e)| e.cell.backend == "cpu");
    if cpu { " A CPU's time is no prediction of a GPU's." } else { "" }
}

/// Step time against rows.
pub(super) fn step_time(groups: &[Group<'_>]) -> Option<Section> {
    let figures = panels(groups, |group| {
        let mut series = Vec::new();
        for line in &group.lines {
            series.extend(cloud(line));
            series.extend(time_line(line));
        }
        if series.iter().all(|s| s.look == Look::Faint) {
            return None;
        }
        Chart {
            title: format!("Step time against rows, {}", group.label),
            x: Axis { kind: Kind::Log2, ..Axis::linear("rows of a step (all requests, roots included)", &[]) },
            y: Axis::linear("time of a decode step (ms)", &[0.0]),
            series,
            references: Vec::new(),
        }
        .draw()
    })?;
    let mut sources: Vec<String> = Vec::new();
    for (_, e) in groups.iter().flat_map(|g| g.all()) {
        if let Some(s) = e.cell.source.step_ms.as_ref().filter(|s| !sources.contains(s)) {
            sources.push(s.clone());
        }
    }
    Some(Section {
        id: "time",
        title: "Step time against rows",
        lead: Vec::new(),
        figures,
        note: format!(
            "Large marks: mean of a cell at its mean rows, with the 95 % interval. Small dots: mean at one row count, \
             where a policy has several. Prefill is left out. Source of the times: {}.{}",
            fmt::listed(&sources),
            reservation(groups)
        ),
    })
}

/// Means at single row counts, where a line has more than one per cell.
fn cloud(line: &Line<'_>) -> Option<Series> {
    let points: Vec<Point> = merged(line, |d| &d.ms_by_rows)
        .into_iter()
        .filter(|p| p.rows > 0)
        .map(|p| Point { x: f64::from(p.rows), y: p.mean, ..Point::default() })
        .collect();
    let cells = line.entries.len();
    (points.len() > cells).then(|| Series { label: String::new(), slot: line.slot, points, look: Look::Faint })
}

fn time_line(line: &Line<'_>) -> Option<Series> {
    let points: Vec<Point> = line
        .entries
        .iter()
        .filter_map(|e| {
            let (ms, x) = (finite(e.cell.step_ms)?, mean_rows(*e)?);
            let ends = finite(e.cell.step_ms_lo).zip(finite(e.cell.step_ms_hi));
            let note = format!("{}: {} ms at {} rows", name(line, *e), short(ms), fixed(x, 1));
            Some(Point { x, y: ms, ends, note, tag: String::new() })
        })
        .collect();
    Series::joined(line.label.clone(), line.slot, points)
}

/// Mean rows of a step over all requests: counted where the detail has it, else rows per request times concurrency.
fn mean_rows(e: Entry<'_>) -> Option<f64> {
    let points = e.detail.map_or(&[][..], |d| &d.ms_by_rows);
    let (rows, steps) =
        points.iter().fold((0.0, 0.0), |s, p| (s.0 + f64::from(p.rows) * p.steps as f64, s.1 + p.steps as f64));
    if steps > 0.0 {
        return Some(rows / steps).filter(|r| *r > 0.0);
    }
    finite(e.cell.rows_mean).map(|r| r * f64::from(e.cell.concurrency.max(1))).filter(|r| *r > 0.0)
}
