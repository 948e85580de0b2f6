//! Special tokens: what `tokenizer_config.json` calls them, and which of them end a response.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Tokenizer, fail};
use crate::error::{Error, Result};
use crate::json::{Fields, parse, read_limited};

/// Templates and thousands of added tokens make this file larger than a config.
const LIMIT: u64 = 64 << 20;

/// The object in `name` of the folder; None if there is no such file.
pub(super) fn object(dir: &Path, name: &str) -> Result<Option<Map<String, Value>>> {
    let path = dir.join(name);
    if !path.exists() {
        return Ok(None);
    }
    match parse(&read_limited(&path, LIMIT)?, &path)? {
        Value::Object(map) => Ok(Some(map)),
        _ => Err(Error::field(&path, "(whole file)", "must be an object")),
    }
}

/// Text of a token in `tokenizer_config.json`, which holds a string or an object with `content`.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Ids that end a response, ascending, from every file that names one.
pub(super) fn eos(dir: &Path, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for name in ["config.json", "generation_config.json"] {
        let Some(map) = object(dir, name)? else { continue };
        let (path, whole) = (dir.join(name), Value::Object(map));
        let fields = Fields::new(&path, "", &whole)?;
        ids.extend(fields.opt_ids("eos_token_id")?.unwrap_or_default());
        if let Some(text) = fields.object("text_config")? {
            ids.extend(text.opt_ids("eos_token_id")?.unwrap_or_default());
        }
    }
    if let Some(map) = object(dir, "tokenizer_config.json")?
        && let Some(token) = map.get("eos_token").filter(|v| !v.is_null())
    {
        let path = dir.join("tokenizer_config.json");
        let Some(token) = text(token) else {
            return Err(Error::field(&path, "eos_token", "must be a string, or an object with `content`"));
        };
        let Some(id) = tokenizer.id(token) else {
            return Err(fail(&path, format!("`eos_token` is \"{token}\", which tokenizer.json does not have")));
        };
        ids.push(id);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The `added_tokens` of a tokenizer.json.
#[derive(Deserialize)]
pub(super) struct Added {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

impl Added {
    /// Also proves that the file is JSON at all, which the library in places takes for granted.
    pub(super) fn read(bytes: &[u8], path: &Path) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|source| Error::Json { path: path.to_owned(), source })
    }

    /// Checks that every added token got the id that the file gives it: the library numbers them itself, in the order of the file.
    pub(super) fn check(self, path: &Path, id: impl Fn(&str) -> Option<u32>) -> Result<()> {
        for token in self.added_tokens {
            let got = id(&token.content);
            if got != Some(token.id) {
                let got = got.map_or("none".to_owned(), |id| id.to_string());
                let problem = format!(
                    "added token `{}` has id {}, but its place in the file gives it {got}: number added tokens on from the vocabulary",
                    token.content, token.id
                );
                return Err(fail(path, problem));
            }
        }
        Ok(())
    }
}
