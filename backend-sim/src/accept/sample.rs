//! Acceptance lengths of trees on a sample of a process.

use super::process::{Process, ProcessError};
use crate::nested::Nested;

/// How much to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Requests.
    pub requests: u32,
    /// Emitted tokens of each.
    pub tokens: u32,
    /// Seed.
    pub seed: u64,
}

impl Default for Sample {
    /// Enough for a per cent: 128 requests of 128 tokens.
    fn default() -> Self {
        Self { requests: 128, tokens: 128, seed: 1 }
    }
}

impl Process {
    /// Acceptance lengths of best-first trees of these budgets (behind `spine` rank-0 levels) and of the chain of the whole
    /// depth, tokens per round over a sample, its ends left out: (by budget, chain).
    ///
    /// # Errors
    /// As [`Process::generate`].
    pub fn tree_tau(&self, budgets: &[u32], spine: u32, sample: Sample) -> Result<(Vec<f64>, f64), ProcessError> {
        let trace = self.generate(sample.requests, sample.tokens, sample.seed)?;
        let most = budgets.iter().copied().max().unwrap_or(0);
        let nested = Nested::build(&trace, most, spine).map_err(|e| self.value("budget", &e.to_string()))?;
        let walk = |accepted: &dyn Fn(usize, u32) -> u32| {
            let (mut tokens, mut rounds) = (0u64, 0u64);
            for request in 0..nested.requests() {
                // Nearer to the end trees are cut short.
                let end = nested.positions(request).saturating_sub(self.depth() + 1);
                let mut index = 0;
                while index < end {
                    let step = accepted(request, index) + 1;
                    tokens += u64::from(step);
                    rounds += 1;
                    index += step;
                }
            }
            tokens as f64 / (rounds as f64).max(1.0)
        };
        let trees = budgets.iter().map(|&b| walk(&|r, i| nested.accepted(r, i, b))).collect();
        Ok((trees, walk(&|r, i| nested.chain(r, i))))
    }
}
