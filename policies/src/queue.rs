//! Queues of the fast form of best-first growth: the best candidate first.

use crate::lattice::Node;
use crate::order::{Place, cmp_paths, cmp_scored};
use std::cmp::Ordering;

/// Room of a queue (a power of two, so that an index can be masked); 256 nodes need about 45 places.
pub(crate) const ROOM: usize = 256;

/// A queue of at most [`ROOM`] candidates, of scores of at most 0.
pub(crate) trait Queue {
    /// Forgets all.
    fn clear(&mut self);

    /// Candidates in it.
    fn len(&self) -> usize;

    /// Takes in a candidate, where `wanted`.
    fn offer(&mut self, nodes: &[Node], wanted: bool, score: f64, place: Place);

    /// Takes out the best.
    fn pop(&mut self) -> Option<(f64, Place)>;

    /// Whether what was taken out last, `score` and `place`, certainly comes behind what was taken out before.
    fn in_order(&mut self, nodes: &[Node], score: f64, place: Place) -> bool;

    /// Whether what was taken out last certainly comes before all that is left.
    fn is_decided(&self) -> bool;
}

/// The bits of 0 − score order like the numbers for scores of at most 0. Not −score: the bits of −0 would not be in order.
#[inline(always)]
fn bits(score: f64) -> u64 {
    (0.0 - score).to_bits()
}

/// Low bits of a key that hold its slot.
const SLOT: u64 = ROOM as u64 - 1;

/// A heap of slots in no order. Keys are [`bits`] with the last eight replaced by the slot, so that one minimum over
/// all of them says what is best and where it is. Whether the lost bits or the tie rule would have mattered shows
/// in what is taken out: equal keys come out one behind the other.
#[derive(Debug)]
pub(crate) struct Scan {
    /// `u64::MAX` from `len` on.
    keys: Box<[u64; ROOM]>,
    entries: Box<[(f64, Place); ROOM]>,
    len: usize,
    /// What was taken out last.
    last: Option<(f64, Place)>,
}

impl Default for Scan {
    fn default() -> Self {
        let none = (0.0, Place { parent: 0, rank: 0 });
        Self { keys: Box::new([u64::MAX; ROOM]), entries: Box::new([none; ROOM]), len: 0, last: None }
    }
}

impl Scan {
    /// The least key.
    #[inline(always)]
    fn least(&self) -> u64 {
        // Four chains of comparisons side by side.
        let mut least = [u64::MAX; 4];
        for four in self.keys[..self.len.next_multiple_of(4).min(ROOM)].chunks_exact(4) {
            for (least, &key) in least.iter_mut().zip(four) {
                *least = key.min(*least);
            }
        }
        least[0].min(least[1]).min(least[2].min(least[3]))
    }
}

impl Queue for Scan {
    fn clear(&mut self) {
        self.keys[..self.len].fill(u64::MAX);
        self.len = 0;
        self.last = None;
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn offer(&mut self, _nodes: &[Node], wanted: bool, score: f64, place: Place) {
        // Written in any case, and kept where wanted.
        let at = self.len % ROOM;
        self.keys[at] = if wanted { bits(score) & !SLOT | at as u64 } else { u64::MAX };
        self.entries[at] = (score, place);
        self.len += usize::from(wanted);
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<(f64, Place)> {
        let last = self.len.checked_sub(1)?;
        let at = (self.least() & SLOT) as usize;
        let best = self.entries[at];
        // The last fills the gap; where it is the gap itself, the second line undoes the first.
        self.keys[at] = self.keys[last % ROOM] & !SLOT | at as u64;
        self.keys[last % ROOM] = u64::MAX;
        self.entries[at] = self.entries[last % ROOM];
        self.len = last;
        Some(best)
    }

    #[inline(always)]
    fn in_order(&mut self, nodes: &[Node], score: f64, place: Place) -> bool {
        let before = self.last.replace((score, place));
        let near = before.is_some_and(|b| bits(b.0) / ROOM as u64 == bits(score) / ROOM as u64);
        !near || before.is_some_and(|b| cmp_scored(nodes, b, (score, place)) == Ordering::Less)
    }

    fn is_decided(&self) -> bool {
        self.last.is_none_or(|l| bits(l.0) & !SLOT != self.least() & !SLOT)
    }
}

/// A list in the exact order, the best at its end.
#[derive(Debug)]
pub(crate) struct Sorted {
    entries: Box<[(u64, Place); ROOM]>,
    len: usize,
}

impl Default for Sorted {
    fn default() -> Self {
        Self { entries: Box::new([(0, Place { parent: 0, rank: 0 }); ROOM]), len: 0 }
    }
}

impl Queue for Sorted {
    fn clear(&mut self) {
        self.len = 0;
    }

    fn len(&self) -> usize {
        self.len
    }

    fn offer(&mut self, nodes: &[Node], wanted: bool, score: f64, place: Place) {
        if !wanted {
            return;
        }
        let key = bits(score);
        let mut at = self.len;
        self.len += 1;
        while at > 0 {
            let better = self.entries[(at - 1) % ROOM];
            if better.0 > key || better.0 == key && cmp_paths(nodes, better.1, place) == Ordering::Greater {
                break;
            }
            self.entries[at % ROOM] = better;
            at -= 1;
        }
        self.entries[at % ROOM] = (key, place);
    }

    fn pop(&mut self) -> Option<(f64, Place)> {
        self.len = self.len.checked_sub(1)?;
        let (key, place) = self.entries[self.len % ROOM];
        Some((0.0 - f64::from_bits(key), place))
    }

    fn in_order(&mut self, _nodes: &[Node], _score: f64, _place: Place) -> bool {
        true
    }

    fn is_decided(&self) -> bool {
        true
    }
}
