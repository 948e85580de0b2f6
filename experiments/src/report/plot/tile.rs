//! What a map is made of.

use super::px;
use crate::report::fmt;

/// What stands in one place of the map.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) enum Tile {
    /// Not asked for.
    Absent,
    /// Asked for and refused; why.
    Refused(String),
    /// A ratio.
    Ratio {
        /// The value.
        value: f64,
        /// What it says when pointed at.
        note: String,
        /// Marked in its corner: outside the domain of its tables.
        flag: bool,
    },
}

impl Tile {
    /// The ratio, where it is one.
    pub(super) fn ratio(&self) -> Option<f64> {
        match self {
            Self::Ratio { value, .. } if value.is_finite() => Some(*value),
            _ => None,
        }
    }
}

/// One row of tiles.
pub(in crate::report) struct HeatRow {
    /// To its left.
    pub label: String,
    /// One per column.
    pub tiles: Vec<Tile>,
}

/// A ratio in a tile.
pub(in crate::report) fn printed(value: f64) -> String {
    if value >= 100.0 { fmt::short(value) } else { fmt::fixed(value, if value >= 9.995 { 1 } else { 2 }) }
}

/// Two slanted strokes in a tile.
pub(super) fn hatch(x: f64, y: f64, w: f64, h: f64) -> String {
    let slant = h.min(w / 2.0);
    [0.0, 1.0].iter().fold(String::new(), |d, k| {
        let from = x + w * (0.25 + 0.5 * k) - slant / 2.0;
        format!("{d}M{} {}l{} -{}", px(from), px(y + h), px(slant), px(h))
    })
}
