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
    let Some(a) = view.answer(at) else {
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
    let unsure = a.p_best < SURE && !plain;
    html! {
        td class={ "text tint t" (tint) } title=(words::sources(view, at, &a.best)) {
            b { (words::best(a)) }
            @if !plain { " " span class="gain" { (words::glued(&words::answer_gain(a))) } }
            @if words::outside(view, at, &a.best) { small { "outside its tables" } }
            @if unsure { small { "best in " (words::glued(&fmt::percent(a.p_best))) @if let Some(r) = &a.runner_up { ", else " span class="whole" { (words::brief(r)) } } } }
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
                th class="text" scope="col" { "Next" small { "behind by" } }
                th class="text wrap" scope="col" { "What would change it" @if fixed_too { small { "the best fixed size, where the best is another" } } }
                @if differ { th class="text" scope="col" { "Figures" } }
            } }
            tbody { @for (at, a) in &answers { (line(view, *at, a, (reference.is_some(), fixed_too, differ))) } }
        } }
    })
}

fn line(view: &View<'_>, at: Place, a: &Answer, (reference, fixed_too, differ): (bool, bool, bool)) -> Markup {
    let flip = words::flip(a);
    let plain = a.best.budget == 0;
    let parts = [a.parts.sampling, a.parts.model, a.parts.transfer].map(words::points).join(" / ");
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
            td { (fmt::percent(a.p_best)) }
            td class="text" { @match &a.runner_up {
                Some(r) => { (words::brief(r)) @if let Some(v) = fmt::finite(a.over_runner_up) { " " span class="dim" { (fmt::percent((v - 1.0).max(0.0))) } } }
                None => { (MISSING) }
            } }
            td class="text wrap" { (flip.as_deref().unwrap_or("no single input")) }
            @if differ { td class="text dim" { (words::sources(view, at, &a.best)) } }
        }
    }
}

/// Lines of the answers at the report's context for a terminal and for Markdown: heads, then rows.
pub(super) fn lines(view: &View<'_>) -> (Vec<String>, Vec<Vec<String>>) {
    let heads = ["acceptance", "context", "users", "run", "gain", "best in", "next", "what would change it"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let Some(context) = view.context() else { return (heads.map(str::to_owned).into(), rows) };
    for anchor in 0..view.anchors.len() {
        for &u in &view.users {
            let at = (anchor, context, u);
            let dash = || MISSING.to_owned();
            let rest = if let Some(a) = view.answer(at) {
                let gain = words::answer_gain(a);
                [
                    words::best(a),
                    if gain.is_empty() { dash() } else { gain },
                    fmt::percent(a.p_best),
                    a.runner_up.as_ref().map_or_else(dash, words::brief),
                    words::flip(a).unwrap_or_else(|| "no single input".to_owned()),
                ]
            } else if let Some(r) = view.refused(at).first() {
                let cap = r.largest_cap.map_or_else(String::new, |c| format!(", at most {c}"));
                [format!("does not fit{cap}"), dash(), dash(), dash(), dash()]
            } else {
                continue;
            };
            let head = [view.anchor(anchor), tokens(context), u.to_string()];
            rows.push(head.into_iter().chain(rest).collect());
        }
    }
    (heads.map(str::to_owned).into(), rows)
}
