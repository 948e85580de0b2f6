//! MLA at decode: the attention kernel, the whole module with its projections, and the absorbed batched products.
//!
//! No table has a rows-per-request axis: one row per request, causal. The flops of a tree come on top (`table+flops`).

use super::csv::Sheet;
use super::domain::Line;
use super::key::{Keyed, Origin, Wanted, Wish, select};
use super::plane::{PlaneShape, PlaneTable, planes};
use super::{Looked, OpTables, TableError};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MlaPart {
    /// The attention kernel alone.
    Kernel,
    /// The module: projections (bf16), absorbed products, attention, output projection, on DeepSeek-V3's widths.
    Module,
}

/// Which MLA table.
#[derive(Clone, Copy, Debug)]
pub struct MlaKey<'k> {
    /// Machine, engine, version, kernel.
    pub from: Wanted<'k>,
    /// The kernel or the module.
    pub part: MlaPart,
    /// Cache format: `bfloat16` or `fp8`.
    pub kv: &'k str,
    /// Query heads of one GPU.
    pub heads: u32,
}

/// What of an MLA decode table its origin leaves open.
#[derive(Clone, Debug)]
pub struct MlaShape {
    part: MlaPart,
    kv: String,
    heads: u32,
}

/// MLA decode on one machine under one engine.
pub type MlaTable = PlaneTable<MlaShape>;

impl MlaTable {
    /// What is timed, cache format, heads of one GPU.
    #[must_use]
    pub fn what(&self) -> (MlaPart, &str, u32) {
        let MlaShape { part, kv, heads } = self.shape();
        (*part, kv.as_str(), *heads)
    }
}

impl PlaneShape for MlaShape {
    const OP: &'static str = "MLA decode";

    fn key(&self) -> Vec<String> {
        vec![self.kv.clone(), self.heads.to_string()]
    }
}

/// One of the two absorbed products around MLA attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BmmSide {
    /// Queries into the latent space.
    Pre,
    /// Latents back to values.
    Post,
}

impl BmmSide {
    /// As the tables write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// Which absorbed product.
#[derive(Clone, Copy, Debug)]
pub struct BmmKey<'k> {
    /// Machine, engine, version, kernel.
    pub from: Wanted<'k>,
    /// Arithmetic: `bfloat16` or `fp8`.
    pub dtype: &'k str,
    /// Before or after attention.
    pub side: BmmSide,
    /// Heads of one GPU.
    pub heads: u32,
}

/// An absorbed product by rows.
#[derive(Clone, Debug)]
pub struct BmmTable {
    origin: Origin,
    dtype: String,
    side: BmmSide,
    heads: u32,
    line: Line,
}

impl BmmTable {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Arithmetic, side, heads of one GPU.
    #[must_use]
    pub fn what(&self) -> (&str, BmmSide, u32) {
        (&self.dtype, self.side, self.heads)
    }

    /// The time of `rows` rows.
    #[must_use]
    pub fn us(&self, rows: f64) -> Looked {
        self.line.at(rows)
    }

    /// The measured points (rows, µs).
    #[must_use]
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.line.points().collect()
    }
}

impl Keyed for BmmTable {
    const OP: &'static str = "MLA absorbed product";

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        vec![self.dtype.clone(), self.side.name().into(), self.heads.to_string()]
    }
}

impl OpTables {
    /// MLA decode for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn mla(&self, key: &MlaKey<'_>) -> Result<&MlaTable, TableError> {
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("kv", Some(key.kv.into())));
        wishes.push(("heads", Some(key.heads.to_string())));
        select(self.mla_tables(key.part), &wishes)
    }

    /// Every MLA table of a part.
    #[must_use]
    pub fn mla_tables(&self, part: MlaPart) -> &[MlaTable] {
        match part {
            MlaPart::Kernel => &self.mla,
            MlaPart::Module => &self.mla_module,
        }
    }

    /// The absorbed product for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn mla_bmm(&self, key: &BmmKey<'_>) -> Result<&BmmTable, TableError> {
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("dtype", Some(key.dtype.into())));
        wishes.push(("side", Some(key.side.name().into())));
        wishes.push(("heads", Some(key.heads.to_string())));
        select(&self.mla_bmm, &wishes)
    }

    /// Every absorbed product.
    #[must_use]
    pub fn mla_bmm_tables(&self) -> &[BmmTable] {
        &self.mla_bmm
    }
}

/// Key columns of `mla.csv` and `mla_module.csv`; the axis is context.
pub(crate) const KEYS: &[&str] = &["system", "engine", "version", "kernel", "kv", "heads", "batch"];
/// Key columns of `mla_bmm.csv`; the axis is rows.
pub(crate) const BMM_KEYS: &[&str] = &["system", "engine", "version", "kernel", "dtype", "side", "heads"];

pub(crate) fn read(sheet: &Sheet<'_>, part: MlaPart) -> Result<Vec<MlaTable>, TableError> {
    planes(sheet, 6, |key, numbers| MlaShape { part, kv: key[4].into(), heads: numbers[0] })
}

pub(crate) fn read_bmm(sheet: &Sheet<'_>) -> Result<Vec<BmmTable>, TableError> {
    let mut tables = Vec::new();
    for row in &sheet.rows {
        let side = [BmmSide::Pre, BmmSide::Post].into_iter().find(|s| s.name() == row.key[5]);
        let side = side.ok_or_else(|| sheet.fault(row, format!("side `{}` is not known", row.key[5])))?;
        let line = Line::new(&sheet.points(row)).ok_or_else(|| sheet.fault(row, "a row without a time"))?;
        let heads = sheet.number(row, 6, "heads")?;
        tables.push(BmmTable { origin: Origin::of(&row.key), dtype: row.key[4].into(), side, heads, line });
    }
    Ok(tables)
}
