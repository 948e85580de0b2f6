//! Row counts at which ops are priced beforehand: a price is then a few look-ups.
//!
//! Every count up to [`EXACT`], every 16th up to 4096 and every 128th up to [`MOST`] has a slot; a count between two is priced
//! at the next, so nothing is interpolated (tiles of the products are as coarse as that up there). Beyond the last slot time
//! grows in proportion, outside of every domain.

/// Rows up to which every count has a slot.
pub(super) const EXACT: u32 = 1024;
const MIDDLE: u32 = 4096;
const MIDDLE_STEP: u32 = 16;
const MIDDLE_SLOTS: u32 = (MIDDLE - EXACT) / MIDDLE_STEP;
const FAR_STEP: u32 = 128;
/// Rows of the last slot.
pub(super) const MOST: u32 = 65_536;
/// Number of slots; slot 0 is a pass of no rows.
pub(super) const SLOTS: usize = (EXACT + MIDDLE_SLOTS + (MOST - MIDDLE) / FAR_STEP + 1) as usize;

/// Where a row count is priced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slot {
    /// Index into the arrays.
    pub at: usize,
    /// 1, or how many times more rows than the last slot's there are.
    pub stretch: f64,
}

impl Slot {
    /// The slot of `rows` rows.
    pub(super) fn of(rows: u32) -> Self {
        let at = if rows <= EXACT {
            rows
        } else if rows <= MIDDLE {
            EXACT + (rows - EXACT).div_ceil(MIDDLE_STEP)
        } else {
            EXACT + MIDDLE_SLOTS + (rows.min(MOST) - MIDDLE).div_ceil(FAR_STEP)
        };
        let stretch = if rows > MOST { f64::from(rows) / f64::from(MOST) } else { 1.0 };
        Self { at: at as usize, stretch }
    }

    /// Rows of the slot.
    pub(super) fn rows(at: usize) -> u32 {
        let at = at as u32;
        if at <= EXACT {
            at
        } else if at <= EXACT + MIDDLE_SLOTS {
            EXACT + (at - EXACT) * MIDDLE_STEP
        } else {
            MIDDLE + (at - EXACT - MIDDLE_SLOTS) * FAR_STEP
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_its_rows_and_no_smaller_one_does() {
        for at in 0..SLOTS {
            let rows = Slot::rows(at);
            assert_eq!(Slot::of(rows), Slot { at, stretch: 1.0 });
            if rows > 0 {
                assert!(Slot::rows(Slot::of(rows - 1).at) >= rows - 1);
            }
        }
        assert_eq!(Slot::rows(SLOTS - 1), MOST);
        assert_eq!(Slot::of(2 * MOST), Slot { at: SLOTS - 1, stretch: 2.0 });
    }
}
