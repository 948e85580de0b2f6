//! Rows gathered by key, and the text that is written of them.

use super::ImportError;
use super::table::Table;
use std::collections::{BTreeMap, BTreeSet};

/// A cell of a key: texts sort as texts, numbers as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    Text(String),
    Number(i64),
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(n) => write!(f, "{n}"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Cell {
    fn from(n: i64) -> Self {
        Self::Number(n)
    }
}

/// The first line of every file.
const HEAD: &str = "# aiconfigurator-core 0.12.0, Apache-2.0, NVIDIA; see NOTICE. Cells are microseconds; an empty cell was not measured.";

/// Times by key and place on the axis; of several measurements of one cell the fastest counts, as where the package's
/// own maintainers mend theirs: what disturbs a time makes it longer.
#[derive(Default)]
pub(super) struct Sheet {
    rows: BTreeMap<Vec<Cell>, BTreeMap<i64, f64>>,
}

impl Sheet {
    /// Adds a measurement in milliseconds.
    pub(super) fn add(&mut self, table: &Table, key: Vec<Cell>, at: i64, ms: f64) -> Result<(), ImportError> {
        if !(ms.is_finite() && ms > 0.0) || at <= 0 {
            let key: Vec<String> = key.iter().map(Cell::to_string).collect();
            return Err(table.fault(format!("{} at {at} takes {ms} ms", key.join(","))));
        }
        let cell = self.rows.entry(key).or_default().entry(at).or_insert(f64::INFINITY);
        *cell = cell.min(ms * 1e3);
        Ok(())
    }

    /// Appends a cell to each key, made from the key and its (place, µs) points.
    pub(super) fn extend_keys(self, make: impl Fn(&[Cell], &[(i64, f64)]) -> Cell) -> Self {
        let rows = self.rows.into_iter().map(|(mut key, row)| {
            let points: Vec<(i64, f64)> = row.iter().map(|(&at, &us)| (at, us)).collect();
            let cell = make(&key, &points);
            key.push(cell);
            (key, row)
        });
        Self { rows: rows.collect() }
    }

    /// The file: keys ascend, so does the axis.
    pub(super) fn text(&self, columns: &[&str]) -> String {
        let axis: BTreeSet<i64> = self.rows.values().flat_map(|row| row.keys().copied()).collect();
        let header: Vec<String> =
            columns.iter().map(|&c| c.to_owned()).chain(axis.iter().map(i64::to_string)).collect();
        let mut text = format!("{HEAD}\n{}\n", header.join(","));
        for (key, row) in &self.rows {
            let key = key.iter().map(Cell::to_string);
            let cells = axis.iter().map(|at| row.get(at).map_or_else(String::new, |&us| four_digits(us)));
            text.push_str(&key.chain(cells).collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        text
    }
}

/// Four significant digits, more for whole numbers above 9999.
fn four_digits(us: f64) -> String {
    let decimals = (3.0 - us.log10().floor()).max(0.0) as usize;
    format!("{us:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::four_digits;

    #[test]
    fn digits_follow_the_size() {
        for (us, text) in [
            (0.812_34, "0.8123"),
            (9.376, "9.376"),
            (26.04, "26.04"),
            (475.96, "476.0"),
            (2407.4, "2407"),
            (35_000.4, "35000"),
        ] {
            assert_eq!(four_digits(us), text);
        }
    }
}
