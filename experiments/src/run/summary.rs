//! `summary.json`: cells with their speed-ups, and the warnings.

use super::plan::PLAIN;
use super::warnings::{RunWarning, lines};
use crate::results::{Cell, CellDetail, Comparison, SCHEMA_VERSION, Summary};
use treeline_core::metrics::{Tpot, speedup};

/// Adds each cell's speed-up over plain decoding at the same acceptance, context, temperature and concurrency.
pub(super) fn add_speedups(details: &mut [CellDetail]) {
    let place = |c: &Cell| (c.temperature.to_bits(), c.concurrency, c.context, c.acceptance.clone());
    let plain = details.iter().filter(|d| d.cell.policy == PLAIN);
    let base: Vec<_> = plain.map(|d| (place(&d.cell), tpot(d))).collect();
    for detail in details.iter_mut() {
        let here = place(&detail.cell);
        let plain = base.iter().find(|b| b.0 == here);
        detail.cell.speedup = plain.and_then(|b| speedup(&b.1, &tpot(detail)).ok()).filter(|s| s.is_finite());
    }
}

/// Time per token of one user, from the cell's own rate. What a cost model prices is compared by the time in which engines
/// work, as answers are: the company of a user depends on the policy where loops are open, or run out.
fn tpot(detail: &CellDetail) -> Tpot {
    let (cell, tokens) = (&detail.cell, detail.per_request.iter().map(|r| r.tokens).sum::<u64>());
    let working = cell.tok_s.filter(|_| cell.backend == "sim").map(|rate| rate / cell.busy.unwrap_or(1.0));
    let user_ms = working.or(cell.tok_s_user).map_or(0.0, |rate| tokens as f64 / rate * 1e3);
    Tpot { user_ms, tokens, concurrency: cell.concurrency }
}

/// The summary of finished cells.
pub(super) fn summary(name: &str, details: &[CellDetail], warnings: &[RunWarning]) -> Summary {
    Summary {
        schema_version: SCHEMA_VERSION,
        experiment: name.to_owned(),
        cells: details.iter().map(|d| d.cell.clone()).collect(),
        comparison: Comparison::default(),
        warnings: lines(warnings, details),
    }
}
