//! Scaling a process to a published τ, of a chain or of a tree.

use crate::config::Anchor;
use anyhow::Context as _;
use treeline_sim::accept::Process;
use treeline_sim::nested::Nested;

/// Requests and tokens of the walks that a tree's τ is found with.
const WALKS: (u32, u32) = (64, 192);
/// How near to the anchor is near enough.
const NEAR: f64 = 0.01;
/// Trials at the most; each brings the error down by far more than half.
const TRIALS: u32 = 16;

/// The process with its shape moved so that `anchor` holds: exactly for a chain; for a best-first tree to within 0.01 on a
/// sample of walks, since a tree's τ has no formula.
///
/// # Errors
/// A τ out of reach.
pub fn anchored(process: &Process, anchor: &Anchor, seed: u64) -> anyhow::Result<Process> {
    let depth = process.depth();
    if anchor.policy != "best-first" {
        return Ok(process.to_tau(anchor.tau, anchor.budget.unwrap_or(depth))?);
    }
    let budget = anchor.budget.unwrap_or(depth);
    // The chain of the same process accepts less: between 1 and the anchor.
    let (mut low, mut high) = (1.0, anchor.tau.min(f64::from(depth) + 1.0 - 1e-3));
    let (mut at_low, mut at_high) = (1.0, walk(&process.to_tau(high, depth)?, budget, seed)?);
    anyhow::ensure!(
        at_high >= anchor.tau,
        "no chain up to τ {high:.2} gives best-first trees of {budget} nodes a τ of {}",
        anchor.tau
    );
    let mut best = process.to_tau(high, depth)?;
    for _ in 0..TRIALS {
        // Between chord and middle: the chord alone may creep.
        let chord = low + (high - low) * (anchor.tau - at_low) / (at_high - at_low);
        let next = 0.85 * chord + 0.15 * (low + high) / 2.0;
        best = process.to_tau(next, depth)?;
        let tau = walk(&best, budget, seed)?;
        match tau {
            tau if (tau - anchor.tau).abs() < NEAR => return Ok(best),
            tau if tau < anchor.tau => (low, at_low) = (next, tau),
            tau => (high, at_high) = (next, tau),
        }
    }
    Ok(best)
}

/// τ of best-first trees on a sample of walks.
fn walk(process: &Process, budget: u32, seed: u64) -> anyhow::Result<f64> {
    let trace = process.generate(WALKS.0, WALKS.1, seed)?;
    let nested = Nested::build(&trace, budget, 0)?;
    let (mut tokens, mut rounds) = (0u64, 0u64);
    for request in 0..nested.requests() {
        let mut index = 0;
        while index + 1 < nested.emitted(request) {
            let committed = nested.committed(request, index, budget).max(1);
            tokens += u64::from(committed);
            rounds += 1;
            index += committed;
        }
    }
    (rounds > 0).then(|| tokens as f64 / rounds as f64).context("the process generates nothing")
}
