//! CSV: step times as a cost curve, chain curves as points.

use super::{ImportError, Wrong, text};
use std::collections::BTreeMap;
use std::path::Path;
use treeline_core::CostCurve;

/// Columns that say how large a step was: name, and rows of it that the number leaves out (the root).
const SIZES: [(&str, u32); 4] = [("rows", 0), ("num_draft_tokens", 0), ("budget", 1), ("num_speculative_tokens", 1)];

/// A table of step times as a curve. A header names the columns: `ms`, and one of `rows` (verify rows, the root counted),
/// `num_draft_tokens` (SGLang's, the root counted), `budget` or `num_speculative_tokens` (vLLM's; the root not counted). With a
/// column `requests` the rows are of each. Repeats of a size give their median.
///
/// # Errors
/// A header without these columns, a line that does not fit it, fewer than two sizes.
pub fn step_curve(path: &Path) -> Result<CostCurve, ImportError> {
    let points = step_points(&text(path)?).map_err(|w| w.of(path))?;
    let (rows, ms): (Vec<u32>, Vec<f64>) = points.into_iter().unzip();
    CostCurve::new(rows, ms).map_err(|e| Wrong::whole(e.to_string()).of(path))
}

fn step_points(text: &str) -> Result<Vec<(u32, f64)>, Wrong> {
    let mut lines = data_lines(text);
    let (number, header) = lines.next().ok_or_else(|| Wrong::whole("is empty"))?;
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let place = |name: &str| names.iter().position(|n| *n == name);
    let known = |n: &&str| SIZES.iter().any(|s| s.0 == *n) || *n == "ms" || *n == "requests";
    if let Some(odd) = names.iter().find(|n| !known(n)) {
        let why =
            format!("column `{odd}` is unknown: ms, requests, rows, num_draft_tokens, budget, num_speculative_tokens");
        return Err(Wrong::at(number, why));
    }
    let ms = place("ms").ok_or_else(|| Wrong::at(number, "has no column `ms`"))?;
    let sizes: Vec<(usize, u32)> = SIZES.iter().filter_map(|(n, root)| place(n).map(|at| (at, *root))).collect();
    let &[(size, root)] = sizes.as_slice() else {
        return Err(Wrong::at(number, "needs exactly one of rows, num_draft_tokens, budget, num_speculative_tokens"));
    };
    let requests = place("requests");
    let mut all: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != names.len() {
            return Err(Wrong::at(number, format!("has {} fields, the header {}", fields.len(), names.len())));
        }
        let whole = |at: usize| {
            fields[at].parse::<u32>().map_err(|_| Wrong::at(number, format!("`{}` is no whole number", fields[at])))
        };
        let each = whole(size)?.saturating_add(root);
        let rows = each.saturating_mul(requests.map_or(Ok(1), whole)?);
        let time: f64 = fields[ms]
            .parse()
            .ok()
            .filter(|t: &f64| t.is_finite() && *t > 0.0)
            .ok_or_else(|| Wrong::at(number, format!("`{}` is no time in milliseconds", fields[ms])))?;
        if rows == 0 {
            return Err(Wrong::at(number, "a step has at least the root's row"));
        }
        all.entry(rows).or_default().push(time);
    }
    Ok(all.into_iter().map(|(rows, times)| (rows, median(times))).collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    let half = times.len() / 2;
    if times.len() % 2 == 1 { times[half] } else { (times[half - 1] + times[half]) / 2.0 }
}

/// Points (k, τ) and the step of their last decimal.
pub(super) fn curve_points(text: &str) -> Result<(Vec<(u32, f64)>, f64), Wrong> {
    let mut lines = data_lines(text);
    let header = lines.next();
    if header.map(|(_, h)| h.replace(' ', "").to_ascii_lowercase()) != Some("k,tau".into()) {
        return Err(Wrong::at(header.map_or(1, |h| h.0), "the first line of a curve is `k,tau`"));
    }
    let mut points = Vec::new();
    let mut decimals = 0;
    for (number, line) in lines {
        let wrong = || Wrong::at(number, format!("`{line}` is no pair of a whole number and an acceptance length"));
        let (k, tau) = line.split_once(',').ok_or_else(wrong)?;
        let (k, tau) = (k.trim(), tau.trim());
        points.push((
            k.parse().map_err(|_| wrong())?,
            tau.parse().ok().filter(|t: &f64| t.is_finite()).ok_or_else(wrong)?,
        ));
        decimals = decimals.max(tau.split_once('.').map_or(0, |d| d.1.len()));
    }
    Ok((points, 10f64.powi(-(decimals.min(15) as i32))))
}

/// Lines with content, numbered from 1; `#` begins a comment.
fn data_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(i, l)| (i + 1, l.trim()));
    lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
}
