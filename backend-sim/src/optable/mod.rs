//! Measured times of single operations, as serving engines run them: the `table` tier of the cost model.
//!
//! The project ships a slice of the tables of the PyPI package `aiconfigurator-core` 0.12.0 (Apache-2.0, see `optables/NOTICE`),
//! which `treeline optables import` writes from that package. Every look-up says whether it lies [inside](Looked::inside) what was
//! measured; outside, the caller decides. Times are microseconds of one call on one GPU.
//!
//! ```
//! use treeline_sim::optable::{MoeKey, MoeShape, OpTables, Wanted};
//!
//! let from = Wanted { system: "b300", engine: "vllm", version: Some("0.24.0"), kernel: None };
//! let layer = OpTables::shipped().moe(&MoeKey { from, shape: MoeShape::KIMI_INT4, tp: 8 })?;
//! // 8 rows of a batch touch 60 of 384 experts when they choose independently, 64 when balanced.
//! assert!(layer.fit().us(8.0, 60.0).us < layer.balanced(8.0).us);
//! # Ok::<(), treeline_sim::optable::TableError>(())
//! ```

mod allreduce;
mod attention;
mod csv;
mod domain;
mod error;
mod excluded;
mod gemm;
mod key;
mod mla;
mod moe;
mod plane;
mod summary;
pub mod transfer;
mod work;

use std::path::Path;
use std::sync::OnceLock;

pub use allreduce::{AllReduceTable, ArKey, Collective, Launch};
pub use attention::{AttentionKey, AttentionShape, AttentionTable};
pub use domain::Looked;
pub(crate) use domain::Plane;
pub use error::TableError;
pub use excluded::{EXCLUDED, Excluded};
pub use gemm::{GemmKey, GemmTable};
pub use key::{Origin, Wanted};
pub use mla::{BmmKey, BmmSide, BmmTable, MlaKey, MlaPart, MlaShape, MlaTable};
pub use moe::{MoeFit, MoeKey, MoeShape, MoeTable, Routing};
pub use plane::{PlaneShape, PlaneTable};
pub use summary::Summary;
pub use work::{Rates, Work};

/// The files of a set of tables, in the order in which they are read.
pub const FILES: [&str; 7] =
    ["moe.csv", "allreduce.csv", "mla.csv", "mla_module.csv", "mla_bmm.csv", "gemm.csv", "attention.csv"];

/// The shipped slice, file by file, in the order of [`FILES`].
pub const SHIPPED: [&str; 7] = [
    include_str!("../../optables/moe.csv"),
    include_str!("../../optables/allreduce.csv"),
    include_str!("../../optables/mla.csv"),
    include_str!("../../optables/mla_module.csv"),
    include_str!("../../optables/mla_bmm.csv"),
    include_str!("../../optables/gemm.csv"),
    include_str!("../../optables/attention.csv"),
];

/// The notice that goes with the files.
pub const NOTICE: &str = include_str!("../../optables/NOTICE");

/// A set of tables.
#[derive(Clone, Debug)]
pub struct OpTables {
    moe: Vec<MoeTable>,
    allreduce: Vec<AllReduceTable>,
    mla: Vec<MlaTable>,
    mla_module: Vec<MlaTable>,
    mla_bmm: Vec<BmmTable>,
    gemm: Vec<GemmTable>,
    attention: Vec<AttentionTable>,
    digest: u64,
}

impl OpTables {
    /// The slice in this binary, parsed once.
    ///
    /// # Panics
    /// Never: a test parses the shipped files.
    #[must_use]
    pub fn shipped() -> &'static Self {
        static TABLES: OnceLock<OpTables> = OnceLock::new();
        TABLES.get_or_init(|| match Self::parse(&SHIPPED) {
            Ok(tables) => tables,
            Err(error) => unreachable!("the shipped tables parse, which a test checks: {error}"),
        })
    }

    /// The tables of a folder that holds all of [`FILES`], as `treeline optables import` writes them.
    ///
    /// # Errors
    /// [`TableError::Read`] for a file that cannot be read, and those of [`parse`](Self::parse).
    pub fn read(folder: &Path) -> Result<Self, TableError> {
        let mut texts: [String; 7] = Default::default();
        for (text, file) in texts.iter_mut().zip(FILES) {
            let file = folder.join(file);
            *text = crate::text::read(&file, FILE_MAX).map_err(|source| TableError::Read { file, source })?;
        }
        Self::parse(&texts)
    }

    /// Tables from the texts of [`FILES`], in that order.
    ///
    /// # Errors
    /// [`TableError::Header`] and [`TableError::Row`], with file and line.
    pub fn parse<S: AsRef<str>>(texts: &[S; 7]) -> Result<Self, TableError> {
        let text = |i: usize| texts[i].as_ref();
        let sheet = |i: usize, keys: &[&str]| csv::parse(FILES[i], text(i), keys);
        Ok(Self {
            moe: moe::read(&sheet(0, moe::KEYS)?)?,
            allreduce: allreduce::read(&sheet(1, allreduce::KEYS)?)?,
            mla: mla::read(&sheet(2, mla::KEYS)?, MlaPart::Kernel)?,
            mla_module: mla::read(&sheet(3, mla::KEYS)?, MlaPart::Module)?,
            mla_bmm: mla::read_bmm(&sheet(4, mla::BMM_KEYS)?)?,
            gemm: gemm::read(&sheet(5, gemm::KEYS)?)?,
            attention: attention::read(&sheet(6, attention::KEYS)?)?,
            digest: (0..FILES.len()).fold(FNV_OFFSET, |hash, i| fnv(hash, text(i).as_bytes())),
        })
    }

    /// A digest of the files (FNV-1a, 64 bits): results name the tables that they were computed with.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// The largest shipped table has two thirds of a MiB.
const FILE_MAX: u64 = 64 << 20;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
