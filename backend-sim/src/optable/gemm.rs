//! Dense products [m, k] × [k, n] in bf16 by rows m, outputs n and inputs k.

use super::csv::Sheet;
use super::domain::{Line, locate};
use super::key::{Keyed, Origin, Wanted, Wish, select};
use super::{Looked, OpTables, TableError};

/// Which table of products.
#[derive(Clone, Copy, Debug)]
pub struct GemmKey<'k> {
    /// Machine, engine, version, kernel.
    pub from: Wanted<'k>,
    /// Arithmetic: `bfloat16`.
    pub dtype: &'k str,
}

/// Products on one machine under one engine: a grid over n and k, each with a line over m.
#[derive(Clone, Debug)]
pub struct GemmTable {
    origin: Origin,
    dtype: String,
    n: Vec<f64>,
    k: Vec<f64>,
    ln_n: Vec<f64>,
    ln_k: Vec<f64>,
    /// By n, then k. `None` where the pair was not measured.
    lines: Vec<Option<Line>>,
}

/// How far beyond the last n a product may lie and still count as measured: a vocabulary of 151,936 against 65,536 measured outputs.
const STREAMED: f64 = 3.0;
/// The weights in bytes that the product at the last n must have for that: more than any cache holds, so that more columns only take
/// in proportion longer.
const STREAM_BYTES: f64 = 256.0 * 1024.0 * 1024.0;

impl GemmTable {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The arithmetic.
    #[must_use]
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// The measured outputs n and inputs k.
    #[must_use]
    pub fn axes(&self) -> (&[f64], &[f64]) {
        (&self.n, &self.k)
    }

    /// The measured cells (m, n, k, µs).
    #[must_use]
    pub fn cells(&self) -> Vec<(f64, f64, f64, f64)> {
        let width = self.k.len();
        let mut cells = Vec::new();
        for (i, line) in self.lines.iter().enumerate() {
            let (n, k) = (self.n[i / width], self.k[i % width]);
            cells.extend(line.iter().flat_map(Line::points).map(|(m, us)| (m, n, k, us)));
        }
        cells
    }

    fn line(&self, n: usize, k: usize) -> Option<&Line> {
        self.lines[n * self.k.len() + k].as_ref()
    }

    /// The time of m rows into n outputs from k inputs, log-log between grid points.
    ///
    /// Beyond the last n the time grows in proportion to n, and counts as inside up to three times that n where the last product
    /// streams more weights than any cache holds. Any other query beyond the grid is outside; below the grid it has the time of the
    /// smallest product.
    #[must_use]
    pub fn us(&self, m: f64, n: f64, k: f64) -> Looked {
        let (n0, n1, v, n_in) = locate(&self.n, &self.ln_n, n);
        let (k0, k1, w, k_in) = locate(&self.k, &self.ln_k, k);
        let mut ln = 0.0;
        let mut inside = true;
        for (ni, ki, weight) in
            [(n0, k0, (1.0 - v) * (1.0 - w)), (n0, k1, (1.0 - v) * w), (n1, k0, v * (1.0 - w)), (n1, k1, v * w)]
        {
            if weight > 0.0 {
                let looked = self.corner(ni, ki, m);
                ln += weight * looked.us.ln();
                inside &= looked.inside;
            }
        }
        let mut looked = Looked { us: ln.exp(), inside: inside && k_in };
        let (last_n, last_k) = (self.n[self.n.len() - 1], self.k[self.k.len() - 1]);
        if k > last_k {
            looked.us *= k / last_k;
        }
        if n > last_n {
            let streams = n <= STREAMED * last_n && 2.0 * last_n * k >= STREAM_BYTES;
            looked = Looked { us: looked.us * n / last_n, inside: looked.inside && streams };
        } else if !n_in {
            looked.inside = false;
        }
        looked
    }

    /// A grid point, or its nearest measured neighbour in proportion to n·k (outside) where it was not measured.
    fn corner(&self, n: usize, k: usize, m: f64) -> Looked {
        if let Some(line) = self.line(n, k) {
            return line.at(m);
        }
        let near = (0..=n).rev().find_map(|i| self.line(i, k).map(|line| line.at(m).us * self.n[n] / self.n[i]));
        Looked { us: near.unwrap_or(f64::NAN), inside: false }
    }
}

impl Keyed for GemmTable {
    const OP: &'static str = "GEMM";

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        vec![self.dtype.clone()]
    }
}

impl OpTables {
    /// The products for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn gemm(&self, key: &GemmKey<'_>) -> Result<&GemmTable, TableError> {
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("dtype", Some(key.dtype.into())));
        select(&self.gemm, &wishes)
    }

    /// Every table of products.
    #[must_use]
    pub fn gemm_tables(&self) -> &[GemmTable] {
        &self.gemm
    }
}

/// Key columns of `gemm.csv`; the axis is rows m.
pub(crate) const KEYS: &[&str] = &["system", "engine", "version", "kernel", "dtype", "n", "k"];

pub(crate) fn read(sheet: &Sheet<'_>) -> Result<Vec<GemmTable>, TableError> {
    let mut tables = Vec::new();
    let mut start = 0;
    while start < sheet.rows.len() {
        let first = &sheet.rows[start];
        let end = start + sheet.rows[start..].iter().take_while(|r| r.key[..5] == first.key[..5]).count();
        let rows = &sheet.rows[start..end];
        let mut pairs = Vec::with_capacity(rows.len());
        for row in rows {
            pairs.push((sheet.number(row, 5, "n")?, sheet.number(row, 6, "k")?));
        }
        let axis = |pick: fn(&(u32, u32)) -> u32| -> Vec<u32> {
            let mut all: Vec<u32> = pairs.iter().map(pick).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (n, k) = (axis(|p| p.0), axis(|p| p.1));
        let mut lines = vec![None; n.len() * k.len()];
        for (row, pair) in rows.iter().zip(&pairs) {
            let at = n.partition_point(|&x| x < pair.0) * k.len() + k.partition_point(|&x| x < pair.1);
            if lines[at].is_some() {
                return Err(sheet.fault(row, format!("n {} k {} stands twice", pair.0, pair.1)));
            }
            lines[at] = Line::new(&sheet.points(row));
        }
        // The look-up of a hole goes down in n to a measured neighbour: there must be one for every k.
        if let Some(column) = (0..k.len()).find(|&c| lines[c].is_none()) {
            return Err(sheet.fault(first, format!("n {} k {} is missing", n[0], k[column])));
        }
        let float = |axis: &[u32]| -> Vec<f64> { axis.iter().map(|&x| f64::from(x)).collect() };
        let ln = |axis: &[u32]| -> Vec<f64> { axis.iter().map(|&x| f64::from(x).ln()).collect() };
        tables.push(GemmTable {
            origin: Origin::of(&first.key),
            dtype: first.key[4].into(),
            ln_n: ln(&n),
            ln_k: ln(&k),
            n: float(&n),
            k: float(&k),
            lines,
        });
        start = end;
    }
    Ok(tables)
}
