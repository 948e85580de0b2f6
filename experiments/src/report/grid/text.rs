//! The answers of a priced run for a terminal, as Markdown, and as a picture.

use maud::{PreEscaped, html};

use super::page::GRID;
use super::view::View;
use super::{answer, maps, tables, words};
use crate::report::page::PALETTE;
use crate::report::plot::{EDGES, Size, Tile, edge, printed, px, text_width};

/// Rows of the terminal's table; the page has all.
const ROWS: usize = 40;

/// Failures, and reasons of open intervals, that stand below it.
const REMARKS: usize = 5;

/// An aligned table of the answers at the report's context, at most `width` columns wide; columns that do not fit go from
/// the right. Ends with a newline; empty without answers.
pub(in crate::report) fn table(view: &View<'_>, colour: bool, width: usize) -> String {
    let tables::Lines { heads, mut rows } = tables::lines(view);
    if rows.is_empty() {
        return String::new();
    }
    let (heads, numbers): (Vec<String>, Vec<bool>) = heads.into_iter().unzip();
    if rows.len() > ROWS {
        // Every source at a few concurrencies says more than some sources at all of them.
        let kept = view.few_users();
        rows.retain(|r| kept.contains(&r[2]));
    }
    let columns = heads.len();
    let wide: Vec<usize> =
        (0..columns).map(|i| rows.iter().chain([&heads]).map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
    let mut kept = columns;
    while kept > 5 && wide[..kept].iter().sum::<usize>() + 2 * (kept - 1) > width {
        kept -= 1;
    }
    let line = |row: &[String]| {
        let cells = row.iter().take(kept).zip(&wide).enumerate().map(|(i, (text, w))| {
            let gap = " ".repeat(w - text.chars().count());
            if numbers[i] { format!("{gap}{text}") } else { format!("{text}{gap}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let dim = |text: String| if colour { format!("\x1b[2m{text}\x1b[0m") } else { text };
    let mut out = dim(line(&heads)) + "\n";
    let mut before = "";
    for row in rows.iter().take(ROWS) {
        if !before.is_empty() && row[0] != before {
            out.push('\n');
        }
        before = &row[0];
        out.push_str(&line(row));
        out.push('\n');
    }
    if rows.len() > ROWS || view.contexts.len() > 1 {
        let all = view.priced.answers.len();
        out.push_str(&dim(format!(
            "{} of {all} answers; all of them, with maps and intervals, are in report.html and priced.json",
            rows.len().min(ROWS)
        )));
        out.push('\n');
    }
    for line in tables::remarks(view, REMARKS) {
        out.push_str(&wrapped(&line, width));
        out.push('\n');
    }
    out
}

/// Broken at spaces to lines of at most `width` characters, all but the first indented. A longer word stands on its own.
fn wrapped(text: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let long = word.chars().count();
        if column > 0 && column + 1 + long > width {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += long;
    }
    out
}

/// The answer and its tables as Markdown: the leading context, and the map of every leading acceptance.
pub(in crate::report) fn markdown(view: &View<'_>) -> String {
    let mut out = answer::answer(view) + "\n";
    let row = |cells: &[String]| format!("| {} |\n", cells.iter().map(|c| escaped(c)).collect::<Vec<_>>().join(" | "));
    let grid = |title: String, heads: Vec<String>, rows: Vec<Vec<String>>| {
        let rule = vec!["---".to_owned(); heads.len()];
        let body: String = rows.iter().map(|r| row(r)).collect();
        format!("\n**{title}**\n\n{}{}{body}", row(&heads), row(&rule))
    };
    let tables::Lines { heads, rows } = tables::lines(view);
    if !rows.is_empty() {
        out.push_str(&grid("What to run".to_owned(), heads.into_iter().map(|h| h.0).collect(), rows));
    }
    let remarks = tables::remarks(view, usize::MAX);
    if !remarks.is_empty() {
        let list: String = remarks.iter().map(|line| format!("* {}\n", line.replace(['\n', '\r'], " "))).collect();
        out.push_str(&format!("\n{list}"));
    }
    let Some(context) = view.context() else { return out };
    for anchor in view.leading() {
        let Some(heat) = maps::map(view, anchor, context, Size::Large) else { continue };
        let heads = std::iter::once("nodes, by users".to_owned()).chain(heat.columns.iter().cloned()).collect();
        let rows = heat
            .above
            .iter()
            .chain(&heat.ladder)
            .map(|r| std::iter::once(r.label.clone()).chain(r.tiles.iter().map(spoken)).collect());
        let title =
            format!("Speed-up over plain decoding (×), {}, {}", view.anchor(anchor), words::at_context(context));
        out.push_str(&grid(title, heads, rows.collect()));
    }
    out
}

/// A tile in words.
fn spoken(tile: &Tile) -> String {
    match tile {
        Tile::Ratio { value, .. } => printed(*value),
        Tile::Refused(_) => "does not fit".to_owned(),
        Tile::Absent => String::new(),
    }
}

/// Text in a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Width of a panel, as drawn.
const PANEL: f64 = 440.0;
/// Air around and between the panels.
const AIR: f64 = 22.0;
/// Top of the panels, below their titles.
const TOP: f64 = 56.0;

/// The maps of the leading acceptance sources side by side, with their key: a self-contained SVG that follows the reader's
/// light or dark setting. `None` when there is no map.
pub(in crate::report) fn picture(view: &View<'_>) -> Option<String> {
    let context = view.context()?;
    let panels: Vec<_> = view
        .leading()
        .into_iter()
        .filter_map(|a| {
            let heat = maps::map(view, a, context, Size::Large)?;
            Some((view.anchor(a), heat.height(), heat.draw()?))
        })
        .collect();
    if panels.is_empty() {
        return None;
    }
    let n = panels.len() as f64;
    let width = n * PANEL + (n + 1.0) * AIR;
    let tall = panels.iter().map(|p| p.1).fold(0.0, f64::max);
    let key = TOP + tall + 8.0;
    let height = key + 58.0;
    let s = &view.priced.setup;
    let machine = if s.ranks > 0 { format!("{}× {}", s.ranks, s.hardware) } else { s.hardware.clone() };
    let source = format!(
        "{}: {} on {machine}, {}; times: {}",
        view.summary.experiment,
        s.model,
        words::at_context(context),
        [s.tier.as_str(), s.engine.as_str()].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ")
    );
    let step = 17.0;
    let page = html! {
        svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox={ "0 0 " (px(width)) " " (px(height)) } width=(px(width)) height=(px(height)) role="img" aria-label={ "Speed-up over plain decoding by budget and concurrency" } {
            style { (PreEscaped(PALETTE)) (PreEscaped(GRID)) }
            rect class="ground" width=(px(width)) height=(px(height)) rx="8" {}
            @for (i, (name, high, svg)) in panels.iter().enumerate() {
                @let left = AIR + (PANEL + AIR) * i as f64;
                text class="head" x=(px(left)) y="34" { (name) }
                svg x=(px(left)) y=(px(TOP)) width=(px(PANEL)) height=(px(*high)) { (svg) }
            }
            @for i in 0..=EDGES.len() {
                rect class={ "d" (i) } x=(px(AIR + step * 1.6 * i as f64)) y=(px(key)) width=(px(step * 1.6)) height="10" {}
                @if let Some(limit) = EDGES.get(i) {
                    text class="tick mid" x=(px(AIR + step * 1.6 * (i as f64 + 1.0))) y=(px(key + 22.0)) { (edge(*limit)) }
                }
            }
            @let after = AIR + step * 1.6 * (EDGES.len() as f64 + 1.0) + 14.0;
            @let words = "speed-up over plain decoding (×)";
            text class="title" x=(px(after)) y=(px(key + 9.0)) { (words) }
            @let line = after + text_width(words) + 16.0;
            path class="ceiling" d={ "M" (px(line)) " " (px(key + 5.0)) "h18" } {}
            text class="title" x=(px(line + 24.0)) y=(px(key + 9.0)) { "ceiling: the budget that pays most" }
            text class="title" x=(px(AIR)) y=(px(height - 12.0)) { (source) }
        }
    };
    Some(page.into_string() + "\n")
}
