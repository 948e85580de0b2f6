//! Every way that a random process can go, one after the other.

use crate::law::chance::{Chance, Site};

/// Answers decisions along one branch and knows its probability; [`Branches::advance`] moves to the next branch.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// Which option was taken at each decision, and how many there were.
    script: Vec<(usize, usize)>,
    at: usize,
    /// Probability of the branch so far.
    pub(super) weight: f64,
    /// A decision came out with other options than on the branch before: something beside the decisions is random.
    pub(super) strayed: bool,
}

impl Branches {
    /// Back to the start of a branch.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        self.weight = 1.0;
    }

    /// Moves to the next branch; false when all have been seen.
    pub(super) fn advance(&mut self) -> bool {
        self.script.truncate(self.at);
        while let Some((taken, of)) = self.script.pop() {
            if taken + 1 < of {
                self.script.push((taken + 1, of));
                return true;
            }
        }
        false
    }

    /// One of the options with probability > 0; `None` if there is none.
    fn choose<T: Copy>(&mut self, options: &[(T, f64)]) -> Option<T> {
        let possible: Vec<(T, f64)> = options.iter().copied().filter(|o| o.1 > 0.0).collect();
        if possible.is_empty() {
            return None;
        }
        if self.at == self.script.len() {
            self.script.push((0, possible.len()));
        }
        let (taken, of) = self.script[self.at];
        self.strayed |= of != possible.len();
        let (option, p) = *possible.get(taken)?;
        self.at += 1;
        self.weight *= p;
        Some(option)
    }
}

impl Chance for Branches {
    fn coin(&mut self, _site: Site, _token: u32, p: f64) -> bool {
        let p = p.clamp(0.0, 1.0);
        self.choose(&[(true, p), (false, 1.0 - p)]).unwrap_or(false)
    }

    fn pick(&mut self, _site: Site, scores: &[f64]) -> Option<u32> {
        let weights: Vec<f64> = scores.iter().map(|s| s.exp()).collect();
        let sum: f64 = weights.iter().sum();
        let options: Vec<(u32, f64)> = (0..).zip(weights).map(|(token, w)| (token, w / sum)).collect();
        self.choose(&options)
    }
}
