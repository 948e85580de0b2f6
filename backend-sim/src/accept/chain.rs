//! The Markov chain over ranks by depth: where the truth may be, and what a marginal makes of it.

use super::MAX_DEPTH;
use super::process::Process;
use super::shape::logistic;

/// What a wrong first choice changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Penalties {
    /// Logits behind a listed rank.
    pub sibling: f64,
    /// Logits behind an unlisted one.
    pub unlisted: f64,
    /// What is left of either after each right first choice.
    pub recovery: f64,
}

impl Penalties {
    pub fn of(process: &Process) -> Self {
        let (sibling, unlisted) = (process.after_sibling.value, process.after_unlisted.value);
        Self { sibling, unlisted, recovery: process.recovery.value }
    }

    /// Change of the logit in a state.
    pub fn of_state(&self, state: State) -> f64 {
        match state {
            State::Spine => 0.0,
            State::Off { listed, right } => {
                let all = if listed { self.sibling } else { self.unlisted };
                all * self.recovery.powi(right as i32)
            }
        }
    }
}

/// Where the truth is, relative to the drafter's first choices so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// All of them were right.
    Spine,
    /// The last wrong one had a listed rank right, or none; so many right ones followed.
    Off { listed: bool, right: usize },
}

impl State {
    /// The state behind a level whose true rank was `rank`.
    pub fn next(self, rank: Option<u32>) -> Self {
        match (rank, self) {
            (Some(0), Self::Spine) => Self::Spine,
            (Some(0), Self::Off { listed, right }) => Self::Off { listed, right: right + 1 },
            (rank, _) => Self::Off { listed: rank.is_some(), right: 0 },
        }
    }
}

/// The chance of each state at one position, as the drafter may know it: from its rows, not from the truth.
#[derive(Debug, Clone)]
pub(super) struct Belief {
    spine: f64,
    /// Right first choices since, by kind of the last wrong one: listed, unlisted.
    off: [[f64; MAX_DEPTH + 1]; 2],
    depth: usize,
}

impl Belief {
    pub fn new() -> Self {
        Self { spine: 1.0, off: [[0.0; MAX_DEPTH + 1]; 2], depth: 0 }
    }

    /// Chance that the first choice is right, whatever the state, when it is σ(`logit`) on the spine.
    pub fn marginal(&self, logit: f64, penalties: &Penalties) -> f64 {
        let mut sum = self.spine * logistic(logit);
        for (chances, all) in self.off.iter().zip([penalties.sibling, penalties.unlisted]) {
            let mut change = all;
            for chance in &chances[..self.depth] {
                sum += chance * logistic(logit + change);
                change *= penalties.recovery;
            }
        }
        sum
    }

    /// Moves on by a level; `listed` is the share of wrong first choices where a listed rank is right.
    pub fn step(&mut self, logit: f64, penalties: &Penalties, listed: f64) {
        let right = logistic(logit);
        let mut wrong = self.spine * (1.0 - right);
        self.spine *= right;
        for (chances, all) in self.off.iter_mut().zip([penalties.sibling, penalties.unlisted]) {
            let (mut change, mut carried) = (all, 0.0);
            for chance in &mut chances[..self.depth] {
                let right = logistic(logit + change);
                wrong += *chance * (1.0 - right);
                carried = std::mem::replace(chance, carried) * right;
                change *= penalties.recovery;
            }
            chances[self.depth] = carried;
        }
        self.depth += 1;
        self.off[0][0] = wrong * listed;
        self.off[1][0] = wrong * (1.0 - listed);
    }

    /// The logit on the spine that makes the marginal `first`: the marginal rises with it. Newton's steps within a shrinking
    /// bracket.
    pub fn invert(&self, first: f64, penalties: &Penalties) -> f64 {
        let (mut low, mut high) = (-60.0, 60.0);
        let mut at = (first / (1.0 - first)).ln().clamp(-50.0, 50.0);
        for _ in 0..60 {
            let miss = self.marginal(at, penalties) - first;
            if miss < 0.0 {
                low = at
            } else {
                high = at
            }
            let slope = (self.marginal(at + 1e-4, penalties) - first - miss) * 1e4;
            let next = at - miss / slope;
            let next = if next > low && next < high { next } else { 0.5 * (low + high) };
            if (next - at).abs() < 1e-9 {
                return next;
            }
            at = next;
        }
        at
    }
}
