//! Padding to captured graphs, by look-up.

use crate::profile::{Deployment, Execution, Unit};

/// Graphs beyond so many rows or requests are not tabulated; a step that large runs as if eager.
const MOST: u32 = 1 << 20;

/// The graph of every size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pads {
    unit: Unit,
    /// Size of the graph by wanted size, up to the largest graph; empty without graphs.
    up: Vec<u32>,
}

impl Pads {
    pub(super) fn new(d: &Deployment) -> Self {
        let mut pads = Self { unit: Unit::Rows, up: Vec::new() };
        if let (Some(graphs), Execution::Graph) = (&d.graphs, d.execution) {
            pads.unit = graphs.unit;
            for &end in graphs.ends.iter().filter(|&&end| end <= MOST) {
                pads.up.resize(end as usize + 1, end);
            }
        }
        pads
    }

    /// Rows that a pass runs with, and whether no graph holds it.
    #[inline]
    pub(super) fn rows(&self, requests: u32, rows: u32) -> (u32, bool) {
        if rows == 0 {
            return (0, false);
        }
        let requests = requests.max(1);
        let padded = match self.unit {
            Unit::Rows => self.up.get(rows as usize).copied(),
            // Each request is padded to the most rows that an even split gives one.
            Unit::Requests => self.up.get(requests as usize).and_then(|up| up.checked_mul(rows.div_ceil(requests))),
        };
        padded.map_or((rows, true), |padded| (padded.max(rows), false))
    }
}
