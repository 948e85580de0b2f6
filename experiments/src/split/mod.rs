//! Calibrated on one half of the requests, scored on the other: whether a policy that chooses its size is worth having.
//!
//! A policy that was tuned on the requests that it is scored on looks better than it is, and the best of many budgets of
//! one sample looks better than it will be. So both are chosen on half A: the policy's calibration, and the fixed budget
//! that it has to beat. Half B then serves the same requests with both. The best fixed budget of half B, which nobody could
//! have known, is reported beside it.

mod halves;
mod score;
mod table;

pub use halves::halves;
pub use score::Cell;
pub use table::{BOUND, SplitTotal, markdown, totals};

use crate::priced::{Candidate, Prepared};
use crate::results::SplitScore;
use anyhow::Context as _;
use rayon::prelude::*;

/// Scores every acceptance, context and concurrency of a priced experiment, in file order. Candidates whose cache does not
/// fit are left out of a cell; a cell that nothing fits is left out of the list. `progress` hears of every acceptance.
///
/// # Errors
/// Fewer than four requests of a source; what the simulation refuses.
pub fn score(prepared: &Prepared<'_>, progress: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Vec<SplitScore>> {
    let room = prepared.profiles.room()?;
    let (run, e) = (prepared.run, prepared.experiment);
    let contexts: Vec<Option<u32>> =
        if run.context.is_empty() { vec![None] } else { run.context.iter().copied().map(Some).collect() };
    let mut out = Vec::new();
    for (i, source) in prepared.sources.iter().enumerate() {
        progress(&format!("{}: calibrating on half of the requests, scoring on the other", source.name));
        let scores = prepared.with_source(i, |ready| {
            let halves = halves(ready.acceptance.requests);
            if halves[1].len() < 2 {
                anyhow::bail!(
                    "`split` needs at least 4 requests, acceptance `{}` has {}",
                    source.name,
                    halves[0].len() + halves[1].len()
                );
            }
            let cells: Vec<(Option<u32>, u32)> =
                contexts.iter().flat_map(|&c| e.concurrency.iter().map(move |&n| (c, n))).collect();
            let score = |&(context, concurrency): &(Option<u32>, u32)| {
                let longest = context.unwrap_or(source.prompt).saturating_add(source.response);
                let fits = |c: &&Candidate| room.fit(concurrency, longest, c.budget + 1).is_ok();
                let candidates: Vec<Candidate> = prepared.candidates.iter().filter(fits).cloned().collect();
                if candidates.is_empty() {
                    return Ok(None);
                }
                let cell = Cell {
                    acceptance: &source.name,
                    tables: &ready.tables,
                    cost: &prepared.cost,
                    candidates: &candidates,
                    halves: &halves,
                    load: prepared.load(context, concurrency),
                    resamples: e.bootstrap,
                    seed: e.seed,
                };
                let at = || format!("acceptance `{}`, context {context:?}, concurrency {concurrency}", source.name);
                cell.score().with_context(at).map(Some)
            };
            cells.par_iter().map(score).collect::<anyhow::Result<Vec<Option<SplitScore>>>>()
        })??;
        out.extend(scores.into_iter().flatten());
    }
    Ok(out)
}
