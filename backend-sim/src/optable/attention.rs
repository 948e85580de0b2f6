//! Grouped-query attention at decode, for dense models and drafters. One row per request, causal, as with MLA.

use super::csv::Sheet;
use super::domain::Plane;
use super::key::{Keyed, Origin, Wanted, Wish, select};
use super::mla::planes;
use super::{Looked, OpTables, TableError};

/// Which attention table.
#[derive(Clone, Copy, Debug)]
pub struct AttentionKey<'k> {
    /// Machine, engine, version, kernel.
    pub from: Wanted<'k>,
    /// Cache format: `bfloat16` or `fp8`.
    pub kv: &'k str,
    /// Query heads of one GPU.
    pub heads: u32,
    /// Key-value heads of one GPU.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
}

/// Decode attention on one machine under one engine.
#[derive(Clone, Debug)]
pub struct AttentionTable {
    origin: Origin,
    kv: String,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    plane: Plane,
}

impl AttentionTable {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Cache format, query heads, key-value heads, width of a head.
    #[must_use]
    pub fn what(&self) -> (&str, u32, u32, u32) {
        (&self.kv, self.heads, self.kv_heads, self.head_dim)
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

impl Keyed for AttentionTable {
    const OP: &'static str = "decode attention";

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        vec![self.kv.clone(), self.heads.to_string(), self.kv_heads.to_string(), self.head_dim.to_string()]
    }
}

impl OpTables {
    /// Decode attention for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn attention(&self, key: &AttentionKey<'_>) -> Result<&AttentionTable, TableError> {
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("kv", Some(key.kv.into())));
        wishes.push(("heads", Some(key.heads.to_string())));
        wishes.push(("kv_heads", Some(key.kv_heads.to_string())));
        wishes.push(("head_dim", Some(key.head_dim.to_string())));
        select(&self.attention, &wishes)
    }

    /// Every attention table.
    #[must_use]
    pub fn attention_tables(&self) -> &[AttentionTable] {
        &self.attention
    }
}

/// Key columns of `attention.csv`; the axis is context.
pub(crate) const KEYS: &[&str] =
    &["system", "engine", "version", "kernel", "kv", "heads", "kv_heads", "head_dim", "batch"];

pub(crate) fn read(sheet: &Sheet<'_>) -> Result<Vec<AttentionTable>, TableError> {
    planes(sheet, 8, |key, numbers, plane| AttentionTable {
        origin: Origin::of(key),
        kv: key[4].into(),
        heads: numbers[0],
        kv_heads: numbers[1],
        head_dim: numbers[2],
        plane,
    })
}
