//! How often the drafter's best candidate is right.

use treeline_core::trace::Trace;

/// Counts by depth, over any number of traces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Spine {
    reached: Vec<u64>,
    right: Vec<u64>,
}

impl Spine {
    /// Counts all positions of a trace.
    pub fn add(&mut self, trace: &Trace) {
        let depth = trace.meta.depth as usize;
        self.widen(depth);
        for position in trace.requests.iter().flat_map(|r| &r.positions) {
            for (d, truth) in position.truth.iter().enumerate().take(depth) {
                self.reached[d] += 1;
                if *truth != Some(0) {
                    break;
                }
                self.right[d] += 1;
            }
        }
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.widen(other.reached.len());
        for (sum, more) in [(&mut self.reached, &other.reached), (&mut self.right, &other.right)] {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    fn widen(&mut self, depth: usize) {
        let depth = depth.max(self.reached.len());
        self.reached.resize(depth, 0);
        self.right.resize(depth, 0);
    }

    /// How often the best candidate was right at each depth when those above it were.
    pub fn shares(&self) -> Vec<f64> {
        let both = self.right.iter().zip(&self.reached);
        both.take_while(|(_, n)| **n > 0).map(|(r, n)| *r as f64 / *n as f64).collect()
    }
}
