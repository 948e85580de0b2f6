//! Grouped-query attention at decode, for dense models and drafters. One row per request, causal, as with MLA.

use super::csv::Sheet;
use super::key::{Wanted, Wish, select};
use super::plane::{PlaneShape, PlaneTable, planes};
use super::{OpTables, TableError};

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

/// What of a decode attention table its origin leaves open.
#[derive(Clone, Debug)]
pub struct AttentionShape {
    kv: String,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
}

/// Decode attention on one machine under one engine.
pub type AttentionTable = PlaneTable<AttentionShape>;

impl AttentionTable {
    /// Cache format, query heads, key-value heads, width of a head.
    #[must_use]
    pub fn what(&self) -> (&str, u32, u32, u32) {
        let AttentionShape { kv, heads, kv_heads, head_dim } = self.shape();
        (kv.as_str(), *heads, *kv_heads, *head_dim)
    }
}

impl PlaneShape for AttentionShape {
    const OP: &'static str = "decode attention";

    fn key(&self) -> Vec<String> {
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
    planes(sheet, 8, |key, numbers| AttentionShape {
        kv: key[4].into(),
        heads: numbers[0],
        kv_heads: numbers[1],
        head_dim: numbers[2],
    })
}
