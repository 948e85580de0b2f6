//! τ by domain, policy and temperature, and distinct experts by rows: the tables that a model card quotes. The page and
//! the Markdown show the same words.

use maud::{Markup, html};

use super::RoutedExperts;
use super::fmt::{MISSING, finite, fixed, interval, percent};
use super::model::{Entry, Group, Line};
use super::plot::swatch;
use super::sections::name;
use super::stats;
use crate::results::{CellDetail, RequestRow};

/// Loop share from which τ says more about loops than about text.
pub(super) const LOOPS: f64 = 0.1;

/// A table in words.
pub(super) struct Grid {
    /// What it is of.
    pub title: String,
    /// Heads of the columns; the first names the rows.
    pub heads: Vec<String>,
    /// Palette slot of the policy, and a text per column.
    pub rows: Vec<(usize, Vec<String>)>,
    /// What all rows share, below them; may be empty.
    pub foot: Vec<String>,
}

/// A table per panel, and where a tenth of the responses or more loop, one of the others.
pub(super) fn by_domain(groups: &[Group<'_>]) -> Vec<Grid> {
    let mut grids = Vec::new();
    for group in groups {
        grids.extend(grid(group, false));
        let shares = group.drafting().filter_map(|(_, e)| finite(e.cell.loop_share));
        if shares.fold(0.0, f64::max) >= LOOPS {
            grids.extend(grid(group, true));
        }
    }
    grids
}

/// The responses of a domain that a table counts.
fn rows_of<'a>(detail: &'a CellDetail, domain: Option<&str>, no_loops: bool) -> Vec<&'a RequestRow> {
    let here = |r: &&RequestRow| domain.is_none_or(|d| r.domain == d) && !(no_loops && r.looped == Some(true));
    detail.per_request.iter().filter(here).collect()
}

fn grid(group: &Group<'_>, no_loops: bool) -> Option<Grid> {
    let entries: Vec<(&Line<'_>, Entry<'_>, &CellDetail)> =
        group.drafting().filter_map(|(l, e)| e.detail.map(|d| (l, e, d))).collect();
    let mut domains: Vec<&str> = Vec::new();
    for row in entries.iter().flat_map(|(_, _, d)| &d.per_request) {
        if !domains.contains(&row.domain.as_str()) {
            domains.push(&row.domain);
        }
    }
    if domains.is_empty() {
        return None;
    }
    let tau = |d: &CellDetail, domain| stats::tau(&rows_of(d, domain, no_loops));
    let mean = |d: &CellDetail| -> Option<f64> {
        let taus: Option<Vec<f64>> = domains.iter().map(|n| tau(d, Some(n)).map(|t| t.mid)).collect();
        taus.map(|t| t.iter().sum::<f64>() / t.len() as f64)
    };
    let chain = group.chain().and_then(|(_, e)| mean(e.detail?));
    let two = |v: Option<f64>| v.map_or_else(|| MISSING.to_owned(), |v| fixed(v, 2));
    let rows: Vec<(usize, Vec<String>)> = entries
        .iter()
        .map(|(line, e, d)| {
            let mut cells = vec![name(line, *e)];
            cells.extend(domains.iter().map(|n| two(tau(d, Some(n)).map(|t| t.mid))));
            if domains.len() > 1 {
                cells.push(two(mean(d)));
                cells.push(two(mean(d).zip(chain).map(|(m, c)| m / c)));
            }
            cells.push(match no_loops {
                true => tau(d, None).map_or_else(|| MISSING.to_owned(), |t| with_ends(t.mid, t.ends)),
                false => finite(e.cell.tau).map_or_else(
                    || MISSING.to_owned(),
                    |t| with_ends(t, finite(e.cell.tau_lo).zip(finite(e.cell.tau_hi))),
                ),
            });
            (line.slot, cells)
        })
        .collect();
    let mut heads = vec!["policy, nodes".to_owned()];
    heads.extend(domains.iter().map(|d| (*d).to_owned()));
    if domains.len() > 1 {
        heads.extend(["mean of domains", "÷ chain"].map(str::to_owned));
    }
    heads.push("all responses (95 %)".to_owned());
    let columns = domains.iter().map(|d| Some(*d)).chain([None]);
    let details: Vec<&CellDetail> = entries.iter().map(|(_, _, d)| *d).collect();
    let shown: Vec<String> = columns.map(|d| foot(&details, d, no_loops)).collect();
    let mut foot = vec![if no_loops { "responses left" } else { "responses that loop" }.to_owned()];
    foot.extend(shown[..domains.len()].iter().cloned());
    if domains.len() > 1 {
        foot.extend([String::new(), String::new()]);
    }
    foot.push(shown[domains.len()].clone());
    let title = if no_loops { format!("{}, responses that do not loop", group.label) } else { group.label.clone() };
    Some(Grid { title, heads, rows, foot })
}

fn with_ends(tau: f64, ends: Option<(f64, f64)>) -> String {
    let ends = ends.and_then(|(lo, hi)| interval(Some(lo), Some(hi), 2));
    fixed(tau, 2) + &ends.map_or_else(String::new, |e| format!(" ({e})"))
}

/// Loop share of a domain's responses, or how many are left without loops; a range where cells differ.
fn foot(details: &[&CellDetail], domain: Option<&str>, no_loops: bool) -> String {
    let of = |d: &&CellDetail| {
        let rows = rows_of(d, domain, no_loops);
        if no_loops {
            return Some(rows.iter().filter(|r| r.steps > 0).count() as f64);
        }
        let judged = rows.iter().filter(|r| r.looped.is_some()).count();
        let looped = rows.iter().filter(|r| r.looped == Some(true)).count();
        (judged > 0).then(|| looped as f64 / judged as f64)
    };
    let values: Vec<f64> = details.iter().filter_map(of).collect();
    let show = |v: f64| if no_loops { fixed(v, 0) } else { percent(v) };
    let ends = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
    match ends {
        _ if values.is_empty() => MISSING.to_owned(),
        (lo, hi) if show(lo) == show(hi) => show(lo),
        (lo, hi) => format!("{}–{}", show(lo).trim_end_matches(" %"), show(hi)),
    }
}

/// Distinct experts per MoE layer at the most frequent row count of every cell, a column per panel, beside what as many
/// independent rows would touch.
pub(super) fn experts(groups: &[Group<'_>], router: Option<RoutedExperts>) -> Option<Grid> {
    let router = router.filter(|r| r.total > 0 && r.per_token <= r.total);
    let mut found: Vec<(String, u32, usize, Vec<Option<f64>>)> = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        for (line, e) in group.all() {
            let points = e.detail.map_or(&[][..], |d| &d.experts_by_rows);
            let Some(p) = points.iter().filter(|p| p.mean.is_finite()).max_by_key(|p| (p.steps, p.rows)) else {
                continue;
            };
            let label = name(line, e);
            let at = found.iter().position(|(l, rows, _, _)| *l == label && *rows == p.rows).unwrap_or_else(|| {
                found.push((label, p.rows, line.slot, vec![None; groups.len()]));
                found.len() - 1
            });
            found[at].3[g] = Some(p.mean);
        }
    }
    if found.is_empty() {
        return None;
    }
    found.sort_by_key(|(_, rows, _, _)| *rows);
    let mut heads = ["policy, nodes", "rows of a step"].map(str::to_owned).to_vec();
    heads.extend(groups.iter().map(|g| g.label.clone()));
    heads.extend(router.map(|_| "independent rows (formula)".to_owned()));
    let rows = found.into_iter().map(|(label, rows, slot, means)| {
        let mut cells = vec![label, rows.to_string()];
        cells.extend(means.iter().map(|m| m.map_or_else(|| MISSING.to_owned(), |m| fixed(m, 1))));
        cells.extend(router.map(|r| fixed(stats::independent_experts(r.total, r.per_token, f64::from(rows)), 1)));
        (slot, cells)
    });
    let of = router.map_or_else(String::new, |r| format!(", {} of {} a token", r.per_token, r.total));
    Some(Grid { title: format!("Distinct experts per MoE layer{of}"), heads, rows: rows.collect(), foot: Vec::new() })
}

impl Grid {
    /// As a table of the page.
    pub fn html(&self) -> Markup {
        html! {
            div class="scroll wide" { table {
                thead { tr { @for (i, h) in self.heads.iter().enumerate() { th class=[(i == 0).then_some("text")] scope="col" { (h) } } } }
                tbody {
                    @for (slot, cells) in &self.rows {
                        tr { @for (i, c) in cells.iter().enumerate() {
                            td class=[(i == 0).then_some("text")] { @if i == 0 { (swatch(*slot, false)) } (c) }
                        } }
                    }
                    @if !self.foot.is_empty() {
                        tr class="foot" { @for (i, c) in self.foot.iter().enumerate() { td class=[(i == 0).then_some("text")] { (c) } } }
                    }
                }
            } }
        }
    }

    /// As a Markdown table under its title in bold.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|").replace('\n', " ")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut out = format!("**{}**\n\n{}", self.title.replace('\n', " "), line(&self.heads));
        out.push_str(&format!("| --- |{}\n", " ---: |".repeat(self.heads.len() - 1)));
        self.rows.iter().for_each(|(_, cells)| out.push_str(&line(cells)));
        if !self.foot.is_empty() {
            out.push_str(&line(&self.foot));
        }
        out
    }
}
