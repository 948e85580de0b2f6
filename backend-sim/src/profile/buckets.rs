//! Sizes at which an engine captured CUDA graphs, and what a step is padded to.

use super::load::Fields;
use super::{ProfileError, Sources};

/// Captured sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    /// What a size counts.
    pub unit: Unit,
    /// Sizes, ascending.
    pub ends: Vec<u32>,
}

/// What the size of a captured graph counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Rows of the whole batch, however they are spread over requests.
    Rows,
    /// Requests, each with the same number of rows.
    Requests,
}

impl Buckets {
    pub(super) fn read(f: Fields<'_, '_>, s: &mut Sources) -> Result<Self, ProfileError> {
        let unit = match f.field::<String>("unit", s)?.as_str() {
            "rows" => Unit::Rows,
            "requests" => Unit::Requests,
            other => return Err(f.error("unit", format!("\"{other}\" is not known; \"rows\" and \"requests\" are"))),
        };
        let text: String = f.field("sizes", s)?;
        let wrong = "must ascend and look like \"1 2 4 8..256/8\" (from..to/step, both ends included)";
        let ends = parse(&text).ok_or_else(|| f.error("sizes", wrong))?;
        f.finish()?;
        Ok(Self { unit, ends })
    }

    /// Rows that a step of `rows` rows over `requests` requests is run with; None: larger than any graph, so it runs eager
    /// and unpadded.
    #[must_use]
    pub fn padded_rows(&self, requests: u32, rows: u32) -> Option<u32> {
        let up = |n: u32| self.ends.get(self.ends.partition_point(|e| *e < n)).copied();
        match self.unit {
            Unit::Rows => up(rows),
            Unit::Requests => {
                let requests = requests.max(1);
                up(requests)?.checked_mul(rows.div_ceil(requests))
            }
        }
    }

    /// The row counts at which `requests` requests fill a graph, from one row each up to `most` rows: the only ones worth
    /// asking for. Where a graph counts requests every row count costs its own padding, so all multiples are ends.
    #[must_use]
    pub fn row_ends(&self, requests: u32, most: u32) -> Vec<u32> {
        let requests = requests.max(1);
        match self.unit {
            Unit::Rows => self.ends.iter().copied().filter(|e| (requests..=most).contains(e)).collect(),
            Unit::Requests => (1..=most / requests).map(|n| n * requests).collect(),
        }
    }
}

/// `"1 2 4 8..256/8"`; at most 65,536 sizes.
fn parse(text: &str) -> Option<Vec<u32>> {
    let mut ends: Vec<u32> = Vec::new();
    for part in text.split_whitespace() {
        let (from, to, step) = match part.split_once("..") {
            None => (part.parse().ok()?, part.parse().ok()?, 1),
            Some((from, rest)) => {
                let (to, step) = rest.split_once('/')?;
                (from.parse().ok()?, to.parse().ok()?, step.parse::<u32>().ok()?)
            }
        };
        if step == 0 || from > to || from == 0 || ends.last().is_some_and(|l| *l >= from) {
            return None;
        }
        if (to - from) / step >= 65_536 - ends.len() as u32 {
            return None;
        }
        ends.extend((from..=to).step_by(step as usize));
    }
    (!ends.is_empty()).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_ranges() {
        assert_eq!(parse("1 2 4 8..24/8"), Some(vec![1, 2, 4, 8, 16, 24]));
        for wrong in ["", "0", "2 1", "4..1/1", "1..5", "1..5/0", "a", "1..4000000000/1", "8..16/8 16"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rows_are_padded_to_the_next_graph() {
        let rows = Buckets { unit: Unit::Rows, ends: vec![1, 2, 4, 8, 16] };
        assert_eq!(rows.padded_rows(1, 3), Some(4));
        assert_eq!(rows.padded_rows(2, 16), Some(16));
        assert_eq!(rows.padded_rows(1, 17), None);
        assert_eq!(rows.row_ends(3, 12), [4, 8]);
        let requests = Buckets { unit: Unit::Requests, ends: vec![1, 2, 4] };
        assert_eq!(requests.padded_rows(3, 27), Some(36));
        assert_eq!(requests.padded_rows(3, 25), Some(36), "ragged rows are padded to the largest share");
        assert_eq!(requests.padded_rows(5, 5), None);
        assert_eq!(requests.row_ends(3, 10), [3, 6, 9]);
    }
}
