//! The scores as a Markdown table, and what they come to.

use crate::results::{Choice, Quotient, SplitScore};
use std::fmt::Write as _;

/// Throughput that a policy may fall short of the best fixed budget by, at the lower end of its interval.
pub const BOUND: f64 = 0.01;

/// What the cells of one policy come to.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitTotal {
    /// The policy.
    pub choice: Choice,
    /// Cells.
    pub cells: usize,
    /// Cells in which it is faster than the fixed budget by more than its interval.
    pub wins: usize,
    /// Cells whose lower end falls below −[`BOUND`].
    pub short: usize,
    /// The least lower end against the fixed budget of half A, minus 1.
    pub worst_lo: f64,
    /// The same against the best of half B.
    pub worst_hindsight_lo: f64,
    /// Geometric mean of the gains, minus 1.
    pub mean: f64,
    /// The greatest gain, minus 1.
    pub most: f64,
    /// The greatest standard error of a gain.
    pub se: f64,
}

/// One total for each policy that chooses, in file order.
#[must_use]
pub fn totals(scores: &[SplitScore]) -> Vec<SplitTotal> {
    let mut out: Vec<(SplitTotal, f64)> = Vec::new();
    for p in scores.iter().flat_map(|s| &s.policies) {
        let at = out.iter().position(|t| t.0.choice == p.choice).unwrap_or_else(|| {
            let total = SplitTotal {
                choice: p.choice.clone(),
                cells: 0,
                wins: 0,
                short: 0,
                worst_lo: f64::INFINITY,
                worst_hindsight_lo: f64::INFINITY,
                mean: 0.0,
                most: f64::NEG_INFINITY,
                se: 0.0,
            };
            out.push((total, 0.0));
            out.len() - 1
        });
        let (total, logs) = &mut out[at];
        total.cells += 1;
        total.wins += usize::from(p.gain.lo > 1.0);
        total.short += usize::from(p.gain.lo < 1.0 - BOUND);
        total.worst_lo = total.worst_lo.min(p.gain.lo - 1.0);
        total.worst_hindsight_lo = total.worst_hindsight_lo.min(p.over_hindsight.lo - 1.0);
        total.most = total.most.max(p.gain.mid - 1.0);
        total.se = total.se.max(p.gain.se);
        *logs += p.gain.mid.ln();
    }
    let finish = |(mut total, logs): (SplitTotal, f64)| {
        total.mean = (logs / total.cells as f64).exp() - 1.0;
        total
    };
    out.into_iter().map(finish).collect()
}

/// A sentence for each policy, then a row for each cell.
#[must_use]
pub fn markdown(scores: &[SplitScore]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for t in totals(scores) {
        let _ = writeln!(
            out,
            "{} against the best fixed budget of half A, on half B: {:+.2} % on average over {}, at the most {:+.1} %; \
             faster beyond its interval in {}; lowest lower end {:+.2} % ({:+.2} % against the best fixed budget of half B); \
             standard error at the most {:.2} %.\n",
            name(&t.choice),
            t.mean * 100.0,
            if t.cells == 1 { "1 cell".to_owned() } else { format!("{} cells", t.cells) },
            t.most * 100.0,
            t.wins,
            t.worst_lo * 100.0,
            t.worst_hindsight_lo * 100.0,
            t.se * 100.0,
        );
    }
    let Some(first) = scores.first() else { return out };
    let _ = write!(out, "| acceptance | context | at once | best on A | over plain | best on B |");
    for p in &first.policies {
        let _ = write!(out, " {} | nodes | over A's, 95 % | over B's, 95 % | P(best) |", name(&p.choice));
    }
    let _ = write!(out, "\n| --- | ---: | ---: | --- | ---: | --- |");
    first.policies.iter().for_each(|_| out.push_str(" --- | ---: | --- | --- | ---: |"));
    out.push('\n');
    for s in scores {
        let speedup = s.fixed_speedup.map_or("–".to_owned(), |x| format!("{x:.2}"));
        let _ = write!(
            out,
            "| {} | {} | {} | {} | {speedup} | {} |",
            s.acceptance,
            s.context,
            s.concurrency,
            name(&s.fixed),
            name(&s.hindsight)
        );
        for p in &s.policies {
            let what = if p.off { "plain" } else { "trees" };
            let _ = write!(
                out,
                " {what} | {:.1} | {} | {} | {:.2} |",
                p.nodes,
                percent(&p.gain),
                percent(&p.over_hindsight),
                p.p_best
            );
        }
        out.push('\n');
    }
    out
}

fn name(choice: &Choice) -> String {
    if choice.budget == 0 { choice.policy.clone() } else { format!("{} {}", choice.policy, choice.budget) }
}

fn percent(q: &Quotient) -> String {
    let of = |x: f64| (x - 1.0) * 100.0;
    format!("{:+.2} % ({:+.2} … {:+.2})", of(q.mid), of(q.lo), of(q.hi))
}
