//! From a source to its nested tables.

use super::acceptance::{Acceptance, Generated};
use super::spine::Spine;
use crate::config::{AcceptanceKind, AcceptanceSpec, PricedRun};
use rayon::prelude::*;
use std::path::Path;
use treeline_core::trace::Trace;
use treeline_sim::nested::{Nested, NestedError};
use treeline_sim::profile::Drafter;

/// Requests that are generated at once. Their rows are many times the tables (every rank of every level), so they are
/// dropped as soon as the tables are built.
const PART: u32 = 16;

/// Parts whose tables wait to be put together.
const WAVE: usize = 16;

/// Loads or generates a source, and its tables for each (nodes, spine) of `spines`. A process is never in memory as a whole.
///
/// # Errors
/// A source that cannot be had, or that has no nested tables.
pub(super) fn tables(
    spec: &AcceptanceSpec,
    run: &PricedRun,
    drafter: &Drafter,
    folder: &Path,
    seed: u64,
    at: &str,
    spines: &[(u32, u32)],
) -> anyhow::Result<(Acceptance, Vec<Nested>)> {
    let build = |trace: &Trace| -> Result<Vec<Nested>, NestedError> {
        spines.iter().map(|&(nodes, spine)| Nested::build(trace, nodes, spine)).collect()
    };
    if let AcceptanceKind::Trace { .. } = &spec.source {
        let (acceptance, trace) = Acceptance::load(spec, run, drafter, folder, seed, at)?;
        return Ok((acceptance, build(&trace)?));
    }
    let source = Generated::of(spec, run, drafter, folder, seed, at)?;
    let part = |&first: &u32| -> anyhow::Result<(Vec<Nested>, Spine)> {
        let trace = source.part(first..run.requests.min(first.saturating_add(PART)))?;
        let mut spine = Spine::default();
        spine.add(&trace);
        Ok((build(&trace)?, spine))
    };
    let firsts: Vec<u32> = (0..run.requests.max(1)).step_by(PART as usize).collect();
    let (mut whole, mut spine) = (Vec::<Nested>::new(), Spine::default());
    for wave in firsts.chunks(WAVE) {
        for (nested, counted) in wave.par_iter().map(part).collect::<anyhow::Result<Vec<_>>>()? {
            spine.merge(&counted);
            if whole.is_empty() {
                whole = nested;
                continue;
            }
            for (whole, part) in whole.iter_mut().zip(&nested) {
                whole.append(part)?;
            }
        }
    }
    Ok((source.acceptance(spec, &spine), whole))
}
