//! Scaling a process to a published τ, of a chain or of a tree.

use crate::config::Anchor;
use anyhow::Context as _;
use treeline_sim::accept::{Process, Sample};

/// Requests and tokens of the walks that a tree's τ is found with.
const WALKS: (u32, u32) = (64, 192);
/// How near to the anchor is near enough.
const NEAR: f64 = 0.01;
/// Chords from a moved process back to its τ, at the most: two do.
const CHORDS: u32 = 4;
/// Trials at the most; each brings the error down by far more than half.
const TRIALS: u32 = 16;

/// The process with its shape moved so that `anchor` holds: exactly for a chain; for a best-first tree to within 0.01 on a
/// sample of walks, since a tree's τ has no formula.
///
/// # Errors
/// A τ out of reach.
pub fn anchored(process: &Process, anchor: &Anchor, seed: u64) -> anyhow::Result<Process> {
    let depth = process.depth();
    let (mut best, mut at_high) = reachable(process, anchor, seed)?;
    let Some(budget) = tree(process, anchor) else { return Ok(best) };
    // The chain of the same process accepts less: between 1 and the anchor.
    let (mut low, mut high, mut at_low) = (1.0, most(process, anchor), 1.0);
    for _ in 0..TRIALS {
        // Between chord and middle: the chord alone may creep.
        let chord = low + (high - low) * (anchor.tau - at_low) / (at_high - at_low);
        let next = 0.85 * chord + 0.15 * (low + high) / 2.0;
        best = process.to_tau(next, depth)?;
        let tau = walk(&best, budget, WALKS, seed)?;
        match tau {
            tau if (tau - anchor.tau).abs() < NEAR => return Ok(best),
            tau if tau < anchor.tau => (low, at_low) = (next, tau),
            tau => (high, at_high) = (next, tau),
        }
    }
    Ok(best)
}

/// Nodes of the tree that an anchor is of; `None` = it is a chain's.
fn tree(process: &Process, anchor: &Anchor) -> Option<u32> {
    (anchor.policy == "best-first").then(|| anchor.budget.unwrap_or(process.depth()))
}

/// τ of the chain above which no tree's process is looked for.
fn most(process: &Process, anchor: &Anchor) -> f64 {
    anchor.tau.min(ceiling(process))
}

/// The highest τ that is looked for: a block that is always accepted whole has no shape left.
fn ceiling(process: &Process) -> f64 {
    f64::from(process.depth()) + 1.0 - 1e-3
}

/// Whether `anchor` can be had, with one walk at the most: the process whose chain alone has its τ (or nearly all that the
/// depth gives), and the τ of that process in the anchor's steps.
///
/// # Errors
/// A τ out of reach.
pub fn reachable(process: &Process, anchor: &Anchor, seed: u64) -> anyhow::Result<(Process, f64)> {
    let depth = process.depth();
    let Some(budget) = tree(process, anchor) else {
        let scaled = process.to_tau(anchor.tau, anchor.budget.unwrap_or(depth))?;
        scaled.check()?;
        return Ok((scaled, anchor.tau));
    };
    let high = most(process, anchor);
    let scaled = process.to_tau(high, depth)?;
    scaled.check()?;
    let tau = walk(&scaled, budget, WALKS, seed)?;
    anyhow::ensure!(
        tau >= anchor.tau && anchor.tau <= ceiling(process),
        "no chain up to τ {high:.2} gives best-first trees of {budget} nodes a τ of {}",
        anchor.tau
    );
    Ok((scaled, tau))
}

/// What a moved process must keep where its anchor is a tree's: that τ, and not its chain's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    budget: u32,
    tau: f64,
    walks: (u32, u32),
    seed: u64,
}

impl Held {
    /// On `walks` (requests, tokens) of the unmoved process; `None` where no tree's τ is to be kept, or none can be had.
    pub fn of(process: &Process, anchor: Option<&Anchor>, walks: (u32, u32), seed: u64) -> Option<Self> {
        let budget = tree(process, anchor?)?;
        let tau = walk(process, budget, walks, seed).ok()?;
        Some(Self { budget, tau, walks, seed })
    }

    /// `moved` with its shape moved back to the τ, on the same random numbers: chord by chord, to within 0.01 where so few walks
    /// have such a τ. A process that cannot have it is returned as near as it came.
    pub fn again(&self, moved: &Process) -> Process {
        let depth = moved.depth();
        let most = ceiling(moved);
        let at = |process: &Process| walk(process, self.budget, self.walks, self.seed);
        let (mut best, mut chain) = (moved.clone(), moved.tau(depth));
        let Ok(mut tau) = at(&best) else { return best };
        let mut off = (tau - self.tau).abs();
        // What a tree accepts grows about as the chain's; shorter chords than 0.05 would show the noise of few walks.
        let mut slope = (tau - 1.0) / (chain - 1.0);
        for _ in 0..CHORDS {
            let next = (chain + (self.tau - tau) / slope).clamp(1.001, most);
            if off < NEAR || next == chain {
                break;
            }
            let Ok(scaled) = moved.to_tau(next, depth) else { break };
            let Ok(now) = at(&scaled) else { break };
            if (next - chain).abs() > 0.05 {
                slope = ((now - tau) / (next - chain)).max(0.3);
            }
            (chain, tau) = (next, now);
            if (tau - self.tau).abs() < off {
                (best, off) = (scaled, (tau - self.tau).abs());
            }
        }
        best
    }
}

/// τ of best-first trees on a sample of walks, whose ends are left out as in a steady state.
fn walk(process: &Process, budget: u32, walks: (u32, u32), seed: u64) -> anyhow::Result<f64> {
    let sample = Sample { requests: walks.0, tokens: walks.1, seed };
    let (taus, _) = process.tree_tau(&[budget], 0, sample)?;
    taus.first().copied().context("no budget, no tree")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A moved parameter keeps what the anchor says: the tree's τ; a chain's is kept by the process itself.
    #[test]
    fn moved_processes_keep_the_trees_tau() {
        let process = treeline_sim::accept::process("kimi-k2.6-dspark", Path::new("")).unwrap();
        let anchor = Anchor { tau: 5.0, policy: "best-first".to_owned(), budget: Some(16) };
        let (walks, seed) = ((32, 160), 5);
        let scaled = anchored(&process, &anchor, seed).unwrap();
        let held = Held::of(&scaled, Some(&anchor), walks, seed).unwrap();
        let (mut off, mut most): (f64, f64) = (0.0, 0.0);
        for variant in scaled.variants().iter().filter(|v| !v.parameter.starts_with("overlap")) {
            let tau = |p: &Process| walk(p, 16, walks, seed).unwrap();
            off = off.max((tau(&variant.process) - held.tau).abs());
            let again = held.again(&variant.process);
            most = most.max((tau(&again) - held.tau).abs());
            let (own, kept) = (&variant.process, |key: &str| again.clone().parameter_mut(key).cloned());
            assert_eq!(kept(&variant.parameter), own.clone().parameter_mut(&variant.parameter).cloned());
        }
        assert!(off > 0.1 && most < 0.04, "as they are {off}, held {most}");
        let chain = Anchor { policy: "chain".to_owned(), ..anchor };
        assert!(
            Held::of(&scaled, Some(&chain), walks, seed).is_none() && Held::of(&scaled, None, walks, seed).is_none()
        );
    }
}
