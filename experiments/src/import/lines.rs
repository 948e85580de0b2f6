//! Log lines: vLLM's `SpecDecoding metrics`, SGLang's `accept len`.

use super::prometheus::excerpt;
use super::{Counters, Wrong};

const VLLM: &str = "SpecDecoding metrics:";
const SGLANG: &str = "accept len:";

/// The text behind `key` in a line, up to where a number cannot go on.
fn number(line: &str, key: &str) -> Option<f64> {
    let rest = line.split_once(key)?.1.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)
}

/// Sums the intervals of vLLM's log. A line gives accepted and drafted tokens and rates by position over its interval; its
/// drafts are accepted / (mean length − 1), or drafted / positions where nothing was accepted.
pub(super) fn vllm(text: &str) -> Result<Counters, Wrong> {
    let mut out = Counters::default();
    let mut intervals = 0;
    for (i, line) in text.lines().enumerate() {
        let Some((_, rest)) = line.split_once(VLLM) else { continue };
        let wrong = |what: &str| Wrong::at(i + 1, format!("`{}`: no {what} behind `{VLLM}`", excerpt(rest.trim())));
        let accepted = number(rest, "Accepted:").ok_or_else(|| wrong("`Accepted: N tokens`"))?;
        let drafted = number(rest, "Drafted:").ok_or_else(|| wrong("`Drafted: N tokens`"))?;
        let list =
            rest.split_once("Per-position acceptance rate:").ok_or_else(|| wrong("`Per-position acceptance rate`"))?.1;
        let list = list.split_once(", Avg").map_or(list, |l| l.0);
        let rates: Option<Vec<f64>> = list
            .trim()
            .trim_matches(['[', ']'])
            .split(',')
            .map(|v| v.trim().parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r)))
            .collect();
        let rates = rates.ok_or_else(|| wrong("rates between 0 and 1"))?;
        if drafted == 0.0 {
            continue;
        }
        // Σ rates = accepted / drafts, to three decimals each.
        let sum: f64 = rates.iter().sum();
        let drafts = if sum > 0.0 { accepted / sum } else { drafted / rates.len() as f64 }.round();
        if out.accepted.len() < rates.len() {
            out.accepted.resize(rates.len(), 0);
        }
        let mut last = drafts as u64;
        out.drafts += last;
        for (total, rate) in out.accepted.iter_mut().zip(&rates) {
            // Rounded figures must not let a deeper position exceed the one before.
            last = last.min((rate * drafts).round() as u64);
            *total += last;
        }
        intervals += 1;
    }
    if intervals == 0 {
        return Err(Wrong::whole(format!("no `{VLLM}` line counted a draft")));
    }
    out.notes.push(format!("{intervals} log intervals, counts recovered from rounded rates"));
    Ok(out)
}

/// Averages the acceptance lengths of SGLang's `Decode batch` lines, each weighted by its running requests.
pub(super) fn sglang(text: &str) -> Result<Counters, Wrong> {
    let (mut sum, mut weight, mut lines) = (0.0, 0.0, 0);
    for (i, line) in text.lines().enumerate().filter(|(_, l)| l.contains(SGLANG)) {
        let length = number(line, SGLANG).filter(|l| *l >= 1.0);
        let length = length.ok_or_else(|| Wrong::at(i + 1, format!("no number of at least 1 behind `{SGLANG}`")))?;
        let running = number(line, "#running-req:").unwrap_or(1.0).max(1.0);
        sum += length * running;
        weight += running;
        lines += 1;
    }
    if lines == 0 {
        return Err(Wrong::whole(format!("no line says `{SGLANG}`")));
    }
    let notes = vec![format!("mean of {lines} log lines, weighted by running requests")];
    Ok(Counters { tau: Some(sum / weight), notes, ..Counters::default() })
}
