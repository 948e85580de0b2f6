//! The table of a run: one set of columns for the terminal and for the page.

use super::fmt::{MISSING, finite, fixed, interval, or_dash, percent, short};
use super::model::{Entry, Group, Line, groups};
use super::{grid, stats};
use crate::results::{CellDetail, Priced, Summary};

/// A column: how it is headed, what it says, and how soon it goes when the terminal is narrow.
pub(super) struct Column {
    /// Head in the terminal.
    pub short: &'static str,
    /// Head on the page.
    pub long: &'static str,
    /// Unit, below the head.
    pub unit: &'static str,
    /// 0 = always kept; the largest goes first.
    pub drop: u8,
    /// Left-aligned text in place of a right-aligned number.
    pub text: bool,
    /// The cell's words.
    pub show: fn(&Line<'_>, &Entry<'_>) -> String,
}

/// All columns in reading order.
pub(super) const COLUMNS: [Column; 14] = [
    Column { short: "policy", long: "Policy", unit: "", drop: 0, text: true, show: |line, _| line.label.clone() },
    Column {
        short: "budget",
        long: "Budget",
        unit: "nodes",
        drop: 0,
        text: false,
        show: |_, e| if e.is_plain() { "0".to_owned() } else { e.cell.budget.to_string() },
    },
    Column {
        short: "τ",
        long: "τ",
        unit: "tokens / step",
        drop: 0,
        text: false,
        show: |_, e| or_dash(e.cell.tau, |v| fixed(v, 2)),
    },
    Column {
        short: "95 %",
        long: "95 % interval",
        unit: "of τ",
        drop: 0,
        text: false,
        show: |_, e| interval(e.cell.tau_lo, e.cell.tau_hi, 2).unwrap_or_else(|| MISSING.to_owned()),
    },
    Column {
        short: WITHOUT_LOOPS,
        long: "No loops",
        unit: "τ",
        drop: 1,
        text: false,
        show: |_, e| or_dash(without_loops(e), |v| fixed(v, 2)),
    },
    Column {
        short: "τ unw.",
        long: "Unweighted",
        unit: "τ",
        drop: 4,
        text: false,
        show: |_, e| or_dash(e.cell.tau_unweighted, |v| fixed(v, 2)),
    },
    Column {
        short: "rows",
        long: "Rows",
        unit: "per step",
        drop: 2,
        text: false,
        show: |_, e| or_dash(e.cell.rows_mean, |v| fixed(v, 1)),
    },
    Column {
        short: "experts",
        long: "Experts",
        unit: "per layer",
        drop: 3,
        text: false,
        show: |_, e| or_dash(e.cell.experts_mean, |v| fixed(v, 1)),
    },
    Column {
        short: "step ms",
        long: "Step",
        unit: "ms",
        drop: 1,
        text: false,
        show: |_, e| or_dash(e.cell.step_ms, short),
    },
    Column {
        short: "tok/s",
        long: "Throughput",
        unit: "tok / s",
        drop: 1,
        text: false,
        show: |_, e| or_dash(e.cell.tok_s, short),
    },
    Column {
        short: "tok/s/GPU",
        long: "Per GPU",
        unit: "tok / s",
        drop: 5,
        text: false,
        show: |_, e| or_dash(e.cell.tok_s_gpu, short),
    },
    Column {
        short: "J/tok",
        long: "Energy",
        unit: "J / token",
        drop: 5,
        text: false,
        show: |_, e| or_dash(e.cell.joules_per_token, short),
    },
    Column {
        short: "speed-up",
        long: "Speed-up",
        unit: "over plain",
        drop: 1,
        text: false,
        show: |_, e| or_dash(e.cell.speedup, |v| format!("{}×", fixed(v, 2))),
    },
    Column {
        short: "loops",
        long: "Loops",
        unit: "responses",
        drop: 2,
        text: false,
        show: |_, e| or_dash(e.cell.loop_share, percent),
    },
];

/// Head of the column that stands there only when some response loops.
const WITHOUT_LOOPS: &str = "τ no loops";

/// τ of the responses that do not loop.
fn without_loops(e: &Entry<'_>) -> Option<f64> {
    let rows: Vec<_> = e.detail?.per_request.iter().collect();
    stats::without_loops(&rows).map(|tau| tau.mid)
}

/// Columns that some cell fills; policy, budget and τ always, τ without loops only beside loops.
pub(super) fn columns(groups: &[Group<'_>]) -> Vec<&'static Column> {
    let rows: Vec<_> = groups.iter().flat_map(|g| g.all()).collect();
    let loops = rows.iter().any(|(_, e)| finite(e.cell.loop_share).is_some_and(|share| share > 0.0));
    let filled =
        |c: &Column| (c.short != WITHOUT_LOOPS || loops) && rows.iter().any(|(line, e)| (c.show)(line, e) != MISSING);
    COLUMNS.iter().enumerate().filter(|(i, c)| *i < 3 || filled(c)).map(|(_, c)| c).collect()
}

/// The terminal table: aligned, at most `width` columns wide (columns that do not fit are named below it), legible
/// without colour. `colour` adds bold and dim. Ends with a newline; empty without cells. A priced run has
/// a line for every answer at its main context instead.
#[must_use]
pub fn table(summary: &Summary, details: &[CellDetail], priced: Option<&Priced>, colour: bool, width: usize) -> String {
    if let Some(priced) = priced {
        return grid::table(&grid::View::new(summary, priced), colour, width);
    }
    let groups = groups(summary, details);
    let mut columns = columns(&groups);
    let paint = |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() };
    let cells = |columns: &[&Column], line: &Line<'_>, e: &Entry<'_>| -> Vec<String> {
        columns.iter().map(|c| (c.show)(line, e)).collect()
    };
    let widths = |columns: &[&Column]| -> Vec<usize> {
        let mut widths: Vec<usize> = columns.iter().map(|c| c.short.chars().count()).collect();
        for (line, e) in groups.iter().flat_map(|g| g.all()) {
            for (w, text) in widths.iter_mut().zip(cells(columns, line, &e)) {
                *w = (*w).max(text.chars().count());
            }
        }
        widths
    };
    let total = |w: &[usize]| w.iter().sum::<usize>() + 2 * w.len().saturating_sub(1);
    let mut dropped = Vec::new();
    while total(&widths(&columns)) > width {
        // Of the least important columns the rightmost goes first.
        let Some(at) = (0..columns.len()).filter(|&i| columns[i].drop > 0).max_by_key(|&i| (columns[i].drop, i)) else {
            break;
        };
        dropped.push(columns.remove(at).short);
    }
    let widths = widths(&columns);
    let row = |texts: &[String]| -> String {
        let padded: Vec<String> = texts
            .iter()
            .zip(&widths)
            .zip(&columns)
            .map(|((text, &w), c)| {
                let gap = " ".repeat(w - text.chars().count());
                if c.text { format!("{text}{gap}") } else { format!("{gap}{text}") }
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut out = String::new();
    for group in &groups {
        let best = group.all().filter_map(|(_, e)| finite(e.cell.tau)).fold(f64::NEG_INFINITY, f64::max);
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&paint("1", &group.label));
        out.push('\n');
        let heads: Vec<String> = columns.iter().map(|c| c.short.to_owned()).collect();
        out.push_str(&paint("2", &row(&heads)));
        out.push('\n');
        for (line, e) in group.all() {
            let text = row(&cells(&columns, line, &e));
            let top = e.cell.tau == Some(best) && !e.is_plain();
            out.push_str(&if top { paint("1", &text) } else { text });
            out.push('\n');
        }
    }
    if !dropped.is_empty() {
        out.push_str(&format!(
            "not shown for want of width: {} (all columns are in report.html)\n",
            dropped.join(", ")
        ));
    }
    out
}
