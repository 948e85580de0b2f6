//! The answer of a priced run: a sentence for the page's head, and one for every acceptance source.

use super::view::View;
use super::words;
use crate::report::fmt;
use crate::results::{Answer, Cell};

/// What to run in one sentence, [`headline`] with its [`caveats`].
pub(in crate::report) fn answer(view: &View<'_>) -> String {
    let mut caveats = caveats(view);
    caveats.extend(hypothetical(view));
    let text = headline(view);
    if caveats.is_empty() || view.priced.answers.is_empty() {
        text
    } else {
        format!("{} ({}).", text.trim_end_matches('.'), caveats.join("; "))
    }
}

/// Budgets and gains with their intervals for the leading acceptance sources at few, some and many users. Without an answer
/// it says so.
pub(super) fn headline(view: &View<'_>) -> String {
    let Some(context) = view.context() else {
        return "No cell of this run was priced, so there is nothing to conclude yet.".to_owned();
    };
    let mut clauses: Vec<String> = Vec::new();
    for anchor in view.leading() {
        let subject = if clauses.is_empty() { "acceptance is" } else { "it is" };
        let stop = ceiling(view, anchor, context).map_or_else(String::new, |text| format!("{text}: "));
        clauses.extend(
            clause(view, anchor, context)
                .map(|run| format!("where {subject} “{}”, {stop}run {run}", view.anchor(anchor))),
        );
    }
    if clauses.is_empty() {
        let counts = [(view.priced.refused.len(), "refused"), (view.priced.failed.len(), "failed")];
        let said =
            counts.iter().filter(|c| c.0 > 0).map(|(n, what)| format!("{} {what}", fmt::plural(*n as u64, "cell")));
        let said: Vec<String> = said.collect();
        let why = if said.is_empty() { String::new() } else { format!(": {}", fmt::listed(&said)) };
        return format!(
            "No cell at {} has an answer{why}, so there is nothing to conclude yet.",
            words::at_context(context)
        );
    }
    format!("{}, at {}: {}.", machine(view), words::at_context(context), clauses.join("; "))
}

/// "Kimi K2.6 on b300-sxm6".
fn machine(view: &View<'_>) -> String {
    let s = &view.priced.setup;
    match (s.model.as_str(), s.hardware.as_str()) {
        ("", "") => view.summary.experiment.clone(),
        (model, "") => model.to_owned(),
        ("", hardware) => hardware.to_owned(),
        (model, hardware) if s.ranks > 0 => format!("{model} on {}× {hardware}", s.ranks),
        (model, hardware) => format!("{model} on {hardware}"),
    }
}

/// "trees stop paying at 8 nodes for 1 user, 7 for 32 and 7 for 256 (16 nodes would give 4 %, 37 % and 28 % less)".
fn ceiling(view: &View<'_>, anchor: usize, context: u32) -> Option<String> {
    let line = view.ladder?;
    let speed = |c: &Cell| fmt::finite(c.speedup);
    let found: Vec<(u32, u32, f64)> = view
        .few_some_many(anchor, context)
        .into_iter()
        .filter_map(|u| {
            let best = view.best_of((anchor, context, u), line)?;
            // A tree that is slower than plain decoding does not pay.
            Some(if speed(best)? > 1.0 { (u, best.budget, speed(best)?) } else { (u, 0, 1.0) })
        })
        .collect();
    let first = found.first()?;
    let parts: Vec<String> = found
        .iter()
        .map(|f| match (std::ptr::eq(f, first), f.1) {
            (true, n) => format!("{} for {}", fmt::plural(u64::from(n), "node"), words::users(f.0)),
            (false, n) => format!("{n} for {}", f.0),
        })
        .collect();
    let top = found.iter().map(|f| f.1).max()?;
    let larger = [16, 32, 64].into_iter().find(|n| *n > top && view.lines[line].budgets.contains(n));
    let less = larger.and_then(|n| {
        let loss = |f: &(u32, u32, f64)| {
            let there = view.cell((anchor, context, f.0), line, n).and_then(speed)?;
            Some(fmt::percent((1.0 - there / f.2).max(0.0)))
        };
        let losses: Vec<String> = found.iter().map(loss).collect::<Option<_>>()?;
        Some(format!(" ({n} nodes would give {} less)", fmt::listed(&losses)))
    });
    Some(format!("trees stop paying at {}{}", fmt::listed(&parts), less.unwrap_or_default()))
}

/// "24 nodes at 1 user (2.31× ± 0.20), 16 nodes at 32 (+18 % ± 4 %) and plain decoding at 256".
fn clause(view: &View<'_>, anchor: usize, context: u32) -> Option<String> {
    let answers: Vec<&Answer> =
        view.few_some_many(anchor, context).into_iter().filter_map(|u| view.answer((anchor, context, u))).collect();
    let first = answers.first()?;
    // A policy that is best everywhere is named once.
    let same = answers.iter().all(|a| a.best.policy == first.best.policy) && words::below_cap(first);
    let parts: Vec<String> = answers
        .iter()
        .map(|a| {
            let start = std::ptr::eq(*a, *first);
            let users = if start { words::users(a.concurrency) } else { a.concurrency.to_string() };
            let gain = words::answer_gain(a);
            let nodes = words::nodes(a);
            match (same, start, gain.is_empty()) {
                (true, true, _) => format!("{} with {nodes} at {users} ({gain})", a.best.policy),
                (true, false, _) => format!("{nodes} at {users} ({gain})"),
                (false, _, true) => format!("{} at {users}", words::run(a)),
                (false, _, false) => format!("{} at {users} ({gain})", words::run(a)),
            }
        })
        .collect();
    Some(fmt::listed(&parts))
}

/// How far the headline carries: where acceptance comes from, what the curve prices, what lies outside its tables.
fn caveats(view: &View<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let synthetic = view.priced.acceptances.iter().filter(|a| a.kind == "process").count();
    if synthetic > 0 && synthetic == view.priced.acceptances.len() {
        out.push("acceptance comes from fitted processes, none is a trace of this pair".to_owned());
    } else if synthetic > 0 {
        out.push(format!(
            "{synthetic} of {} acceptance sources are fitted processes, not traces",
            view.priced.acceptances.len()
        ));
    }
    let failed = view.priced.failed.len() as u64;
    if failed > 0 {
        out.push(format!(
            "{} failed and {} in no answer",
            fmt::plural(failed, "cell"),
            if failed == 1 { "is" } else { "are" }
        ));
    }
    if let Some(first) = view.left_out().first() {
        let more = view.left_out().len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        out.push(format!("“at least” marks intervals that leave something out ({first}{more})"));
    }
    let busy: Vec<f64> = view.summary.cells.iter().filter_map(|c| fmt::finite(c.busy)).collect();
    if let Some((lo, hi)) = busy.iter().copied().reduce(f64::min).zip(busy.iter().copied().reduce(f64::max)) {
        let share = if hi - lo < 0.01 {
            fmt::percent(hi)
        } else {
            format!("{} to {}", fmt::percent(lo).trim_end_matches(" %"), fmt::percent(hi))
        };
        out.push(format!(
            "requests arrive by a clock and engines work {share} of the time: gains are of that time, throughput follows the \
             arrivals"
        ));
    }
    if view.priced.setup.tier == "bound" {
        out.push("times are lower limits of the roofline, never a prediction".to_owned());
    }
    let outside = view.summary.cells.iter().filter(|c| c.in_domain == Some(false)).count();
    if outside > 0 {
        let share = outside as f64 / view.summary.cells.len().max(1) as f64;
        out.push(format!("{} of the cells lie outside of what was measured", fmt::percent(share)));
    }
    out
}

/// The caveats below the page's headline; the page's warnings give the reasons.
pub(super) fn page_caveats(view: &View<'_>) -> Vec<String> {
    let mut out = caveats(view);
    if view.priced.setup.hypothetical.is_some() {
        out.push("trees on this engine are hypothetical today, chains are not".to_owned());
    }
    out
}

/// Why trees are hypothetical on the engine that is priced, where they are.
fn hypothetical(view: &View<'_>) -> Option<String> {
    let why = view.priced.setup.hypothetical.as_ref()?;
    Some(format!("trees on this engine are hypothetical: {}", why.trim_end_matches('.')))
}

/// A line for every acceptance source at the report's context: from where to where which choice is best.
pub(super) fn by_anchor(view: &View<'_>) -> Vec<(String, String)> {
    let Some(context) = view.context() else { return Vec::new() };
    let line = |anchor: usize| {
        let answers: Vec<&Answer> = view.users.iter().filter_map(|&u| view.answer((anchor, context, u))).collect();
        if answers.is_empty() {
            return None;
        }
        let mut spans: Vec<Vec<&Answer>> = Vec::new();
        for a in answers {
            match spans.last_mut() {
                Some(span) if span[0].best == a.best => span.push(a),
                _ => spans.push(vec![a]),
            }
        }
        let words: Vec<String> = spans.iter().map(|s| span(s)).collect();
        Some((view.anchor(anchor), words.join("; ") + "."))
    };
    (0..view.anchors.len()).filter_map(line).collect()
}

/// "1–4 users: best-first 24, 2.31× to +80 %".
fn span(answers: &[&Answer]) -> String {
    let (first, last) = (answers[0], answers[answers.len() - 1]);
    let range = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
    let users = if answers.len() == 1 {
        words::users(first.concurrency)
    } else {
        format!("{}–{} users", first.concurrency, last.concurrency)
    };
    if first.best.budget == 0 {
        return format!("{users}: plain decoding");
    }
    let what = if answers.iter().any(|a| words::below_cap(a)) {
        let nodes = |a: &Answer| fmt::fixed((a.rows - 1.0).max(0.0), 0);
        match range(nodes(first), nodes(last)) {
            one if one == "1" => format!("{}, about 1 node", first.best.policy),
            some => format!("{}, about {some} nodes", first.best.policy),
        }
    } else {
        words::choice(&first.best)
    };
    format!("{users}: {what}, {}", range(words::gain(first.speedup), words::gain(last.speedup)))
}

/// What the interval of the headline is made of and what would change the answer; a sentence each.
pub(super) fn behind(view: &View<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let place = view.leading().first().copied().zip(view.context()).zip(view.headline_users());
    let Some(((anchor, context), users)) = place else { return out };
    let Some(a) = view.answer((anchor, context, users)) else { return out };
    let who = format!("{}, {}, {}", view.anchor(anchor), words::users(users), words::at_context(context));
    if a.best.budget > 0 {
        out.push(format!(
            "{who}: {} is {}; half-widths {}. {}{}.",
            words::best(a),
            words::answer_gain(a),
            words::parts(a),
            match fmt::finite(a.p_best) {
                Some(p) => format!("It is best in {} of the resamples", fmt::percent(p)),
                None => "How sure the choice is, too few requests tell".to_owned(),
            },
            a.runner_up.as_ref().map_or_else(String::new, |r| {
                let ahead = a.over_runner_up.map_or_else(String::new, |v| format!(", {} behind", by(v)));
                format!("; next is {}{ahead}", words::choice(r))
            })
        ));
        if a.at_least() {
            out.push(format!("The interval is a lower bound of the uncertainty: {}.", a.left_out.join("; ")));
        }
    } else {
        out.push(format!("{who}: no tree and no chain is faster than plain decoding."));
    }
    if let Some(f) = &a.best_fixed {
        out.push(format!("Best of fixed size: {} with {}.", words::choice(&f.choice), words::gain(f.speedup)));
    }
    if let (Some(over), Some(reference)) = (fmt::finite(a.over_reference), &a.reference) {
        out.push(format!("Against today's {}: {}.", words::choice(reference), words::gain(over)));
    }
    // Inputs are moved for sizes that do not follow the step.
    let (what, kept) = match &a.best_fixed {
        Some(f) => ("the best fixed size", words::brief(&f.choice)),
        None => ("it", words::brief(&a.best)),
    };
    out.push(match words::flip(a) {
        Some(flip) => format!(
            "What would change {what}: {flip}, and keeping {kept} would then lose {}.",
            a.flips.iter().map(|f| f.loss).reduce(f64::max).map_or_else(String::new, fmt::percent)
        ),
        None if words::all_moved(a) => format!("No single input, moved by its stated error, changes {what}."),
        None => format!("None of the inputs that were moved changes {what}."),
    });
    out
}

/// "3 %" of a ratio above 1.
fn by(ratio: f64) -> String {
    fmt::percent((ratio - 1.0).abs())
}
