//! Figures about accepted tokens: by budget, by domain, and against the surrogate's own expectation.

use maud::{Markup, html};

use super::{Section, key, name, panels};
use crate::report::domains::by_domain;
use crate::report::fmt::{self, finite, fixed, plural, signed};
use crate::report::model::{Entry, Group, Line};
use crate::report::plot::{Axis, Chart, Dot, DotRow, Dots, Kind, Look, Point, Reference, Series};
use crate::report::stats;
use crate::results::RequestRow;

/// τ against budget, one panel per temperature.
pub(super) fn tau_by_budget(groups: &[Group<'_>]) -> Option<Section> {
    let figures = panels(groups, tau_chart)?;
    Some(Section {
        id: "tau",
        title: "Accepted tokens against budget",
        lead: groups.iter().filter_map(growth).collect(),
        figures,
        note: "Bars: 95 % intervals over prompts. They share their prompts, so two overlapping bars can still differ \
               clearly; differences given in words are paired by prompt. Marks at one budget are set side by side."
            .to_owned(),
    })
}

/// τ against budget of one panel.
pub(in crate::report) fn tau_chart(group: &Group<'_>) -> Option<Markup> {
    let series: Vec<Series> = group.lines.iter().filter_map(tau_line).collect();
    let plain = group.all().find(|(_, e)| e.is_plain());
    let budgets = || series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
    let (lo, hi) = budgets().fold((f64::INFINITY, 0.0f64), |(lo, hi), b| (lo.min(b), hi.max(b)));
    let references = plain
        .and_then(|(_, e)| finite(e.cell.tau))
        .filter(|_| hi > 0.0)
        .map(|tau| Reference {
            label: format!("plain decoding, {}", fixed(tau, 2)),
            points: vec![(lo, tau), ((lo * hi).sqrt(), tau), (hi, tau)],
        })
        .into_iter()
        .collect();
    Chart {
        title: format!("Tokens per verify step against budget, {}", group.label),
        x: Axis { kind: Kind::Log2, ..Axis::linear("budget (nodes without the root)", &[]) },
        y: Axis::linear("τ (tokens per verify step)", &[1.0]),
        series,
        references,
    }
    .draw()
}

fn tau_line(line: &Line<'_>) -> Option<Series> {
    let drafting: Vec<&Entry<'_>> = line.entries.iter().filter(|e| !e.is_plain()).collect();
    let points: Vec<Point> = drafting
        .iter()
        .filter_map(|e| {
            let tau = finite(e.cell.tau)?;
            let ends = finite(e.cell.tau_lo).zip(finite(e.cell.tau_hi));
            let words = fmt::interval(e.cell.tau_lo, e.cell.tau_hi, 2).map_or(String::new(), |i| format!(" ({i})"));
            let prompts = plural(u64::from(e.cell.requests), "prompt");
            let note = format!("{}, {}: τ {}{words}, {prompts}", line.label, e.size(), fixed(tau, 2));
            Some(Point { x: f64::from(e.cell.budget), y: tau, ends, note, tag: String::new() })
        })
        .collect();
    let label = if drafting.iter().all(|e| e.seldom_drafts()) {
        format!("{} (few drafts)", line.label)
    } else if drafting.iter().any(|e| e.below_cap()) {
        format!("{} (cap)", line.label)
    } else {
        line.label.clone()
    };
    Series::joined(label, line.slot, points)
}

/// What more nodes brought the main policy of a panel.
fn growth(group: &Group<'_>) -> Option<String> {
    let main = group.main()?;
    let drafting: Vec<Entry<'_>> = main.entries.iter().filter(|e| !e.is_plain()).copied().collect();
    let (first, last) = (drafting.first()?, drafting.last()?);
    if first.cell.budget == last.cell.budget {
        return None;
    }
    let d = stats::difference(first.detail?, last.detail?)?;
    Some(format!(
        "{}: {} with {} in place of {} nodes gives {} tokens a step ({} to {}, paired over {}).",
        group.label,
        main.label,
        last.cell.budget,
        first.cell.budget,
        signed(d.mid, 2),
        signed(d.lo, 2),
        signed(d.hi, 2),
        plural(d.n as u64, "prompt"),
    ))
}

/// τ by domain: the chain, and the main policy at a common and at its largest budget.
pub(super) fn domains(groups: &[Group<'_>]) -> Option<Section> {
    let mut figures = Vec::new();
    for group in groups {
        let shown = contrasted(group);
        let mut names: Vec<&str> = Vec::new();
        for row in shown.iter().filter_map(|(_, e)| e.detail).flat_map(|d| &d.per_request) {
            if !names.contains(&row.domain.as_str()) {
                names.push(&row.domain);
            }
        }
        if names.len() < 2 {
            continue;
        }
        let rows = names.iter().map(|domain| DotRow {
            label: (*domain).to_owned(),
            dots: shown.iter().filter_map(|(l, e)| domain_dot(l, *e, domain, hollow(&shown, l, *e))).collect(),
        });
        let picture = Dots {
            title: format!("Tokens per verify step by domain, {}", group.label),
            label: "τ (tokens per verify step)".to_owned(),
            rows: rows.collect(),
            include: 1.0,
        }
        .draw();
        if let Some(picture) = picture {
            let labels: Vec<(usize, bool, String)> =
                shown.iter().map(|(l, e)| (l.slot, hollow(&shown, l, *e), name(l, *e))).collect();
            let caption = html! { (group.label) (key(&labels)) };
            figures.push((caption, picture));
        }
    }
    if !figures.is_empty() {
        figures.extend(by_domain(groups).iter().map(|g| (html! { (g.title) }, g.html())));
    }
    (!figures.is_empty()).then_some(Section {
        id: "domains",
        title: "Accepted tokens by domain",
        lead: Vec::new(),
        figures,
        note: "Large marks: τ over the responses of a domain. Small dots: single responses. Bars: 95 % intervals over \
               prompts, drawn from five prompts on; with fewer, the dots are all there is to say. The tables have every \
               policy; mean of domains: each domain counts the same, whatever its number of steps; ÷ chain: of these means. \
               treeline report --markdown prints them."
            .to_owned(),
    })
}

/// The cells that a domain figure sets side by side.
fn contrasted<'g, 'a>(group: &'g Group<'a>) -> Vec<(&'g Line<'a>, Entry<'a>)> {
    let mut shown: Vec<(&Line<'a>, Entry<'a>)> = group.chain().into_iter().collect();
    let main = group.main();
    if let Some(main) = main.filter(|m| m.entries.iter().all(|e| e.cell.policy != "chain")) {
        let common = group.comparable().into_iter().find(|(l, _)| std::ptr::eq(*l, main));
        let largest = main.entries.iter().rfind(|e| !e.is_plain()).map(|e| (main, *e));
        for candidate in common.into_iter().chain(largest) {
            if shown.iter().all(|(_, e)| !std::ptr::eq(e.cell, candidate.1.cell)) {
                shown.push(candidate);
            }
        }
    }
    shown
}

/// Two budgets of one policy must not look alike: the smaller is an outline.
fn hollow(shown: &[(&Line<'_>, Entry<'_>)], line: &Line<'_>, e: Entry<'_>) -> bool {
    shown.iter().any(|(l, other)| std::ptr::eq(*l, line) && other.cell.budget > e.cell.budget)
}

fn domain_dot(line: &Line<'_>, e: Entry<'_>, domain: &str, hollow: bool) -> Option<Dot> {
    let rows: Vec<&RequestRow> = e.detail?.per_request.iter().filter(|r| r.domain == domain).collect();
    let tau = stats::tau(&rows)?;
    let stepped = rows.iter().filter(|r| r.steps > 0);
    Some(Dot {
        slot: line.slot,
        hollow,
        mid: tau.mid,
        ends: tau.ends.filter(|_| rows.len() >= 5),
        behind: stepped.map(|r| r.tokens as f64 / r.steps as f64).collect(),
        note: format!(
            "{domain}, {}: τ {} over {}",
            name(line, e),
            fixed(tau.mid, 2),
            plural(rows.len() as u64, "prompt")
        ),
    })
}

/// The surrogate's expectation against what was accepted.
pub(super) fn calibration(groups: &[Group<'_>]) -> Option<Section> {
    let figures = panels(groups, |group| {
        let series: Vec<Series> = group.lines.iter().filter_map(phi_line).collect();
        // The diagonal spans the expected values: beyond them it would leave the frame.
        let expected = series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let (low, top) = expected.fold((f64::INFINITY, 0.0f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        // A single cell still has a diagonal to be judged by.
        let (low, top) = (0.92 * low, 1.03 * top);
        let references = vec![Reference {
            label: "expected = accepted".to_owned(),
            points: vec![(low, low), ((low + top) / 2.0, (low + top) / 2.0), (top, top)],
        }];
        Chart {
            title: format!("Expected against accepted draft tokens per step, {}", group.label),
            // The diagonal's ends as well: an axis that cuts one off would bend it.
            x: Axis::linear("Φ: draft tokens per step that the drafter expects", &[low, top]),
            y: Axis::linear("accepted draft tokens per step", &[low]),
            series,
            references,
        }
        .draw()
    })?;
    Some(Section {
        id: "calibration",
        title: "Is the drafter calibrated?",
        lead: Vec::new(),
        figures,
        note: "Φ is the sum of the draft probabilities of all nodes of the tree. Below the dashed line the drafter \
               promises more than the target accepts. Drafts are always made at temperature 1, so Φ does not know the \
               target's temperature. Numbers, where there is room, are budgets; bars: 95 % intervals over prompts."
            .to_owned(),
    })
}

fn phi_line(line: &Line<'_>) -> Option<Series> {
    let points: Vec<Point> = line
        .entries
        .iter()
        .filter(|e| !e.is_plain())
        .filter_map(|e| {
            let (phi, accepted) = e.detail?.phi?;
            // The interval of τ is of all steps, Φ of those that drafted.
            let known = finite(e.cell.tau_lo).zip(finite(e.cell.tau_hi)).filter(|_| !e.seldom_drafts());
            let ends = known.map(|(a, b)| (a - 1.0, b - 1.0));
            let note =
                format!("{}: {} expected, {} accepted per step", name(line, *e), fixed(phi, 2), fixed(accepted, 2));
            Some(Point { x: phi, y: accepted, ends, note, tag: e.cell.budget.to_string() })
        })
        .collect();
    let joined = points.len() > 1;
    (!points.is_empty()).then(|| Series {
        label: line.label.clone(),
        slot: line.slot,
        points: if joined { points } else { points.into_iter().map(|p| Point { tag: String::new(), ..p }).collect() },
        look: if joined { Look::Joined } else { Look::Marks },
    })
}
