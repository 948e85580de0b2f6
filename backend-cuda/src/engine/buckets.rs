//! The padded sizes that passes run in: few enough to be captured once each, close enough that padding costs little.
//!
//! Rows are ragged sums over the batch, so a policy that spreads a budget over requests keeps its gain: every size up to
//! [`EXACT`] is its own bucket, above it eight steps per doubling, and every tree of 1 + 2ᵏ rows fits exactly.

use crate::ops::rows::Bucket;

/// Up to here every number of rows is a bucket.
pub(crate) const EXACT: u32 = 8;

/// Buckets of one engine: at most `rows` rows of `seqs` sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub most: Bucket,
}

impl Buckets {
    /// The bucket of a pass, where it fits.
    pub fn of(self, rows: u32, seqs: u32) -> Option<Bucket> {
        let seqs = self.seqs(seqs)?;
        (1..=self.most.rows).contains(&rows).then(|| Bucket { rows: step(rows).min(self.most.rows), seqs })
    }

    /// Padded number of sequences: the next power of two, at most the engine's.
    pub fn seqs(self, seqs: u32) -> Option<u32> {
        (1..=self.most.seqs).contains(&seqs).then(|| seqs.next_power_of_two().min(self.most.seqs))
    }
}

/// The smallest bucket size that holds `rows` rows.
fn step(rows: u32) -> u32 {
    // Trees of 16 or 64 nodes have one row more than a power of two.
    if rows <= EXACT || (rows - 1).is_power_of_two() {
        return rows;
    }
    let eighth = ((rows - 1).next_power_of_two() / 16).max(1);
    rows.div_ceil(eighth) * eighth
}

/// Number of a verify graph in logs: rows in the low 16 bits, sequences above.
pub(crate) fn graph_id(bucket: Bucket) -> u32 {
    bucket.seqs << 16 | bucket.rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_close_bucket() {
        let all = Buckets { most: Bucket { rows: 4096, seqs: 16 } };
        for rows in 1..=4096 {
            let bucket = all.of(rows, 1).unwrap();
            assert!(
                bucket.rows >= rows && f64::from(bucket.rows) <= f64::from(rows) * 1.125 + 0.5,
                "{rows}: {bucket:?}"
            );
            assert_eq!(all.of(bucket.rows, 1), Some(bucket), "a bucket holds itself");
            assert!(all.of(rows.saturating_sub(1).max(1), 1).unwrap().rows <= bucket.rows, "monotone at {rows}");
            if rows <= EXACT || (rows - 1).is_power_of_two() {
                assert_eq!(bucket.rows, rows);
            }
        }
        let sizes: std::collections::BTreeSet<u32> = (1..=4096).map(|r| all.of(r, 1).unwrap().rows).collect();
        assert!(sizes.len() < 100, "{}", sizes.len());
    }

    #[test]
    fn sequences_go_up_in_powers_of_two() {
        let all = Buckets { most: Bucket { rows: 100, seqs: 6 } };
        let got: Vec<u32> = (1..=6).map(|n| all.seqs(n).unwrap()).collect();
        assert_eq!(got, [1, 2, 4, 4, 6, 6]);
        assert_eq!((all.seqs(7), all.of(101, 1), all.of(0, 1)), (None, None, None));
        assert_eq!(all.of(99, 3), Some(Bucket { rows: 100, seqs: 4 }));
        assert_eq!(graph_id(Bucket { rows: 65, seqs: 4 }), 4 << 16 | 65);
    }
}
