//! The cells of a run in the order in which a report reads them: panels, lines, points.

use super::fmt;
use crate::results::{Cell, CellDetail, Summary};

/// Policies with a colour of their own; index = palette slot. Others take the slots behind.
const KINDS: [&str; 9] =
    ["chain", "best-first", "spine-first", "top-k", "adaptive", "sequoia", "opt-tree", "spec-exec", "talon"];

/// Palette slots of the style sheet.
const SLOTS: usize = 12;

/// The slot of plain decoding: a grey of its own.
const PLAIN: usize = 15;

/// Share of drafted steps below which their figures do not stand for all.
const MOSTLY: f64 = 0.9;

/// Everything that shares a temperature, a concurrency and a machine: one panel of a figure.
pub(super) struct Group<'a> {
    /// "T = 0.7", with whatever else differs between the groups of this run.
    pub label: String,
    /// Temperature of all its cells.
    pub temperature: f64,
    /// Concurrency of all its cells.
    pub concurrency: u32,
    /// One per policy and parameters, in the order of the experiment.
    pub lines: Vec<Line<'a>>,
}

/// One policy with fixed parameters, by budget.
pub(super) struct Line<'a> {
    /// The policy's name, with the parameters that tell it from its namesakes.
    pub label: String,
    /// Its colour and mark.
    pub slot: usize,
    /// Sorted by budget.
    pub entries: Vec<Entry<'a>>,
}

/// A cell with its detail, where there is one.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The figures.
    pub cell: &'a Cell,
    /// What the plots need beyond them.
    pub detail: Option<&'a CellDetail>,
}

impl Entry<'_> {
    /// Whether this is the baseline without drafts.
    pub fn is_plain(&self) -> bool {
        self.cell.budget == 0
    }

    /// "plain", "7 nodes", "≤ 64 nodes" where the policy uses clearly fewer than its cap.
    pub fn size(&self) -> String {
        match self.cell.budget {
            0 => "plain".to_owned(),
            n if self.below_cap() => format!("≤ {n} nodes"),
            n => fmt::plural(u64::from(n), "node"),
        }
    }

    /// Share of its steps that drafted something; `None` when unknown.
    pub fn drafted(&self) -> Option<f64> {
        let first = self.detail?.by_depth.first().map_or(0, |d| d.reached);
        (self.cell.rounds > 0).then(|| first as f64 / self.cell.rounds as f64)
    }

    /// Whether it left so many steps without a draft that figures of drafted steps alone are not the cell's.
    pub fn seldom_drafts(&self) -> bool {
        self.drafted().is_some_and(|share| share < MOSTLY)
    }

    /// Whether the mean tree is clearly smaller than the cap; steps at a response's end make every mean a little smaller.
    pub fn below_cap(&self) -> bool {
        fmt::finite(self.cell.rows_mean).is_some_and(|rows| rows - 1.0 < 0.85 * f64::from(self.cell.budget))
    }
}

impl<'a> Group<'a> {
    /// Every entry with drafts, line by line.
    pub fn drafting(&self) -> impl Iterator<Item = (&Line<'a>, Entry<'a>)> {
        self.all().filter(|(_, e)| !e.is_plain())
    }

    /// Every entry, line by line.
    pub fn all(&self) -> impl Iterator<Item = (&Line<'a>, Entry<'a>)> {
        self.lines.iter().flat_map(|line| line.entries.iter().map(move |e| (line, *e)))
    }

    /// The line that a report is about: the one with the most budgets, of equals the one with the highest τ. A chain only
    /// where there is nothing else: it is what trees are compared with.
    pub fn main(&self) -> Option<&Line<'a>> {
        let rank = |line: &Line<'_>| {
            let taus: Vec<f64> = line.entries.iter().filter_map(|e| fmt::finite(e.cell.tau)).collect();
            let tree = line.entries.iter().any(|e| e.cell.policy != "chain");
            (tree && !taus.is_empty(), taus.len(), taus.iter().copied().fold(0.0, f64::max))
        };
        let mut best: Option<(&Line<'a>, (bool, usize, f64))> = None;
        for line in self.lines.iter().filter(|l| l.entries.iter().any(|e| !e.is_plain())) {
            let r = rank(line);
            if r.1 > 0 && best.as_ref().is_none_or(|(_, b)| r > *b) {
                best = Some((line, r));
            }
        }
        best.map(|(line, _)| line)
    }

    /// The chain with the largest budget.
    pub fn chain(&self) -> Option<(&Line<'a>, Entry<'a>)> {
        self.drafting().filter(|(_, e)| e.cell.policy == "chain").last()
    }

    /// The budget that most lines share (the smaller of equals), for comparisons at one size.
    pub fn common_budget(&self) -> Option<u32> {
        let mut counts = std::collections::BTreeMap::<u32, usize>::new();
        for (_, e) in self.drafting() {
            *counts.entry(e.cell.budget).or_default() += 1;
        }
        counts.into_iter().rev().max_by_key(|(_, n)| *n).map(|(b, _)| b)
    }

    /// One entry per line: the one whose budget is nearest to [`Group::common_budget`].
    pub fn comparable(&self) -> Vec<(&Line<'a>, Entry<'a>)> {
        let Some(budget) = self.common_budget() else { return Vec::new() };
        let pick = |line: &Line<'a>| {
            line.entries.iter().filter(|e| !e.is_plain()).min_by_key(|e| e.cell.budget.abs_diff(budget)).copied()
        };
        self.lines.iter().filter_map(|line| pick(line).map(|e| (line, e))).collect()
    }
}

/// The detail that belongs to a cell: the one at the same place, else the first with equal figures.
fn detail_of<'a>(index: usize, cell: &Cell, details: &'a [CellDetail]) -> Option<&'a CellDetail> {
    details.get(index).filter(|d| d.cell == *cell).or_else(|| details.iter().find(|d| d.cell == *cell))
}

/// What separates panels, in words; equal words mean the same panel.
fn traits(cell: &Cell) -> [String; 7] {
    [
        format!("T = {}", fmt::temperature(cell.temperature)),
        format!("concurrency {}", cell.concurrency),
        cell.backend.clone(),
        cell.hardware.clone().unwrap_or_default(),
        cell.deployment.clone().unwrap_or_default(),
        cell.workload.clone(),
        format!("context {}", cell.context),
    ]
}

/// Names with values, in the order of the file.
type Parameters = Vec<(String, String)>;

/// Parameters that tell one line of a policy from another: all but its kind and its cap.
fn parameters(cell: &Cell) -> Parameters {
    let Some(map) = cell.policy_params.as_object() else { return Vec::new() };
    map.iter().filter(|(k, _)| *k != "kind" && *k != "budget").map(|(k, v)| (k.clone(), scalar(v))).collect()
}

/// What tells a policy's parameters from those of its namesakes among `keys`, in words; empty when nothing does.
fn telling(keys: &[(String, Parameters)], policy: &str, params: &Parameters) -> String {
    let namesakes: Vec<&Parameters> = keys.iter().filter(|(p, _)| p == policy).map(|(_, q)| q).collect();
    let telling: Vec<String> = params
        .iter()
        .filter(|pair| namesakes.iter().any(|q| !q.contains(pair)))
        .map(|(k, v)| format!("{k} {v}"))
        .collect();
    telling.join(", ")
}

/// Policies with their parameters in order of first mention, and for each cell which of them it is; plain decoding has none.
pub(super) fn lines(cells: &[Cell]) -> (Vec<String>, Vec<Option<usize>>) {
    let mut keys: Vec<(String, Parameters)> = Vec::new();
    let mut of = Vec::with_capacity(cells.len());
    for cell in cells {
        of.push((cell.budget > 0).then(|| {
            let key = (cell.policy.clone(), parameters(cell));
            keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                keys.len() - 1
            })
        }));
    }
    let label = |(policy, params): &(String, Parameters)| match telling(&keys, policy, params) {
        words if words.is_empty() => policy.clone(),
        words => format!("{policy} ({words})"),
    };
    (keys.iter().map(label).collect(), of)
}

/// A JSON value in one line, without quotes around text.
pub(super) fn scalar(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => fmt::MISSING.to_owned(),
        serde_json::Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

/// Sorts the cells into panels and lines. The order is the experiment's.
pub(super) fn groups<'a>(summary: &'a Summary, details: &'a [CellDetail]) -> Vec<Group<'a>> {
    let all: Vec<[String; 7]> = summary.cells.iter().map(traits).collect();
    let varies: Vec<bool> = (0..7).map(|i| i == 0 || all.iter().any(|t| t[i] != all[0][i])).collect();
    let mut keys: Vec<&[String; 7]> = Vec::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut line_keys: Vec<Vec<(String, Parameters)>> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    for (i, cell) in summary.cells.iter().enumerate() {
        let entry = Entry { cell, detail: detail_of(i, cell, details) };
        let g = keys.iter().position(|k| **k == all[i]).unwrap_or_else(|| {
            let shown: Vec<&str> = (0..7).filter(|&j| varies[j]).map(|j| all[i][j].as_str()).collect();
            keys.push(&all[i]);
            line_keys.push(Vec::new());
            groups.push(Group {
                label: shown.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", "),
                temperature: cell.temperature,
                concurrency: cell.concurrency,
                lines: Vec::new(),
            });
            groups.len() - 1
        });
        let known = if entry.is_plain() { Some(PLAIN) } else { KINDS.iter().position(|k| *k == cell.policy) };
        let slot = known.unwrap_or_else(|| {
            let at = others.iter().position(|o| *o == cell.policy).unwrap_or_else(|| {
                others.push(&cell.policy);
                others.len() - 1
            });
            KINDS.len() + at % (SLOTS - KINDS.len())
        });
        let key = (cell.policy.clone(), parameters(cell));
        match line_keys[g].iter().position(|k| *k == key) {
            Some(l) => groups[g].lines[l].entries.push(entry),
            None => {
                line_keys[g].push(key);
                groups[g].lines.push(Line { label: cell.policy.clone(), slot, entries: vec![entry] });
            }
        }
    }
    for (group, keys) in groups.iter_mut().zip(&line_keys) {
        for (line, (policy, params)) in group.lines.iter_mut().zip(keys) {
            line.entries.sort_by_key(|e| e.cell.budget);
            let telling = telling(keys, policy, params);
            if !telling.is_empty() {
                line.label = format!("{policy} ({telling})");
            }
        }
    }
    groups
}
