//! The answers as tables: one that a person acts on, one for all contexts, and the text of both.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::view::{Place, View, tokens};
use super::words;
use crate::report::fmt::{self, MISSING, fixed};
use crate::report::plot::shade;
use crate::results::Answer;

/// Share of the resamples below which a choice is not sure.
const SURE: f64 = 0.9;

/// Best choice by concurrency (rows) and acceptance (columns) at one context, tinted by its gain.
pub(super) fn overview(view: &View<'_>, context: u32) -> Option<Markup> {
    let anchors: Vec<usize> = (0..view.anchors.len())
        .filter(|&a| view.users.iter().any(|&u| view.answer((a, context, u)).is_some()))
        .collect();
    if anchors.is_empty() {
        return None;
    }
    Some(html! {
        div class="scroll" { table class="answers" style={ "min-width:" (56 + 99 * anchors.len()) "px;max-width:" (56 + 260 * anchors.len()) "px" } {
            thead { tr {
                th class="text" scope="col" { "Users" }
                @for &a in &anchors {
                    th class="text" scope="col" { (view.anchors[a]) @if let Some(tau) = view.unnamed_tau(a) { small { (tau) } } }
                }
            } }
            tbody {
                @for &u in &view.users {
                    tr {
                        th class="text" scope="row" { (u) }
                        @for &a in &anchors { (cell(view, (a, context, u))) }
                    }
                }
            }
        } }
    })
}

fn cell(view: &View<'_>, at: Place) -> Markup {
    let failed = view.failed(at).len() as u64;
    let Some(a) = view.answer(at) else {
        if failed > 0 {
            return html! { td class="text refused" { "failed" } };
        }
        let refused = view.refused(at);
        return match refused.first() {
            Some(r) => {
                html! { td class="text refused" title=(r.reason) { "does not fit" @if let Some(cap) = r.largest_cap { small { "at most " (words::users(cap)) } } } }
            }
            None => html! { td class="text missing" { (MISSING) } },
        };
    };
    let plain = a.best.budget == 0;
    let tint = if plain { 4 } else { shade(a.speedup) };
    let unsure = a.p_best.filter(|p| *p < SURE && !plain);
    html! {
        td class={ "text tint t" (tint) } title=(words::sources(view, at, &a.best)) {
            b { (words::best(a)) }
            @if !plain { " " span class="gain" { (words::glued(&words::answer_gain(a))) } }
            @if words::outside(view, at, &a.best) { small { "outside its tables" } }
            @if failed > 0 { small { (fmt::plural(failed, "candidate")) " failed" } }
            @if let Some(p) = unsure { small { "best in " (words::glued(&fmt::percent(p))) @if let Some(r) = &a.runner_up { ", else " span class="whole" { (words::brief(r)) } } } }
        }
    }
}

/// All that is known of the answers of one acceptance at one context.
pub(super) fn full(view: &View<'_>, anchor: usize, context: u32) -> Option<Markup> {
    let answers: Vec<(Place, &Answer)> =
        view.users.iter().map(|&u| (anchor, context, u)).filter_map(|at| view.answer(at).map(|a| (at, a))).collect();
    if answers.is_empty() {
        return None;
    }
    let reference = answers.iter().find_map(|(_, a)| a.reference.as_ref());
    let fixed_too = answers.iter().any(|(_, a)| a.best_fixed.is_some());
    // Where all figures come from the same places, that is said once.
    let flags: BTreeSet<String> = answers.iter().map(|(at, a)| words::sources(view, *at, &a.best)).collect();
    let differ = flags.len() > 1;
    let open = view.open_loop();
    let mut left_out: Vec<&str> = Vec::new();
    for line in answers.iter().flat_map(|(_, a)| &a.left_out) {
        if !left_out.contains(&line.as_str()) {
            left_out.push(line);
        }
    }
    Some(html! {
        @if let (false, Some(all)) = (differ, flags.first().filter(|f| !f.is_empty())) { p class="note" { (all) "." } }
        div class="scroll" { table class="full" {
            thead { tr {
                th class="text" scope="col" { "Users" }
                th class="text" scope="col" { "Run" }
                th scope="col" { "τ" small { "tokens / step" } }
                th scope="col" { "Rows" small { "per user" } }
                th scope="col" { "Gain" small { "over plain" } }
                th scope="col" { "Of it ± %" small { "sampling / model / transfer" } }
                @if let Some(r) = reference { th scope="col" { "Over " (words::brief(r)) small { "today" } } }
                @if fixed_too { th class="text" scope="col" { "Best fixed" small { "gain over plain" } } }
                th scope="col" { "Best in" small { "of resamples" } }
                @if open { th scope="col" { "Throughput" small { "tok / s, idle included" } } th scope="col" { "Busy" small { "of the time" } } }
                th class="text" scope="col" { "Next" small { "behind by" } }
                th class="text wrap" scope="col" { "What would change it" @if fixed_too { small { "the best fixed size, where the best is another" } } }
                @if differ { th class="text" scope="col" { "Figures" } }
            } }
            tbody { @for (at, a) in &answers { (line(view, *at, a, (reference.is_some(), fixed_too, differ))) } }
        } }
        @if !left_out.is_empty() { p class="note" { "Left out of the intervals, which are lower bounds: " (words::glued(&left_out.join("; "))) "." } }
    })
}

fn line(view: &View<'_>, at: Place, a: &Answer, (reference, fixed_too, differ): (bool, bool, bool)) -> Markup {
    let flip = words::flip(a);
    let plain = a.best.budget == 0;
    let parts = [a.parts.sampling, a.parts.model, a.parts.transfer].map(words::part).join(" / ");
    html! {
        tr {
            td class="text" { (a.concurrency) }
            td class="text" { b { (words::best(a)) } @if words::outside(view, at, &a.best) { small { "outside its tables" } } }
            td { (fixed(a.tau, 2)) }
            td { (fixed(a.rows, 1)) }
            td { @if plain { (MISSING) } @else { (words::glued(&words::answer_gain(a))) } }
            td class=[plain.then_some("missing")] { @if plain { (MISSING) } @else { (parts) } }
            @if reference { td { (fmt::or_dash(a.over_reference, words::gain)) } }
            @if fixed_too { td class="text" { @match &a.best_fixed { Some(f) => { (words::brief(&f.choice)) " " span class="dim" { (words::gain(f.speedup)) } } None => { (MISSING) } } } }
            td { (fmt::or_dash(a.p_best, fmt::percent)) }
            @if view.open_loop() { @let (rate, busy) = load(view, at, a); td { (rate) } td { (busy) } }
            td class="text" { @match &a.runner_up {
                Some(r) => { (words::brief(r)) @if let Some(v) = fmt::finite(a.over_runner_up) { " " span class="dim" { (fmt::percent((v - 1.0).max(0.0))) } } }
                None => { (MISSING) }
            } }
            td class="text wrap" { (flip.as_deref().unwrap_or(words::unflipped(a))) }
            @if differ { td class="text dim" { (words::sources(view, at, &a.best)) } }
        }
    }
}

/// Throughput with idle time and busy share of an answer's choice.
fn load(view: &View<'_>, at: Place, a: &Answer) -> (String, String) {
    let cell = view.chosen(at, &a.best.policy, a.best.budget);
    let of = |f: fn(&crate::results::Cell) -> Option<f64>| cell.and_then(f);
    (fmt::or_dash(of(|c| c.tok_s), fmt::short), fmt::or_dash(of(|c| c.busy), fmt::percent))
}

/// A table in words.
pub(super) struct Lines {
    /// Heads of the columns, and whether they are numbers.
    pub heads: Vec<(String, bool)>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// The answers at the report's context for a terminal and for Markdown.
pub(super) fn lines(view: &View<'_>) -> Lines {
    let mut heads = vec![("acceptance", false), ("context", true), ("users", true), ("run", false), ("gain", false)];
    let open = view.open_loop();
    if open {
        heads.extend([("tok/s", true), ("busy", true)]);
    }
    let today = view.priced.setup.hypothetical.is_some();
    if today {
        heads.push(("runs today", false));
    }
    heads.extend([("best in", true), ("next", false), ("what would change it", false)]);
    let heads = heads.into_iter().map(|(head, number)| (head.to_owned(), number)).collect::<Vec<_>>();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let Some(context) = view.context() else { return Lines { heads, rows } };
    let dash = || MISSING.to_owned();
    for anchor in 0..view.anchors.len() {
        for &u in &view.users {
            let at = (anchor, context, u);
            let failed = view.failed(at).len();
            let mut row = vec![view.anchor(anchor), tokens(context), u.to_string()];
            if let Some(a) = view.answer(at) {
                let gain = words::answer_gain(a);
                let lost = if failed > 0 { format!(" ({failed} failed)") } else { String::new() };
                row.extend([words::best(a) + &lost, if gain.is_empty() { dash() } else { gain }]);
                if open {
                    let (rate, busy) = load(view, at, a);
                    row.extend([rate, busy]);
                }
                if today {
                    row.push(words::today(a).unwrap_or_else(dash));
                }
                row.push(fmt::or_dash(a.p_best, fmt::percent));
                row.push(a.runner_up.as_ref().map_or_else(dash, words::brief));
                row.push(words::flip(a).unwrap_or_else(|| words::unflipped(a).to_owned()));
            } else if failed > 0 {
                row.push("failed".to_owned());
            } else if let Some(r) = view.refused(at).first() {
                row.push(
                    r.largest_cap.map_or_else(|| "does not fit".to_owned(), |c| format!("does not fit, at most {c}")),
                );
            } else {
                continue;
            }
            row.resize_with(heads.len(), dash);
            rows.push(row);
        }
    }
    Lines { heads, rows }
}

/// Lines of what is in no answer, and of what intervals leave out, for below the table: at most `most` of each.
pub(super) fn remarks(view: &View<'_>, most: usize) -> Vec<String> {
    let some = |mut lines: Vec<String>| {
        let more = lines.len().saturating_sub(most);
        lines.truncate(most);
        if more > 0 {
            lines.push(format!("and {more} more, all of them in priced.json"));
        }
        lines
    };
    let lost = |f: &crate::results::FailedCell| {
        let what = f.choice.as_ref().map_or_else(|| "every candidate".to_owned(), words::brief);
        let at = format!("{}, {}, {}", f.acceptance, words::at_context(f.context), words::users(f.concurrency));
        format!("failed and in no answer: {what} ({at}): {}", f.reason)
    };
    let mut out = some(view.priced.failed.iter().map(lost).collect());
    let left_out = view.left_out().into_iter();
    out.extend(some(left_out.map(|line| format!("“at least”, since not all was computed: {line}")).collect()));
    // Flips by the cost model name what is timed; the others need a word of where they come from.
    let mut flips = view.priced.answers.iter().flat_map(|a| &a.flips);
    if let Some(f) = flips.find(|f| f.key != "experts" && !f.input.starts_with("time of ")) {
        out.push(format!("inputs such as “{}” are parameters of the acceptance process: `treeline profiles NAME` shows each with its source", f.input));
    }
    if view.open_loop() {
        let note = "requests arrive by a clock: gains are of the engine while it works, tok/s is over all time";
        out.push(note.to_owned());
    }
    out
}
