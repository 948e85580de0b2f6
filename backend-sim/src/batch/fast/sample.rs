//! Where the slots of a steady-state step stand: systematic samples of a tape.

use super::tape::Tape;
use treeline_core::stream::{philox4x32, unit};

/// A stream of numbers for one purpose of one replicate.
struct Draws {
    key: [u32; 2],
    replicate: u32,
    next: u32,
}

impl Draws {
    fn new(seed: u64, replicate: u32) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], replicate, next: 0 }
    }

    fn bits(&mut self) -> u32 {
        self.next += 1;
        philox4x32([self.next, self.replicate, 0x7461_7065, 0], self.key)[0]
    }
}

/// Steps of one replicate. The responses are laid end to end in random order. Slots stand evenly spaced on that line, a
/// random phase each of its response, and from step to step all of them move on: the steps of a replicate visit the whole
/// line at even distances, so that every round of every response is as likely as any other, which is what a closed loop
/// comes to after its ramp.
pub(super) struct Line {
    /// Rounds of the tape in order of the line.
    order: Vec<u32>,
    /// In [0, 1) of the distance between two visits.
    offset: f64,
    slots: u32,
    steps: u32,
}

impl Line {
    /// The line of replicate `replicate` for `steps` steps of `slots` slots over `requests`; the same for the same seed.
    pub fn new(tape: &Tape, requests: &[u32], seed: u64, replicate: u32, slots: u32, steps: u32) -> Self {
        let mut draws = Draws::new(seed, replicate);
        let mut shuffled = requests.to_vec();
        for i in (1..shuffled.len()).rev() {
            let j = (u64::from(draws.bits()) * (i as u64 + 1)) >> 32;
            shuffled.swap(i, j as usize);
        }
        let order = shuffled.iter().flat_map(|&r| tape.of(r as usize)).collect();
        Self { order, offset: unit(draws.bits()), slots, steps }
    }

    /// Whether there is no round at all.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Indices on the tape of the rounds that meet in step `step`.
    pub fn step(&self, step: u32) -> impl Iterator<Item = u32> + '_ {
        let rounds = self.order.len() as f64;
        let visits = f64::from(self.slots) * f64::from(self.steps);
        let distance = rounds / visits;
        let first = (f64::from(step) + self.offset) * distance;
        let spacing = rounds / f64::from(self.slots);
        (0..self.slots).map(move |slot| {
            let at = (first + f64::from(slot) * spacing) as usize;
            self.order[at.min(self.order.len() - 1)]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tape(lengths: &[u32]) -> Tape {
        let starts =
            std::iter::once(0).chain(lengths.iter().scan(0, |sum, l| Some(std::mem::replace(sum, *sum + l) + l)));
        Tape { rounds: Vec::new(), starts: starts.collect(), tokens: Vec::new() }
    }

    /// As many visits as rounds: each round once, whatever the order and the slots.
    #[test]
    fn a_whole_pass_visits_every_round_once() {
        let tape = tape(&[7, 1, 40, 12]);
        for slots in [1, 2, 5, 12, 60] {
            for replicate in 0..4 {
                let line = Line::new(&tape, &[0, 1, 2, 3], 11, replicate, slots, 60 / slots);
                let all: BTreeSet<u32> = (0..60 / slots).flat_map(|s| line.step(s)).collect();
                assert_eq!(all.len(), 60, "{slots} slots");
            }
        }
    }

    #[test]
    fn fewer_visits_are_spread_and_a_subset_stays_within() {
        let tape = tape(&[30, 30, 30, 30]);
        let line = Line::new(&tape, &[1, 3], 5, 0, 3, 5);
        let all: Vec<u32> = (0..5).flat_map(|s| line.step(s)).collect();
        assert_eq!(all.len(), 15);
        assert!(all.iter().all(|r| (30..60).contains(r) || (90..120).contains(r)));
        let first = all.iter().filter(|r| **r < 60).count();
        assert!((7..=8).contains(&first), "half of the visits on half of the line");
        assert_ne!(
            all,
            (0..5).flat_map(|s| Line::new(&tape, &[1, 3], 6, 0, 3, 5).step(s).collect::<Vec<_>>()).collect::<Vec<_>>()
        );
    }
}
