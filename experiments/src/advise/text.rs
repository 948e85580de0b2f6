//! The advice as a person reads it, at most 100 columns wide.

use super::engines::{EngineSetting, Support};
use super::types::{Advice, AdviceRow, Alternative, ChoiceSettings};
use crate::results::Choice;
use std::fmt::Write as _;

/// The most columns.
pub const COLUMNS: usize = 100;

/// Inputs that are listed.
const INPUTS: usize = 8;

/// The whole advice.
#[must_use]
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", wrapped(&format!("{}, tier {}", advice.deployment, advice.tier), 0));
    if let Some(why) = &advice.hypothetical {
        let _ = writeln!(out, "{}", wrapped(&format!("trees here are hypothetical: {why}"), 0));
    }
    let mut at = None;
    for row in &advice.rows {
        if at != Some((&row.acceptance, row.context)) {
            at = Some((&row.acceptance, row.context));
            head(&mut out, advice, row);
        }
        line(&mut out, advice, row);
    }
    failed(&mut out, advice);
    refused(&mut out, advice);
    next(&mut out, advice);
    flags(&mut out, advice);
    for note in &advice.notes {
        let _ = writeln!(out, "{}", wrapped(&format!("note: {note}"), 2));
    }
    out
}

/// Widths of the columns; the second is aligned to the left, the last takes what is left.
const WIDTHS: [usize; 8] = [7, 14, 13, 6, 11, 12, 7, 8];
/// The column of what runs today, left out where that was not given.
const PRESENT: usize = 5;

/// A line of the table.
fn columns(cells: &[String; 9], present: bool) -> String {
    let mut line = String::new();
    for (i, (cell, width)) in cells.iter().zip(WIDTHS).enumerate().filter(|c| present || c.0 != PRESENT) {
        let cell = clip(cell, width);
        let _ = if matches!(i, 1 | 2) { write!(line, "{cell:<width$}") } else { write!(line, "{cell:>width$}") };
        line.push(' ');
    }
    clip(&format!("{line}{}", cells[8]), COLUMNS)
}

fn head(out: &mut String, advice: &Advice, row: &AdviceRow) {
    let context =
        if row.context == 0 { "contexts of the trace".to_owned() } else { format!("context {}", row.context) };
    let _ = writeln!(out, "\n{}", clip(&format!("{}, {context}", row.acceptance), COLUMNS));
    let present = advice.present.as_ref().map_or(String::new(), |p| format!("over {}", name(p)));
    let engine = advice.engine.clone();
    let cells = ["at once", "run", "fixed", "tokens", "over plain", &present, "P(best)", "at stake", &engine];
    let _ = writeln!(out, "{}", columns(&cells.map(str::to_owned), advice.present.is_some()));
}

fn line(out: &mut String, advice: &Advice, row: &AdviceRow) {
    let other = |a: &Option<Alternative>, same: &str, loss: bool| match a {
        Some(a) if a.choice == row.best => same.to_owned(),
        Some(a) if loss => format!("{} {}", name(&a.choice), signed(-a.loss)),
        Some(a) => name(&a.choice),
        None => "–".to_owned(),
    };
    let cells = [
        row.concurrency.to_string(),
        used(row),
        other(&row.fixed, "the same", false),
        format!("{:.2}", row.tau),
        gain(row),
        row.over_present.map_or("–".to_owned(), |over| signed(over - 1.0)),
        row.p_best.map_or("–".to_owned(), |p| format!("{p:.2}")),
        share(row.at_stake),
        other(&row.today, "runs it", true),
    ];
    let _ = writeln!(out, "{}", columns(&cells, advice.present.is_some()));
}

/// `+18 % ±4`; `±≥4` where the interval leaves something out, nothing behind the gain where there is none.
fn gain(row: &AdviceRow) -> String {
    let gain = signed(row.speedup - 1.0);
    match row.hi {
        Some(hi) => {
            format!("{gain} {}{:.0}", if row.left_out.is_empty() { "±" } else { "±≥" }, (hi - row.speedup) * 100.0)
        }
        None => gain,
    }
}

/// Candidates that no row knows of.
fn failed(out: &mut String, advice: &Advice) {
    if advice.failed.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nfailed, and compared in no row");
    for f in &advice.failed {
        let what = f.choice.as_ref().map_or_else(|| "every candidate".to_owned(), name);
        let at = format!("{}, context {}, {} at once", f.acceptance, f.context, f.concurrency);
        let _ = writeln!(out, "{}", wrapped(&format!("  {what} ({at}): {}", f.reason), 4));
    }
}

fn refused(out: &mut String, advice: &Advice) {
    if advice.refused.is_empty() {
        return;
    }
    let _ = writeln!(out, "\ndoes not fit");
    let mut seen: Vec<(u32, u32)> = Vec::new();
    for r in &advice.refused {
        if !seen.contains(&(r.context, r.concurrency)) {
            seen.push((r.context, r.concurrency));
            let text = format!("  {} at once, context {}, {}: {}", r.concurrency, r.context, name(&r.choice), r.reason);
            let _ = writeln!(out, "{}", wrapped(&text, 4));
        }
    }
}

fn next(out: &mut String, advice: &Advice) {
    if advice.measure_next.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nmeasure this next");
    let _ = writeln!(
        out,
        "  {:<28} {:<32} {:>9} {:>8} {:>6} {:>7}",
        "input", "moved by", "decisions", "lost", "most", "gain"
    );
    for s in advice.measure_next.iter().take(INPUTS) {
        let _ = writeln!(
            out,
            "  {:<28} {:<32} {:>9} {:>8} {:>6} {:>7}",
            clip(&s.input, 28),
            clip(&s.changes.join(", "), 32),
            format!("{} of {}", s.flips, s.settings),
            share(s.loss_mean),
            share(s.loss_max),
            format!("±{}", share(s.swing)),
        );
    }
    let legend = "decisions: settings in which another choice is then better; lost, most: throughput lost by staying, mean \
                  and greatest; gain: how far the gain over plain decoding moves";
    let _ = writeln!(out, "{}", wrapped(&format!("  {legend}"), 2));
}

fn flags(out: &mut String, advice: &Advice) {
    if advice.settings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nhow to set it (SGLang counts the root, vLLM does not)");
    let nowhere = |c: &&ChoiceSettings| c.engines.iter().all(|e| e.support == Support::None);
    for c in advice.settings.iter().filter(|c| !nowhere(c)) {
        let _ = writeln!(out, "  {}", name(&c.choice));
        c.engines.iter().for_each(|e| engine(out, e));
    }
    let without: Vec<&ChoiceSettings> = advice.settings.iter().filter(nowhere).collect();
    if let Some(first) = without.first() {
        let names: Vec<String> = without.iter().map(|c| name(&c.choice)).collect();
        let _ = writeln!(out, "{}", wrapped(&format!("  {}", names.join(", ")), 2));
        first.engines.iter().for_each(|e| engine(out, e));
    }
    for s in &advice.schedules {
        let _ = writeln!(out, "  chain length by batch size, {}, context {}", clip(&s.acceptance, 40), s.context);
        let _ = writeln!(out, "{}", wrapped(&format!("    vllm    {}", s.flags), 12));
    }
}

/// One engine's part of a choice.
fn engine(out: &mut String, e: &EngineSetting) {
    let word = match e.support {
        Support::Exact => "",
        Support::Near => "near: ",
        Support::None => "cannot today: ",
    };
    let note = e.note.as_deref().unwrap_or_default();
    let first = if e.flags.is_empty() { note } else { &e.flags };
    let _ = writeln!(out, "{}", wrapped(&format!("    {:<7} {word}{first}", e.engine), 12));
    if !e.flags.is_empty() && !note.is_empty() {
        let _ = writeln!(out, "{}", wrapped(&format!("            ({note})"), 13));
    }
}

/// `best-first 16`.
/// The best choice; one that sizes itself by the nodes that it uses: "batch-wide ≈ 5".
fn used(row: &AdviceRow) -> String {
    let below = row.nodes < 0.9 * f64::from(row.best.budget);
    if row.best.policy == "chain" || !below {
        name(&row.best)
    } else {
        format!("{} ≈ {:.0}", row.best.policy, row.nodes)
    }
}

pub(super) fn name(choice: &Choice) -> String {
    if choice.budget == 0 { choice.policy.clone() } else { format!("{} {}", choice.policy, choice.budget) }
}

fn signed(x: f64) -> String {
    let percent = x * 100.0;
    if percent.abs() >= 9.95 { format!("{percent:+.0} %") } else { format!("{percent:+.1} %") }
}

fn share(x: f64) -> String {
    let percent = x * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// The first `columns` characters, the last one `…` where there are more.
fn clip(text: &str, columns: usize) -> String {
    let text = text.trim_end();
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Lines of at most [`COLUMNS`] characters, broken at spaces, all but the first indented. A word that is longer stands on
/// its own: a flag must be copied whole.
fn wrapped(text: &str, indent: usize) -> String {
    let lead = text.len() - text.trim_start().len();
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(lead);
    for word in text.split_whitespace() {
        let empty = line.trim().is_empty();
        if !empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            line.push_str(word);
        } else {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.push(line);
    lines.join("\n")
}
