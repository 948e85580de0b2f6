//! Remarks on cells, one line for all cells that share one: equal but for its numbers, a remark is said once, with ranges.
//!
//! `summary.json` and the page use the same wording.

use super::fmt::{listed, temperature};
use crate::results::Cell;

/// Cells named one by one before a line only counts them.
const NAMED: usize = 4;

/// A remark and the cells that it holds for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remark {
    /// What it says, with ranges where the cells differ.
    pub text: String,
    /// For which cells, in words.
    pub scope: String,
}

/// The remarks of all cells in order of first mention; `remarks[i]` belongs to `cells[i]`.
pub(crate) fn merged<S: AsRef<str>>(cells: &[&Cell], remarks: &[impl AsRef<[S]>]) -> Vec<Remark> {
    let mut found: Vec<(Pattern, Vec<usize>)> = Vec::new();
    for (i, list) in remarks.iter().enumerate() {
        for text in list.as_ref() {
            let pattern = Pattern::of(text.as_ref());
            match found.iter_mut().find(|(p, _)| p.words == pattern.words) {
                Some((p, at)) => {
                    p.widen(&pattern);
                    at.push(i);
                }
                None => found.push((pattern, vec![i])),
            }
        }
    }
    found.into_iter().map(|(p, at)| Remark { text: p.text(), scope: scope(cells, &at) }).collect()
}

/// A text taken apart at its numbers: one more word than numbers.
struct Pattern {
    words: Vec<String>,
    /// Smallest and largest, as they were written.
    ends: Vec<[String; 2]>,
}

impl Pattern {
    fn of(text: &str) -> Self {
        let mut words = vec![String::new()];
        let mut ends: Vec<[String; 2]> = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        let digit = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
        let mut i = 0;
        while i < chars.len() {
            let from = i;
            while digit(i) || (i > from && chars.get(i) == Some(&'.') && digit(i + 1)) {
                i += 1;
            }
            if i > from {
                let number: String = chars[from..i].iter().collect();
                ends.push([number.clone(), number]);
                words.push(String::new());
            } else {
                words.last_mut().into_iter().for_each(|w| w.push(chars[i]));
                i += 1;
            }
        }
        Self { words, ends }
    }

    fn widen(&mut self, other: &Self) {
        let value = |s: &str| s.parse::<f64>().unwrap_or(f64::INFINITY);
        for (own, new) in self.ends.iter_mut().zip(&other.ends) {
            if value(&new[0]) < value(&own[0]) {
                own[0].clone_from(&new[0]);
            }
            if value(&new[1]) > value(&own[1]) {
                own[1].clone_from(&new[1]);
            }
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (i, word) in self.words.iter().enumerate() {
            out.push_str(word);
            match self.ends.get(i) {
                Some([lo, hi]) if lo == hi => out.push_str(lo),
                Some([lo, hi]) => out.push_str(&format!("{lo}–{hi}")),
                None => {}
            }
        }
        out
    }
}

/// The cells `at` in words.
pub(super) fn scope(cells: &[&Cell], at: &[usize]) -> String {
    let mut marked = vec![false; cells.len()];
    at.iter().for_each(|&i| marked[i] = true);
    let is = |i: usize| marked[i];
    if cells.len() > 1 && (0..cells.len()).all(is) {
        return "all cells".to_owned();
    }
    if (0..cells.len()).all(|i| is(i) == (cells[i].budget > 0)) && at.len() > 1 {
        return "all cells with drafts".to_owned();
    }
    let mut temperatures: Vec<f64> = Vec::new();
    for &i in at {
        if !temperatures.contains(&cells[i].temperature) {
            temperatures.push(cells[i].temperature);
        }
    }
    let whole = cells.iter().filter(|c| temperatures.contains(&c.temperature)).count();
    let at_most = cells.iter().filter(|c| temperatures.contains(&c.temperature) && c.budget > 0).count();
    let drafting = at.iter().all(|&i| cells[i].budget > 0);
    let levels: Vec<String> = temperatures.iter().map(|t| temperature(*t)).collect();
    if at.len() > 1 && at.len() == whole {
        return format!("all cells at T = {}", listed(&levels));
    }
    if at.len() > 1 && drafting && at.len() == at_most {
        return format!("all cells with drafts at T = {}", listed(&levels));
    }
    if at.len() > NAMED {
        return format!("{} of {} cells", at.len(), cells.len());
    }
    let several = cells.iter().any(|c| c.concurrency != cells[0].concurrency);
    let name = |c: &Cell| {
        let policy = if c.budget == 0 { c.policy.clone() } else { format!("{} {}", c.policy, c.budget) };
        let users = if several { format!(", concurrency {}", c.concurrency) } else { String::new() };
        format!("{policy} at T = {}{users}", temperature(c.temperature))
    };
    at.iter().map(|&i| name(cells[i])).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges_and_words_stay() {
        let mut p = Pattern::of("5 of 687 steps at 0.7. Then 3.");
        p.widen(&Pattern::of("12 of 581 steps at 0.7. Then 3."));
        assert_eq!(p.text(), "5–12 of 581–687 steps at 0.7. Then 3.");
        for same in ["", "no number", "1", "v1.2.3 ends.", "µ 4.5.", "99999999999999999999"] {
            let mut p = Pattern::of(same);
            p.widen(&Pattern::of(same));
            assert_eq!(p.text(), same);
        }
    }
}
