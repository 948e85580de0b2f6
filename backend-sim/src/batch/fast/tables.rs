//! Nested tables with the tapes that were made of them.

use super::tape::{Shape, Tape};
use crate::nested::Nested;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Tapes by tree and cut of the response.
type Tapes = BTreeMap<(Shape, Option<u32>), Arc<Tape>>;

/// What every cell over one trace shares: the nested tables, and each fixed policy's rounds, made when first asked for. Any
/// number of threads may use one; what they get does not depend on who came first.
#[derive(Debug)]
pub struct Tables<'n> {
    nested: &'n Nested,
    factors: Vec<f32>,
    tapes: Mutex<Tapes>,
}

impl<'n> Tables<'n> {
    /// Over `nested`; the rows of all requests overlap alike in the experts that they touch.
    #[must_use]
    pub fn new(nested: &'n Nested) -> Self {
        Self { nested, factors: Vec::new(), tapes: Mutex::default() }
    }

    /// Scales, by index of the request, the effective rows that a tree adds to its root: easy text is predictable for the
    /// router too. A request without an entry has factor 1.
    #[must_use]
    pub fn with_overlap(mut self, factors: Vec<f32>) -> Self {
        self.factors = factors;
        self
    }

    /// The nested tables.
    #[must_use]
    pub fn nested(&self) -> &'n Nested {
        self.nested
    }

    #[inline]
    pub(super) fn factor(&self, request: u32) -> f64 {
        self.factors.get(request as usize).map_or(1.0, |&f| f64::from(f))
    }

    /// The rounds of a fixed policy.
    pub(super) fn tape(&self, shape: Shape, response: Option<u32>) -> Arc<Tape> {
        let key = (shape, response);
        let known = |tapes: &Tapes| tapes.get(&key).cloned();
        // A poisoned lock holds whole tapes all the same.
        let lock = || self.tapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tape) = known(&lock()) {
            return tape;
        }
        // Outside of the lock: whoever else wants one meanwhile makes its own, and they are equal.
        let tape = Arc::new(Tape::new(self, response, true, |_| shape));
        lock().entry(key).or_insert(tape).clone()
    }
}
