//! `treeline trace record` and `treeline trace info`.

use super::out::Out;
use std::path::Path;

/// Sums up a trace.
pub(super) fn info(file: &Path, json: bool, out: &Out) -> anyhow::Result<()> {
    let info = crate::trace::info(file)?;
    if json { out.json(&info) } else { out.data(&info.to_string()) }
}
