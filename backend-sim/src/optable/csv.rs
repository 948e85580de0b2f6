//! The file form: `#` lines, a header of key columns followed by the axis, then one row of microseconds per key.

use super::TableError;

/// One row: its key cells and its times along the axis.
pub(crate) struct Row<'t> {
    pub(crate) line: usize,
    pub(crate) key: Vec<&'t str>,
    pub(crate) us: Vec<Option<f64>>,
}

/// A parsed file. Rows are in file order; the axis increases.
pub(crate) struct Sheet<'t> {
    pub(crate) file: &'t str,
    pub(crate) axis: Vec<f64>,
    pub(crate) rows: Vec<Row<'t>>,
}

/// Parses `text`, whose header must start with exactly `keys`.
///
/// # Errors
/// [`TableError::Header`] and [`TableError::Row`], with the line: other columns, an axis that does not increase, a row of another
/// length, a time that is not a positive finite number, a row without a time, a key that stands twice.
pub(crate) fn parse<'t>(file: &'t str, text: &'t str, keys: &[&str]) -> Result<Sheet<'t>, TableError> {
    let expected = || keys.join(",");
    let fault = |line: usize, what: String| TableError::Row { file: file.into(), line, what };
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.starts_with('#') && !l.is_empty());
    let (at, header) = lines.next().ok_or_else(|| TableError::Header {
        file: file.into(),
        line: 1,
        expected: expected(),
        found: String::new(),
    })?;
    let columns: Vec<&str> = header.split(',').collect();
    if columns.len() <= keys.len() || columns[..keys.len()] != *keys {
        let found = columns[..columns.len().min(keys.len())].join(",");
        return Err(TableError::Header { file: file.into(), line: at + 1, expected: expected(), found });
    }
    let mut axis = Vec::with_capacity(columns.len() - keys.len());
    for column in &columns[keys.len()..] {
        let x = positive(column).ok_or_else(|| fault(at + 1, format!("`{column}` is not a point of an axis")))?;
        if axis.last().is_some_and(|&last| last >= x) {
            return Err(fault(at + 1, format!("the axis does not increase at `{column}`")));
        }
        axis.push(x);
    }
    let mut rows: Vec<Row<'t>> = Vec::new();
    for (at, line) in lines {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != columns.len() {
            return Err(fault(
                at + 1,
                format!("{} cells where the header has {}: cut short?", cells.len(), columns.len()),
            ));
        }
        let mut us = Vec::with_capacity(axis.len());
        for (cell, column) in cells[keys.len()..].iter().zip(&columns[keys.len()..]) {
            us.push(match *cell {
                "" => None,
                cell => Some(
                    positive(cell)
                        .ok_or_else(|| fault(at + 1, format!("`{cell}` at {column} is not a positive number of µs")))?,
                ),
            });
        }
        if us.iter().all(Option::is_none) {
            return Err(fault(at + 1, "a row without a time".into()));
        }
        let key = cells[..keys.len()].to_vec();
        if rows.last().is_some_and(|last| last.key == key) {
            return Err(fault(at + 1, format!("`{}` stands twice", key.join(","))));
        }
        rows.push(Row { line: at + 1, key, us });
    }
    if rows.is_empty() {
        return Err(fault(at + 1, "no row follows the header".into()));
    }
    Ok(Sheet { file, axis, rows })
}

fn positive(cell: &str) -> Option<f64> {
    cell.parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0)
}

impl<'t> Sheet<'t> {
    /// Key cell `column` of `row` as a whole number.
    pub(crate) fn number(&self, row: &Row<'t>, column: usize, name: &str) -> Result<u32, TableError> {
        row.key[column].parse().ok().filter(|&n| n > 0).ok_or_else(|| TableError::Row {
            file: self.file.into(),
            line: row.line,
            what: format!("{name} `{}` is not a positive whole number", row.key[column]),
        })
    }

    /// The measured points of `row`.
    pub(crate) fn points(&self, row: &Row<'t>) -> Vec<(f64, f64)> {
        self.axis.iter().zip(&row.us).filter_map(|(&x, us)| us.map(|us| (x, us))).collect()
    }

    /// A fault of `row`.
    pub(crate) fn fault(&self, row: &Row<'t>, what: impl Into<String>) -> TableError {
        TableError::Row { file: self.file.into(), line: row.line, what: what.into() }
    }
}
