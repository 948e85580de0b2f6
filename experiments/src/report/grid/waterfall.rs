//! From plain decoding to the best tree: what nodes add in tokens, and what takes it back in time.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::breakdown::by_part;
use super::view::{Place, View};
use super::words;
use crate::report::fmt::{self, finite, fixed, short, signed};
use crate::report::plot::{Move, Step, Steps};
use crate::report::sections::Section;
use crate::results::{Cell, PricedBreakdown};

/// Budgets that stand for the ladder on the way up.
const RUNGS: usize = 5;

/// Costs named one by one.
const COSTS: usize = 7;

/// Waterfalls for the leading acceptance sources at few, some and many users.
pub(super) fn waterfall(view: &View<'_>) -> Option<Section> {
    let context = view.context()?;
    let anchor = *view.leading().first()?;
    let places: Vec<Place> = view.spread(anchor, context).into_iter().map(|u| (anchor, context, u)).collect();
    let figures: Vec<(Markup, Markup)> = places.iter().filter_map(|&at| figure(view, at)).collect();
    (!figures.is_empty()).then(|| Section {
        id: "waterfall",
        title: "What a tree wins, and what takes it back",
        lead: Vec::new(),
        figures,
        note: "Up: tokens of a step over those of plain decoding, as if a step cost nothing more. Down: the loss to the \
               longer step, shared among its parts by their extra time. It ends at the speed-up. What the best policy saves \
               by leaving nodes out where they do not pay is part of its step time."
            .to_owned(),
    })
}

fn figure(view: &View<'_>, at: Place) -> Option<(Markup, Markup)> {
    let line = view.ladder?;
    let best = view.best_of(at, line)?;
    let (tau, speedup) = (finite(best.tau)?, finite(best.speedup)?);
    let mut steps = vec![Step {
        label: "plain decoding".into(),
        kind: Move::Level,
        value: 1.0,
        text: "1.00×".into(),
        note: String::new(),
    }];
    steps.extend(rungs(view, at, line, best));
    steps.extend(costs(view, at, best, tau - speedup));
    steps.push(Step {
        label: format!("{} {}", best.policy, best.budget),
        kind: Move::Level,
        value: speedup,
        text: format!("{}×", fixed(speedup, 2)),
        note: String::new(),
    });
    let name = format!("{}, {}, {}", view.anchor(at.0), words::users(at.2), words::at_context(at.1));
    let svg = Steps {
        title: format!("From plain decoding to the best tree, {name}"),
        label: "throughput over plain decoding (×)".to_owned(),
        steps,
        level: Some((1.0, "plain decoding".to_owned())),
    }
    .draw()?;
    Some((html! { (name) }, svg))
}

/// Tokens that more nodes add, rung by rung up to the best budget.
fn rungs(view: &View<'_>, at: Place, line: usize, best: &Cell) -> Vec<Step> {
    let up: Vec<&Cell> = view.lines[line]
        .budgets
        .iter()
        .filter(|b| **b <= best.budget)
        .filter_map(|&b| view.cell(at, line, b))
        .filter(|c| finite(c.tau).is_some())
        .collect();
    let stride = up.len().div_ceil(RUNGS).max(1);
    // Counted from the top, so that the best budget is always a rung.
    let mut shown: Vec<&Cell> = up.iter().rev().step_by(stride).copied().collect();
    shown.reverse();
    let mut before = (0, 1.0);
    let mut out = Vec::new();
    for cell in shown {
        let tau = finite(cell.tau).unwrap_or(before.1);
        let label = if before.0 == 0 {
            if cell.budget == 1 { "first node".to_owned() } else { format!("first {} nodes", cell.budget) }
        } else {
            rung(before.0 + 1, cell.budget)
        };
        out.push(Step {
            label,
            kind: Move::Change,
            value: tau - before.1,
            text: format!("{} tokens", signed(tau - before.1, 2)),
            note: format!("τ {} with {}", fixed(tau, 2), words::count_nodes(cell.budget)),
        });
        before = (cell.budget, tau);
    }
    out
}

/// "node 7", "nodes 5 to 8".
fn rung(from: u32, to: u32) -> String {
    if from == to { format!("node {to}") } else { format!("nodes {from} to {to}") }
}

/// The loss to a longer step, shared among its parts.
fn costs(view: &View<'_>, at: Place, best: &Cell, loss: f64) -> Vec<Step> {
    let single = |label: &str| {
        vec![Step { label: label.into(), kind: Move::Change, value: -loss, text: cost(-loss), note: String::new() }]
    };
    let Some((plain, tree)) = pair(view, at, best) else { return single("longer step") };
    let (before, after) = (by_part(plain), by_part(tree));
    let names: BTreeMap<&str, ()> = before.keys().chain(after.keys()).map(|n| (*n, ())).collect();
    let of = |sums: &BTreeMap<&str, f64>, n: &str| sums.get(n).copied().unwrap_or(0.0);
    let mut extra: Vec<(&str, f64)> = names.keys().map(|n| (*n, of(&after, n) - of(&before, n))).collect();
    let sum: f64 = extra.iter().map(|e| e.1).sum();
    if sum <= 0.0 || !sum.is_finite() {
        return single("longer step");
    }
    extra.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let rest: f64 = extra.iter().skip(COSTS).map(|e| e.1).sum();
    extra.truncate(COSTS);
    let small = |e: &(&str, f64)| e.1.abs() < 0.02 * sum;
    let rest = rest + extra.iter().filter(|e| small(e)).map(|e| e.1).sum::<f64>();
    extra.retain(|e| !small(e));
    if rest.abs() >= 0.005 * sum {
        extra.push(("all others", rest));
    }
    let shown: f64 = extra.iter().map(|e| e.1).sum();
    let step = |(name, ms): (&str, f64)| {
        let value = -loss * ms / shown;
        let note = format!(
            "{name}: {} ms more in a step of {} a user",
            signed(ms, 3),
            fmt::plural(u64::from(tree.rows), "row")
        );
        Step {
            label: name.to_owned(),
            kind: Move::Change,
            value,
            text: format!("{} ({} ms)", cost(value), with_sign(ms)),
            note,
        }
    };
    extra.into_iter().map(step).collect()
}

/// "−0.42×".
fn cost(value: f64) -> String {
    format!("{}×", signed(value, 2))
}

/// "+1.9" with few digits.
fn with_sign(ms: f64) -> String {
    signed(ms, if ms.abs() < 10.0 { 2 } else { 1 })
}

/// The breakdowns of a plain step at a place and of the drafted step nearest to the best cell's rows.
fn pair<'a>(view: &View<'a>, at: Place, best: &Cell) -> Option<(&'a PricedBreakdown, &'a PricedBreakdown)> {
    let all = &view.priced.breakdowns;
    let here = || all.iter().filter(|b| b.context == at.1 && b.requests == at.2 && !b.ops.is_empty());
    let plain = here().find(|b| !b.draft && b.rows == 1)?;
    let rows = finite(best.rows_mean).unwrap_or(f64::from(best.budget) + 1.0);
    let away = |b: &PricedBreakdown| (f64::from(b.rows).max(1.0) / rows.max(1.0)).ln().abs();
    let tree = here().filter(|b| b.draft).min_by(|a, b| away(a).total_cmp(&away(b)))?;
    // Another size would explain another step.
    (away(tree) < 0.35).then_some((plain, tree))
}

/// What each further rung of the ladder brings and costs, for the leading acceptance: where the ceiling comes from.
pub(super) fn margins(view: &View<'_>) -> Option<Markup> {
    let (line, context, anchor) = (view.ladder?, view.context()?, *view.leading().first()?);
    let users = view.headline_users()?;
    let at = (anchor, context, users);
    let plain = view.plain(at)?;
    let mut cells = vec![plain];
    cells.extend(view.lines[line].budgets.iter().filter_map(|&b| view.cell(at, line, b)));
    let best = view.best_of(at, line).map(|c| c.budget);
    if cells.len() < 3 {
        return None;
    }
    let change = |now: Option<f64>, before: Option<f64>| {
        let pair = finite(now).zip(finite(before)).filter(|(_, b)| *b > 0.0);
        pair.map_or_else(|| fmt::MISSING.to_owned(), |(n, b)| format!("{} %", signed(100.0 * (n / b - 1.0), 1)))
    };
    Some(html! {
        h3 { "Rung by rung: " (view.anchor(anchor)) ", " (words::users(users)) ", " (words::at_context(context)) }
        @if let Some(text) = cliffs(&cells) { p { (words::glued(&text)) } }
        div class="scroll" { table class="margins" {
            thead { tr {
                th scope="col" { "Nodes" }
                th scope="col" { "τ" small { "tokens / step" } }
                th scope="col" { "More tokens" small { "than the row above" } }
                th scope="col" { "Rows" small { "per user" } }
                th scope="col" { "Experts" small { "per layer" } }
                th scope="col" { "Step" small { "ms" } }
                th scope="col" { "More time" small { "than the row above" } }
                th scope="col" { "Speed-up" small { "over plain" } }
                th scope="col" { "Per user" small { "tok / s" } }
                th scope="col" { "Per GPU" small { "tok / s" } }
                th scope="col" { "Energy" small { "J / token, not validated" } }
            } }
            tbody {
                @for (i, c) in cells.iter().enumerate() {
                    @let before = i.checked_sub(1).and_then(|j| cells.get(j));
                    tr class=[(c.budget > 0 && Some(c.budget) == best).then_some("best")] {
                        td { @if c.budget == 0 { "plain" } @else { (c.budget) } }
                        td { (fmt::or_dash(c.tau, |v| fixed(v, 2))) }
                        td { @if let Some(b) = before { (change(c.tau, b.tau)) } }
                        td { (fmt::or_dash(c.rows_mean, |v| fixed(v, 1))) }
                        td { (fmt::or_dash(c.experts_mean, |v| fixed(v, 0))) }
                        td { (fmt::or_dash(c.step_ms, short)) }
                        td { @if let Some(b) = before { (change(c.step_ms, b.step_ms)) } }
                        td { (fmt::or_dash(c.speedup, |v| format!("{}×", fixed(v, 2)))) }
                        td { (fmt::or_dash(c.tok_s_user, short)) }
                        td { (fmt::or_dash(c.tok_s_gpu, short)) }
                        td { (fmt::or_dash(c.joules_per_token, short)) }
                    }
                }
            }
        } }
    })
}

/// Where a step grows faster than its rows: that is no node's doing.
fn cliffs(cells: &[&Cell]) -> Option<String> {
    let grown = |now: Option<f64>, before: Option<f64>| Some(finite(now)? / finite(before).filter(|b| *b > 0.0)?);
    let steep: Vec<(u32, u32)> = cells
        .windows(2)
        .filter(|w| {
            let pair = grown(w[1].step_ms, w[0].step_ms).zip(grown(w[1].rows_mean, w[0].rows_mean));
            pair.is_some_and(|(ms, rows)| ms > rows.max(1.05))
        })
        .map(|w| (w[0].budget, w[1].budget))
        .collect();
    // Neighbours make one stretch.
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for (from, to) in steep {
        match spans.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => spans.push((from, to)),
        }
    }
    let words: Vec<String> = spans.iter().map(|(a, b)| format!("from {a} to {b} nodes")).collect();
    (!words.is_empty()).then(|| {
        format!(
            "A step grows faster than its rows {}: another kernel, tile or graph size in the measured tables, which a newer \
             engine may move.",
            fmt::listed(&words)
        )
    })
}
