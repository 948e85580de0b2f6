//! Figures about what is lost: tokens that a better tree would have had, and responses that only repeat themselves.

use super::{Section, name, panels};
use crate::report::fmt::{self, finite, fixed, percent};
use crate::report::model::{Entry, Group};
use crate::report::plot::{Bar, Bars, Part};

/// Where the tokens within reach went, per cell.
pub(super) fn waterfall(groups: &[Group<'_>]) -> Option<Section> {
    let figures = panels(groups, |group| waterfall_bars(group).draw())?;
    Some(Section {
        id: "waterfall",
        title: "Where tokens are lost",
        lead: groups.iter().filter_map(largest_loss).chain(groups.iter().filter_map(left_out)).collect(),
        figures,
        note: "A bar ends where the drafter's depth or the response ends. The blue part ends at τ. Behind it, positions \
               that were lost: a tree of this budget that takes ranks in order could have held them, but the policy took \
               other nodes; no such tree holds them; or the drafter's top W lacks the true token there or before. The \
               tick is τ of a tree that knows the truth and spends one node per position, a ceiling for every policy \
               with this drafter."
            .to_owned(),
    })
}

/// Whether a bar, which is of the steps that drafted, would not end at the cell's τ.
fn seldom(e: &Entry<'_>) -> bool {
    e.detail.is_some_and(|d| d.waterfall.is_some()) && e.seldom_drafts()
}

/// Cells without a bar, and why.
fn left_out(group: &Group<'_>) -> Option<String> {
    let names: Vec<String> = group
        .drafting()
        .filter(|(_, e)| seldom(e))
        .map(|(line, e)| format!("{} ({})", name(line, e), percent(e.drafted().unwrap_or_default())))
        .collect();
    (!names.is_empty()).then(|| {
        format!("{}: left out, because it drafted in a part of its steps only: {}.", group.label, fmt::listed(&names))
    })
}

/// Where the tokens within reach went, per cell of one panel.
pub(in crate::report) fn waterfall_bars(group: &Group<'_>) -> Bars {
    let bars = group.drafting().filter(|(_, e)| !seldom(e)).filter_map(|(line, e)| {
        let w = e.detail?.waterfall?;
        let label = name(line, e);
        let note = format!(
            "{label}: accepted {}, surrogate chose otherwise {}, not reachable at this budget {}, not in the top \
             ranks {}; tree that knows the truth τ {}",
            fixed(w.accepted, 2),
            fixed(w.surrogate, 2),
            fixed(w.unreachable, 2),
            fixed(w.not_in_top_w, 2),
            fixed(w.oracle_tau, 2)
        );
        Some(Bar {
            label,
            values: vec![1.0, w.accepted, w.surrogate, w.unreachable, w.not_in_top_w],
            mark: Some(w.oracle_tau),
            strip: Vec::new(),
            total: String::new(),
            note,
        })
    });
    let part = |label: &str, class| Part { label: label.to_owned(), class };
    Bars {
        title: format!("Where the tokens within reach went, {}", group.label),
        label: "tokens per verify step, bonus included".to_owned(),
        parts: vec![
            part("bonus", "w-bonus"),
            part("accepted", "w-accepted"),
            part("the surrogate chose otherwise", "w-surrogate"),
            part("not reachable at this budget", "w-unreachable"),
            part("not in the top W", "w-absent"),
        ],
        bars: bars.collect(),
        strips: Vec::new(),
        mark: "tree that knows the truth".to_owned(),
        end: None,
    }
}

/// The main reason for losses of the largest tree of the main policy.
fn largest_loss(group: &Group<'_>) -> Option<String> {
    let line = group.main()?;
    let judged = |e: &&Entry<'_>| !e.is_plain() && !seldom(e) && e.detail.is_some_and(|d| d.waterfall.is_some());
    let e = line.entries.iter().rfind(judged)?;
    let w = e.detail?.waterfall?;
    let reasons = [
        (w.surrogate, "to nodes that the policy did not choose"),
        (w.unreachable, "to the budget"),
        (w.not_in_top_w, "to the drafter, which lacks the true token among its ranks"),
    ];
    let (lost, why) = reasons.into_iter().filter(|r| r.0.is_finite()).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let all: f64 = reasons.iter().map(|r| r.0).sum();
    if !(all > 0.0 && w.oracle_tau.is_finite()) {
        return None;
    }
    Some(format!(
        "{}: {} with {} loses {} of the tokens within reach, the largest part ({} of the loss) {why}; a tree that \
         knows the truth has τ {}.",
        group.label,
        line.label,
        e.size(),
        percent(all / w.reach.max(all)),
        percent(lost / all),
        fixed(w.oracle_tau, 2)
    ))
}

/// Share of responses that end in a loop.
pub(super) fn loops(groups: &[Group<'_>]) -> Option<Section> {
    let known = || groups.iter().flat_map(|g| g.all()).filter_map(|(_, e)| finite(e.cell.loop_share));
    known().next()?;
    let note =
        "A response of 96 tokens or more loops when its last 64 tokens repeat with a period of at most 32. Loops \
                are easy to predict and flatter every policy: compare policies where they are rare."
            .to_owned();
    let mut lines = Vec::new();
    for group in groups {
        let shares: Vec<f64> = group.all().filter_map(|(_, e)| finite(e.cell.loop_share)).collect();
        let (lo, hi) = shares.iter().fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
        if shares.is_empty() {
            continue;
        }
        lines.push(if lo == hi {
            format!("{}: {} of the responses in every cell.", group.label, percent(lo))
        } else {
            format!("{}: {} to {} of the responses, by cell.", group.label, percent(lo), percent(hi))
        });
    }
    let constant = |g: &&Group<'_>| {
        let mut shares = g.all().filter_map(|(_, e)| finite(e.cell.loop_share));
        let first = shares.next();
        shares.all(|s| Some(s) == first)
    };
    let figures = groups.iter().filter(|g| !constant(g)).filter_map(|g| loop_bars(g).map(|m| (caption(g), m)));
    Some(Section { id: "loops", title: "Responses that end in a loop", lead: lines, figures: figures.collect(), note })
}

fn caption(group: &Group<'_>) -> maud::Markup {
    maud::html! { (group.label) }
}

fn loop_bars(group: &Group<'_>) -> Option<maud::Markup> {
    let bars = group.all().filter_map(|(line, e)| {
        let share = finite(e.cell.loop_share)?;
        let label = name(line, e);
        let judged = e.detail.map_or(0, |d| d.per_request.iter().filter(|r| r.looped.is_some()).count());
        let of = if judged > 0 { format!(" of {}", fmt::plural(judged as u64, "response")) } else { String::new() };
        let note = format!("{label}: {}{of}", percent(share));
        Some(Bar { label, values: vec![100.0 * share], mark: None, strip: Vec::new(), total: percent(share), note })
    });
    Bars {
        title: format!("Share of responses that end in a loop, {}", group.label),
        label: "responses that end in a loop (%)".to_owned(),
        parts: vec![Part { label: String::new(), class: "ph1" }],
        bars: bars.collect(),
        strips: Vec::new(),
        mark: String::new(),
        end: Some(100.0),
    }
    .draw()
}
