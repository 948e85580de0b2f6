//! Choices, gains and intervals as people say them.

use super::view::{Place, View, tokens};
use crate::report::fmt::{self, fixed, signed};
use crate::results::{Answer, Choice};

/// From this ratio on a gain is said as a multiple, below in per cent.
const MULTIPLE: f64 = 2.0;

/// "plain decoding", "a chain of 7", "best-first 24".
pub(super) fn choice(c: &Choice) -> String {
    match (c.policy.as_str(), c.budget) {
        (_, 0) => "plain decoding".to_owned(),
        ("chain", n) => format!("a chain of {n}"),
        (policy, n) => format!("{policy} {n}"),
    }
}

/// As [`choice`], for a table: "plain", "chain 7", "best-first 24".
pub(super) fn brief(c: &Choice) -> String {
    if c.budget == 0 { "plain".to_owned() } else { format!("{} {}", c.policy, c.budget) }
}

/// The choice of an answer as the object of "run": a fixed tree by its nodes, a policy that stays below its cap by the nodes
/// that it uses.
pub(super) fn run(a: &Answer) -> String {
    let c = &a.best;
    match (c.policy.as_str(), c.budget) {
        (_, 0) | ("chain", _) => choice(c),
        ("best-first", n) if !below_cap(a) => fmt::plural(u64::from(n), "node"),
        (policy, n) if !below_cap(a) => format!("{policy} with {}", count_nodes(n)),
        (policy, _) => format!("{policy} with {}", nodes(a)),
    }
}

/// "about 12 nodes": the mean of the best, per request.
pub(super) fn nodes(a: &Answer) -> String {
    let n = fixed((a.rows - 1.0).max(0.0), 0);
    format!("about {n} node{}", if n == "1" { "" } else { "s" })
}

/// Whether the best policy uses clearly fewer nodes than its cap.
pub(super) fn below_cap(a: &Answer) -> bool {
    a.rows.is_finite() && a.rows - 1.0 < 0.9 * f64::from(a.best.budget)
}

/// The best of an answer for a table: "best-first 24", "batch-wide ≈ 12 nodes" where it stays below its cap.
pub(super) fn best(a: &Answer) -> String {
    if a.best.budget > 0 && a.best.policy != "chain" && below_cap(a) {
        format!("{} ≈\u{a0}{}", a.best.policy, fixed((a.rows - 1.0).max(0.0), 0))
    } else {
        brief(&a.best)
    }
}

/// The best choice without a tree, which engines run whose kernels take none: "chain 7, 3.00×".
pub(super) fn today(a: &Answer) -> Option<String> {
    let runs = a.candidates.iter().filter(|c| c.choice.budget == 0 || c.choice.policy == "chain");
    let best = runs.max_by(|x, y| x.speedup.total_cmp(&y.speedup))?;
    Some(if best.choice.budget == 0 {
        brief(&best.choice)
    } else {
        format!("{}, {}", brief(&best.choice), gain(best.speedup))
    })
}

/// "+18 %", or "2.12×" from twice on.
pub(super) fn gain(speedup: f64) -> String {
    if speedup >= MULTIPLE { format!("{}×", fixed(speedup, 2)) } else { format!("{} %", signed(whole(speedup), 0)) }
}

/// Per cent over plain decoding; what rounds to zero has no sign of its own.
fn whole(speedup: f64) -> f64 {
    let value = (100.0 * (speedup - 1.0)).round();
    if value == 0.0 { 0.0 } else { value }
}

/// "+18 % ± 4 %" where the interval is even, else "+18 % (+12 to +21 %)"; multiples from twice on. "± at least 4 %" where
/// the interval leaves something out, and "no interval" where it leaves out everything.
pub(super) fn gain_with_interval(speedup: f64, lo: Option<f64>, hi: Option<f64>, at_least: bool) -> String {
    let alone = gain(speedup);
    let ends = fmt::finite(lo).zip(fmt::finite(hi)).filter(|(lo, hi)| lo <= hi);
    let Some((lo, hi)) = ends else { return format!("{alone} (no interval)") };
    let even = ((hi - speedup) - (speedup - lo)).abs() <= 0.25 * (hi - lo) || hi - lo < 0.02;
    let least = if at_least { "at least " } else { "" };
    match (speedup >= MULTIPLE, even) {
        (true, true) => format!("{alone} ± {least}{}", fixed((hi - lo) / 2.0, 2)),
        (true, false) => format!("{alone} ({least}{}–{})", fixed(lo, 2), fixed(hi, 2)),
        (false, true) => format!("{alone} ± {least}{} %", points((hi - lo) / 2.0)),
        (false, false) => format!("{alone} ({least}{} to {} %)", signed(whole(lo), 0), signed(whole(hi), 0)),
    }
}

/// A half-width in points of per cent; a decimal below one.
pub(super) fn points(half: f64) -> String {
    let value = 100.0 * half.abs();
    fixed(value, usize::from(value < 0.95))
}

/// "+18 % ± 4 %" of an answer; plain decoding has no gain.
pub(super) fn answer_gain(a: &Answer) -> String {
    if a.best.budget == 0 { String::new() } else { gain_with_interval(a.speedup, a.lo, a.hi, a.at_least()) }
}

/// What a part that nobody computed is called.
pub(super) const NOT_COMPUTED: &str = "not computed";

/// A part's half-width in points, or that it was not computed.
pub(super) fn part(half: Option<f64>) -> String {
    fmt::finite(half).map_or_else(|| NOT_COMPUTED.to_owned(), points)
}

/// "sampling ± 1 %, model not computed, transfer ± 2 %": what an interval is made of, half-widths in per cent of the speed-up.
pub(super) fn parts(a: &Answer) -> String {
    let p = &a.parts;
    let named = [("sampling", p.sampling), ("model", p.model), ("transfer", p.transfer)];
    let said = |(name, half): (&str, Option<f64>)| match fmt::finite(half) {
        Some(half) => format!("{name} ± {} %", points(half)),
        None => format!("{name} {NOT_COMPUTED}"),
    };
    named.map(said).join(", ")
}

/// Whether every input with a stated error was moved.
pub(super) fn all_moved(a: &Answer) -> bool {
    !a.left_out.iter().any(|line| ["model:", "transfer:"].iter().any(|part| line.starts_with(part)))
}

/// What is said where no input changes an answer.
pub(super) fn unflipped(a: &Answer) -> &'static str {
    if all_moved(a) { "no single input" } else { "none of the inputs that were moved" }
}

/// The text with numbers kept beside their signs on one line.
pub(super) fn glued(text: &str) -> String {
    fmt::unbroken(text).replace(" ± ", "\u{a0}±\u{a0}")
}

/// "4 users", "1 user".
pub(super) fn users(n: u32) -> String {
    fmt::plural(u64::from(n), "user")
}

/// What would change the answer, first the one that costs most: "with all-reduce time +30 % it would be best-first 16".
pub(super) fn flip(a: &Answer) -> Option<String> {
    let worst = a.flips.iter().max_by(|x, y| x.loss.total_cmp(&y.loss))?;
    Some(format!("{} {}: {}", worst.input, worst.change, brief(&worst.best_after)))
}

/// Where the figures behind an answer come from: "times: table+flops; τ: process".
pub(super) fn sources(view: &View<'_>, at: Place, c: &Choice) -> String {
    let Some(cell) = view.chosen(at, &c.policy, c.budget) else { return String::new() };
    let times = cell.source.step_ms.as_ref().unwrap_or(&cell.tier);
    format!("times: {times}; τ: {}", cell.source.tau)
}

/// Whether some step behind an answer lay outside the domain of its tables.
pub(super) fn outside(view: &View<'_>, at: Place, c: &Choice) -> bool {
    view.chosen(at, &c.policy, c.budget).is_some_and(|cell| cell.in_domain == Some(false))
}

/// "8k context", "500 tokens of context".
pub(super) fn at_context(context: u32) -> String {
    match tokens(context) {
        round if round.ends_with('k') => format!("{round} context"),
        _ => format!("{} of context", fmt::plural(u64::from(context), "token")),
    }
}

/// "16 nodes", "1 node".
pub(super) fn count_nodes(n: u32) -> String {
    fmt::plural(u64::from(n), "node")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_per_cent_below_twice_and_multiples_above() {
        assert_eq!([1.18, 0.874, 1.001, 0.999, 2.123].map(gain), ["+18 %", "−13 %", "+0 %", "+0 %", "2.12×"]);
        let shown = |speedup, lo, hi| gain_with_interval(speedup, Some(lo), Some(hi), false);
        assert_eq!(shown(1.18, 1.14, 1.22), "+18 % ± 4 %");
        assert_eq!(shown(1.18, 1.12, 1.20), "+18 % (+12 to +20 %)");
        assert_eq!(shown(3.0, 2.8, 3.2), "3.00× ± 0.20");
        assert_eq!(shown(1.18, f64::NAN, 1.2), "+18 % (no interval)");
        assert_eq!(shown(1.0, 0.997, 1.003), "+0 % ± 0.3 %");
        let least = |speedup, lo, hi| gain_with_interval(speedup, Some(lo), Some(hi), true);
        assert_eq!(least(1.18, 1.14, 1.22), "+18 % ± at least 4 %");
        assert_eq!(least(1.18, 1.12, 1.20), "+18 % (at least +12 to +20 %)");
        assert_eq!(least(3.0, 2.8, 3.2), "3.00× ± at least 0.20");
        assert_eq!(gain_with_interval(1.18, None, None, true), "+18 % (no interval)");
    }

    #[test]
    fn choices_have_names() {
        let c = |policy: &str, budget| Choice { policy: policy.to_owned(), budget };
        assert_eq!(
            [c("plain", 0), c("chain", 7), c("best-first", 24)].map(|c| choice(&c)),
            ["plain decoding", "a chain of 7", "best-first 24"]
        );
        assert_eq!(brief(&c("batch-wide", 64)), "batch-wide 64");
        assert_eq!(
            [1, 500, 1024, 1000].map(at_context),
            ["1 token of context", "500 tokens of context", "1k context", "1k context"]
        );
        assert_eq!([1, 2].map(count_nodes), ["1 node", "2 nodes"]);
    }
}
