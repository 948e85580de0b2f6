//! Decode times over batch × context: one face for every kernel that is timed so.

use super::csv::Sheet;
use super::domain::Plane;
use super::key::{Keyed, Origin};
use super::{Looked, TableError};

/// What tells the planes of one operation apart beside where they come from.
pub trait PlaneShape {
    /// The operation, for messages.
    const OP: &'static str;

    /// Its coordinates, in the order in which keys name them.
    fn key(&self) -> Vec<String>;
}

/// Times of one kernel on one machine under one engine, one row a request.
#[derive(Clone, Debug)]
pub struct PlaneTable<S> {
    origin: Origin,
    shape: S,
    plane: Plane,
}

impl<S> PlaneTable<S> {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What it is a table of.
    pub(crate) fn shape(&self) -> &S {
        &self.shape
    }

    /// Its times.
    pub(crate) fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The time of `batch` requests of one row each whose cache holds `context` tokens, the new one counted.
    #[must_use]
    pub fn us(&self, batch: f64, context: f64) -> Looked {
        self.plane.at(batch, context)
    }

    /// The measured batches and contexts.
    #[must_use]
    pub fn axes(&self) -> (&[f64], &[f64]) {
        self.plane.axes()
    }

    /// The measured cells (batch, context, µs).
    #[must_use]
    pub fn cells(&self) -> Vec<(f64, f64, f64)> {
        self.plane.cells().collect()
    }
}

impl<S: PlaneShape> Keyed for PlaneTable<S> {
    const OP: &'static str = S::OP;

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        self.shape.key()
    }
}

/// Gathers the batch rows that share the first `columns` key cells into planes. Cells from the sixth on are numbers.
pub(crate) fn planes<S>(
    sheet: &Sheet<'_>,
    columns: usize,
    shape: impl Fn(&[&str], &[u32]) -> S,
) -> Result<Vec<PlaneTable<S>>, TableError> {
    let mut tables = Vec::new();
    let mut start = 0;
    while start < sheet.rows.len() {
        let first = &sheet.rows[start];
        let end = start + sheet.rows[start..].iter().take_while(|r| r.key[..columns] == first.key[..columns]).count();
        let mut batch = Vec::new();
        for row in &sheet.rows[start..end] {
            let n = f64::from(sheet.number(row, columns, "batch")?);
            if batch.last().is_some_and(|&last| last >= n) {
                return Err(sheet.fault(row, "batch does not increase"));
            }
            batch.push(n);
        }
        let numbers: Result<Vec<u32>, TableError> = (5..columns).map(|c| sheet.number(first, c, "a size")).collect();
        let times: Vec<Vec<Option<f64>>> = sheet.rows[start..end].iter().map(|r| r.us.clone()).collect();
        let plane =
            Plane::new(&batch, &sheet.axis, &times).ok_or_else(|| sheet.fault(first, "a row without a time"))?;
        tables.push(PlaneTable { origin: Origin::of(&first.key), shape: shape(&first.key, &numbers?), plane });
        start = end;
    }
    Ok(tables)
}
