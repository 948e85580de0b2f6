//! Traversal verification (arXiv 2505.12398): leaves are judged first, a deleted leaf's mass goes back to its parent.

use super::{Rows, Walk};
use crate::batch::Seq;
use crate::draft::DraftView;
use crate::error::Fault;
use crate::tree::Tree;

/// To be written.
pub(super) fn walk(
    _seed: u64,
    _at: u32,
    _seq: &Seq,
    _tree: &Tree,
    _rows: &dyn Rows,
    _drafts: &dyn DraftView,
) -> Result<Walk, Fault> {
    Err(Fault::Policy("traversal verification is not written yet".into()))
}
