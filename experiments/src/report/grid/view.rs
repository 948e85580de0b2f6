//! The cells of a priced run by acceptance, context, concurrency and budget.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::fmt::{finite, fixed};
use crate::report::model;
use crate::results::{Answer, Cell, FailedCell, Priced, RefusedCell, Summary};

/// The context that a report speaks of, where the run has several: the one nearest to it.
const CONTEXT: u32 = 8192;

/// The concurrency that a report speaks of first.
const USERS: u32 = 32;

/// A concurrency between one and that, for figures.
const FEW: u32 = 8;

/// Where a cell lies: acceptance (index), context, concurrency.
pub(in crate::report) type Place = (usize, u32, u32);

/// A policy at all its budgets in one column.
#[derive(Debug, Clone)]
pub(in crate::report) struct Line {
    /// Its name.
    pub label: String,
    /// The policy's kind.
    policy: String,
    /// Whether it has one fixed shape, a chain.
    pub chain: bool,
    /// Budgets that some cell has, ascending.
    pub budgets: Vec<u32>,
}

/// A priced run, sorted.
pub(in crate::report) struct View<'a> {
    /// Cells and warnings.
    pub summary: &'a Summary,
    /// Curves, answers and what was refused.
    pub priced: &'a Priced,
    /// Names of the acceptance sources, in the order of the file.
    pub anchors: Vec<&'a str>,
    /// Ascending.
    pub contexts: Vec<u32>,
    /// Concurrencies, ascending.
    pub users: Vec<u32>,
    /// Policies with drafts, in the order of the file.
    pub lines: Vec<Line>,
    /// The line whose budgets are the rows of the map.
    pub ladder: Option<usize>,
    cells: BTreeMap<Place, Vec<(Option<usize>, &'a Cell)>>,
    refused: BTreeMap<Place, Vec<&'a RefusedCell>>,
    answers: BTreeMap<Place, &'a Answer>,
}

impl<'a> View<'a> {
    /// Sorts the run.
    pub fn new(summary: &'a Summary, priced: &'a Priced) -> Self {
        let mut anchors: Vec<&str> = priced.acceptances.iter().map(|a| a.name.as_str()).collect();
        let named = summary.cells.iter().filter_map(|c| c.acceptance.as_deref());
        let also = priced.refused.iter().map(|r| r.acceptance.as_str());
        let lost = priced.failed.iter().map(|f| f.acceptance.as_str());
        for name in named.chain(also).chain(lost).chain(priced.answers.iter().map(|a| a.acceptance.as_str())) {
            if !anchors.contains(&name) {
                anchors.push(name);
            }
        }
        let index: BTreeMap<&str, usize> = anchors.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let (labels, line_of) = model::lines(&summary.cells);
        let line = |label: String| Line { label, policy: String::new(), chain: false, budgets: Vec::new() };
        let mut lines: Vec<Line> = labels.into_iter().map(line).collect();
        let mut cells: BTreeMap<Place, Vec<_>> = BTreeMap::new();
        let mut budgets: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); lines.len()];
        for (cell, line) in summary.cells.iter().zip(line_of) {
            if let Some(l) = line {
                budgets[l].insert(cell.budget);
                lines[l].chain |= cell.policy == "chain";
                lines[l].policy.clone_from(&cell.policy);
            }
            let anchor = cell.acceptance.as_deref().and_then(|n| index.get(n)).copied();
            if let Some(a) = anchor {
                cells.entry((a, cell.context, cell.concurrency)).or_default().push((line, cell));
            }
        }
        // A budget that was refused everywhere has its row too.
        for choice in priced.refused.iter().map(|r| &r.choice).filter(|c| c.budget > 0) {
            let known = lines.iter().position(|l| l.policy == choice.policy);
            let at = known.unwrap_or_else(|| {
                lines.push(Line {
                    policy: choice.policy.clone(),
                    chain: choice.policy == "chain",
                    ..line(choice.policy.clone())
                });
                budgets.push(BTreeSet::new());
                lines.len() - 1
            });
            budgets[at].insert(choice.budget);
        }
        for (line, set) in lines.iter_mut().zip(budgets) {
            line.budgets = set.into_iter().collect();
        }
        let place = |name: &str, context, users| index.get(name).map(|&a| (a, context, users));
        let mut refused: BTreeMap<Place, Vec<&RefusedCell>> = BTreeMap::new();
        for r in &priced.refused {
            if let Some(at) = place(&r.acceptance, r.context, r.concurrency) {
                refused.entry(at).or_default().push(r);
            }
        }
        let found = priced.answers.iter().filter_map(|a| Some((place(&a.acceptance, a.context, a.concurrency)?, a)));
        let answers: BTreeMap<Place, &Answer> = found.collect();
        let failed: Vec<Place> =
            priced.failed.iter().filter_map(|f| place(&f.acceptance, f.context, f.concurrency)).collect();
        let places = || cells.keys().chain(refused.keys()).chain(answers.keys()).chain(&failed);
        let contexts: BTreeSet<u32> = places().map(|p| p.1).collect();
        let users: BTreeSet<u32> = places().map(|p| p.2).collect();
        let mut ladder: Option<usize> = None;
        for (i, line) in lines.iter().enumerate() {
            let rank = |l: &Line| (!l.chain, l.budgets.len());
            if ladder.is_none_or(|best| rank(line) > rank(&lines[best])) {
                ladder = Some(i);
            }
        }
        Self {
            summary,
            priced,
            anchors,
            contexts: contexts.into_iter().collect(),
            users: users.into_iter().collect(),
            lines,
            ladder,
            cells,
            refused,
            answers,
        }
    }

    /// The context that the report speaks of: one whose steps were taken apart, where there is one.
    pub fn context(&self) -> Option<u32> {
        let apart = |c: &&u32| self.priced.breakdowns.iter().any(|b| b.context == **c);
        let explained: Vec<u32> = self.contexts.iter().filter(apart).copied().collect();
        nearest(&explained, CONTEXT).or_else(|| nearest(&self.contexts, CONTEXT))
    }

    /// The concurrency that the report speaks of first.
    pub fn headline_users(&self) -> Option<u32> {
        nearest(&self.users, USERS)
    }

    /// Up to three concurrencies that stand for all: few, some, many; those that ran at `anchor` and `context`.
    pub fn few_some_many(&self, anchor: usize, context: u32) -> Vec<u32> {
        let ran: Vec<u32> =
            self.users.iter().copied().filter(|&u| self.plain((anchor, context, u)).is_some()).collect();
        let mut picked: Vec<u32> =
            [ran.first().copied(), nearest(&ran, USERS), ran.last().copied()].into_iter().flatten().collect();
        picked.dedup();
        picked
    }

    /// Up to four concurrencies for figures side by side.
    pub fn spread(&self, anchor: usize, context: u32) -> Vec<u32> {
        let mut picked = self.few_some_many(anchor, context);
        let also =
            self.users.iter().copied().filter(|&u| self.plain((anchor, context, u)).is_some() && !picked.contains(&u));
        picked.extend(nearest(&also.collect::<Vec<_>>(), FEW));
        picked.sort_unstable();
        picked
    }

    /// Four concurrencies of the whole run, as text.
    pub fn few_users(&self) -> Vec<String> {
        let ends = [self.users.first().copied(), self.users.last().copied()];
        let picked: BTreeSet<u32> =
            [nearest(&self.users, FEW), nearest(&self.users, USERS)].into_iter().chain(ends).flatten().collect();
        picked.iter().map(u32::to_string).collect()
    }

    /// Plain decoding at a place.
    pub fn plain(&self, at: Place) -> Option<&'a Cell> {
        self.cells.get(&at)?.iter().find(|(line, _)| line.is_none()).map(|(_, c)| *c)
    }

    /// A line at a budget.
    pub fn cell(&self, at: Place, line: usize, budget: u32) -> Option<&'a Cell> {
        let found = self.cells.get(&at)?.iter().find(|(l, c)| *l == Some(line) && c.budget == budget);
        found.map(|(_, c)| *c)
    }

    /// The budget of a line with the highest speed-up at a place; of equals the smaller.
    pub fn best_of(&self, at: Place, line: usize) -> Option<&'a Cell> {
        let mut best: Option<(&Cell, f64)> = None;
        for cell in self.cells.get(&at)?.iter().filter(|(l, _)| *l == Some(line)).map(|(_, c)| *c) {
            if let Some(v) = finite(cell.speedup)
                && best.is_none_or(|b| v > b.1 || (v == b.1 && cell.budget < b.0.budget))
            {
                best = Some((cell, v));
            }
        }
        best.map(|b| b.0)
    }

    /// The cell of an answer's choice.
    pub fn chosen(&self, at: Place, policy: &str, budget: u32) -> Option<&'a Cell> {
        let found = self.cells.get(&at)?.iter().find(|(_, c)| c.policy == policy && c.budget == budget);
        found.map(|(_, c)| *c)
    }

    /// What was refused at a place.
    pub fn refused(&self, at: Place) -> &[&'a RefusedCell] {
        self.refused.get(&at).map_or(&[], Vec::as_slice)
    }

    /// What failed at a place.
    pub fn failed(&self, at: Place) -> Vec<&'a FailedCell> {
        let here = |f: &&FailedCell| {
            Some(&f.acceptance.as_str()) == self.anchors.get(at.0) && (f.context, f.concurrency) == (at.1, at.2)
        };
        self.priced.failed.iter().filter(here).collect()
    }

    /// Whether requests arrive by a clock, so that engines idle.
    pub fn open_loop(&self) -> bool {
        self.summary.cells.iter().any(|c| c.busy.is_some())
    }

    /// What intervals leave out, each once, in the order of the answers.
    pub fn left_out(&self) -> Vec<&'a str> {
        let mut out: Vec<&str> = Vec::new();
        for line in self.priced.answers.iter().flat_map(|a| &a.left_out) {
            if !out.contains(&line.as_str()) {
                out.push(line);
            }
        }
        out
    }

    /// The answer at a place.
    pub fn answer(&self, at: Place) -> Option<&'a Answer> {
        self.answers.get(&at).copied()
    }

    /// Whether anything ran at an anchor and context.
    pub fn ran(&self, anchor: usize, context: u32) -> bool {
        self.users.iter().any(|&u| self.cells.contains_key(&(anchor, context, u)))
    }

    /// The τ that an anchor was scaled to.
    pub fn anchor_tau(&self, anchor: usize) -> Option<f64> {
        let name = self.anchors.get(anchor)?;
        let found = self.priced.acceptances.iter().find(|a| a.name == *name)?;
        finite(found.anchor_tau)
    }

    /// The τ of an anchor whose name does not say it.
    pub fn unnamed_tau(&self, anchor: usize) -> Option<String> {
        let name = self.anchors.get(anchor)?;
        let silent = !name.contains('τ') && !name.to_lowercase().contains("tau");
        self.anchor_tau(anchor).filter(|_| silent).map(|tau| format!("τ {}", fixed(tau, 1)))
    }

    /// The anchor as the report names it: with its τ, unless its name says it already.
    pub fn anchor(&self, anchor: usize) -> String {
        let name = self.anchors.get(anchor).copied().unwrap_or_default();
        self.unnamed_tau(anchor).map_or_else(|| name.to_owned(), |tau| format!("{name} ({tau})"))
    }

    /// Anchors that stand for all: the first and the one with the lowest τ.
    pub fn leading(&self) -> Vec<usize> {
        let ran = |a: &usize| self.contexts.iter().any(|&c| self.ran(*a, c));
        let all: Vec<usize> = (0..self.anchors.len()).filter(ran).collect();
        let low = all.iter().copied().min_by(|a, b| {
            let tau = |i: &usize| self.anchor_tau(*i).unwrap_or(f64::INFINITY);
            tau(a).total_cmp(&tau(b))
        });
        let mut picked: Vec<usize> = all.first().copied().into_iter().chain(low).collect();
        picked.dedup();
        picked
    }
}

/// The value nearest to `wanted` by factor; of equals the smaller.
pub(super) fn nearest(values: &[u32], wanted: u32) -> Option<u32> {
    let away = |v: u32| (f64::from(v.max(1)) / f64::from(wanted.max(1))).ln().abs();
    values.iter().copied().min_by(|a, b| away(*a).total_cmp(&away(*b)))
}

/// A context in thousands, as engineers say it: 8k, 1.5k, 500.
pub(super) fn tokens(context: u32) -> String {
    match context {
        n if n >= 1024 && n.is_multiple_of(1024) => format!("{}k", n / 1024),
        n if n >= 1000 && n.is_multiple_of(1000) => format!("{}k", n / 1000),
        n if n >= 10_000 => format!("{:.1}k", f64::from(n) / 1024.0),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_read_as_people_say_them() {
        assert_eq!([1024, 8192, 1000, 500, 16_385].map(tokens), ["1k", "8k", "1k", "500", "16.0k"]);
        assert_eq!(nearest(&[1, 8, 64], 32), Some(64));
        assert_eq!(nearest(&[], 32), None);
    }
}
