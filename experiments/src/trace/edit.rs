//! Traces made smaller: fewer ranks, or no token ids.

use treeline_core::trace::{Position, Trace};

/// The trace without a token id in it: it may be shared where text may not.
#[must_use]
pub fn ranks_only(mut trace: Trace) -> Trace {
    trace.meta.ids = false;
    for request in &mut trace.requests {
        request.tokens.clear();
        for position in &mut request.positions {
            position.ids.clear();
            for expansion in &mut position.expansions {
                expansion.ids.clear();
            }
        }
    }
    trace
}

/// The trace with at most `width` ranks a row. Replays equal a live run whose drafter keeps `width` ranks.
#[must_use]
pub fn narrow(mut trace: Trace, width: u32) -> Trace {
    let keep = width as usize;
    trace.meta.width = trace.meta.width.min(width);
    for position in trace.requests.iter_mut().flat_map(|r| &mut r.positions) {
        narrow_rows(position, keep);
        let listed = |rank: &Option<u32>| rank.filter(|&r| r < width);
        position.truth = position.truth.iter().map(listed).collect();
        narrow_expansions(position, width);
    }
    trace
}

fn narrow_rows(position: &mut Position, keep: usize) {
    let mut out = Position::default();
    for depth in 1..=position.ends.len() as u32 {
        let (row, ids) = (position.row(depth), position.row_ids(depth));
        out.logp.extend(row.iter().take(keep));
        out.ids.extend(ids.iter().take(keep));
        out.ends.push(out.logp.len() as u32);
    }
    (position.ends, position.logp, position.ids) = (out.ends, out.logp, out.ids);
}

/// Drops expansions under ranks that are gone, and what hangs below them; the true path ends where its node is gone.
fn narrow_expansions(position: &mut Position, width: u32) {
    if position.expansions.is_empty() {
        return;
    }
    let mut places: Vec<Option<u32>> = Vec::with_capacity(position.expansions.len());
    let mut kept = Vec::new();
    for (i, mut e) in std::mem::take(&mut position.expansions).into_iter().enumerate() {
        let parent = if i == 0 { Some(0) } else { places.get(e.parent as usize).copied().flatten() };
        let stays = parent.filter(|_| i == 0 || e.rank < width);
        places.push(stays.map(|_| kept.len() as u32));
        if let Some(parent) = stays {
            e.parent = parent;
            e.logp.truncate(width as usize);
            e.ids.truncate(width as usize);
            kept.push(e);
        }
    }
    position.expansions = kept;
    if let Some(lost) = position.truth.iter().position(Option::is_none) {
        position.truth.truncate(lost + 1);
    }
}
