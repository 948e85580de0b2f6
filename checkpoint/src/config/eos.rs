//! Tokens that begin and end a response.

use std::path::Path;

use serde_json::Value;

use crate::error::Result;
use crate::json::Fields;

/// `eos_token_id` of a config (a number, a list, or absent), ascending and without repeats.
pub(super) fn read(fields: &Fields<'_>, vocab: usize) -> Result<Vec<u32>> {
    let mut ids = fields.opt_ids("eos_token_id")?.unwrap_or_default();
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
        return Err(fields.error("eos_token_id", format!("token {id} is outside the vocabulary of {vocab}")));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// `bos_token_id`; transformers allows any number here, so it is not checked before use.
pub(super) fn bos(fields: &Fields<'_>) -> Result<Option<u32>> {
    Ok(fields.opt_ids("bos_token_id")?.and_then(|ids| ids.first().copied()))
}

/// Adds the tokens of a `generation_config.json`. Its other fields are about sampling, which the experiment decides.
pub(super) fn merge(into: &mut Vec<u32>, vocab: usize, value: &Value, path: &Path) -> Result<()> {
    into.extend(read(&Fields::new(path, "", value)?, vocab)?);
    into.sort_unstable();
    into.dedup();
    Ok(())
}
