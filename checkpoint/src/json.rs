//! Reading small JSON files, and a reader of objects that knows which keys nobody read.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// No model has more of anything that is counted by a config field; keeps every product of two of them inside `usize`
/// and every `Vec` sized by one of them small.
const COUNT_LIMIT: u64 = 1 << 24;

/// Opens an ordinary file. A named pipe would wait for a writer for ever, a device has no end.
pub(crate) fn open_plain(path: &Path) -> Result<File> {
    let plain = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.is_file();
    let other = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "is not an ordinary file");
    if plain { File::open(path).map_err(|e| Error::io(path, e)) } else { Err(Error::io(path, other())) }
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut file = open_plain(path)?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if meta.len() > limit {
        return Err(Error::TooLarge { path: path.to_owned(), bytes: meta.len(), limit });
    }
    let mut bytes = Vec::new();
    // `take` also bounds files whose size is unknown or grows while they are read.
    file.by_ref().take(limit).read_to_end(&mut bytes).map_err(|e| Error::io(path, e))?;
    Ok(bytes)
}

/// Parses bytes as one JSON value; nesting deeper than 128 is refused by the parser.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|source| Error::Json { path: path.to_owned(), source })
}

/// A JSON object of which every key must be read, or named as ignorable, before [`Fields::finish`].
pub(crate) struct Fields<'a> {
    path: PathBuf,
    prefix: String,
    map: &'a Map<String, Value>,
    seen: RefCell<Vec<bool>>,
}

impl<'a> Fields<'a> {
    /// `prefix` is the dotted path of the object inside the file, empty at the top.
    pub(crate) fn new(path: &Path, prefix: &str, value: &'a Value) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| {
            let name = if prefix.is_empty() { "(whole file)" } else { prefix };
            Error::field(path, name, format!("must be an object, not {}", kind(value)))
        })?;
        let seen = RefCell::new(vec![false; map.len()]);
        Ok(Self { path: path.to_owned(), prefix: prefix.to_owned(), map, seen })
    }

    /// Dotted path of `key` inside the file.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn error(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::field(&self.path, self.name(key), problem)
    }

    /// The value, or None if the key is absent or null; marks it as read.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        let index = self.map.keys().position(|k| k == key)?;
        self.seen.borrow_mut()[index] = true;
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields<'a>>> {
        self.get(key).map(|v| Fields::new(&self.path, &self.name(key), v)).transpose()
    }

    fn need<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(key, "missing: this model family needs it"))
    }

    pub(crate) fn opt_u64(&self, key: &str, limit: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        // Some exporters write integers as 4096.0.
        let whole = value.as_f64().filter(|f| f.fract() == 0.0 && (0.0..=9e15).contains(f)).map(|f| f as u64);
        match value.as_u64().or(whole) {
            Some(n) if n <= limit => Ok(Some(n)),
            _ => Err(self.error(key, format!("must be a whole number from 0 to {limit}, not {}", brief(value)))),
        }
    }

    /// A count that may be zero.
    pub(crate) fn opt_count(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.opt_u64(key, COUNT_LIMIT)?.map(|n| n as usize))
    }

    /// A size that is at least one.
    pub(crate) fn opt_size(&self, key: &str) -> Result<Option<usize>> {
        match self.opt_count(key)? {
            Some(0) => Err(self.error(key, "must be at least 1")),
            other => Ok(other),
        }
    }

    pub(crate) fn size(&self, key: &str) -> Result<usize> {
        let value = self.opt_size(key)?;
        self.need(key, value)
    }

    pub(crate) fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(f) if f.is_finite() => Ok(Some(f)),
            _ => Err(self.error(key, format!("must be a finite number, not {}", brief(value)))),
        }
    }

    /// A finite number greater than zero.
    pub(crate) fn opt_positive(&self, key: &str) -> Result<Option<f64>> {
        match self.opt_f64(key)? {
            Some(f) if f <= 0.0 => Err(self.error(key, format!("must be greater than 0, not {f}"))),
            other => Ok(other),
        }
    }

    pub(crate) fn positive(&self, key: &str) -> Result<f64> {
        let value = self.opt_positive(key)?;
        self.need(key, value)
    }

    pub(crate) fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_bool() {
            Some(b) => Ok(Some(b)),
            None => Err(self.error(key, format!("must be true or false, not {}", brief(value)))),
        }
    }

    pub(crate) fn bool(&self, key: &str) -> Result<bool> {
        let value = self.opt_bool(key)?;
        self.need(key, value)
    }

    pub(crate) fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_str() {
            Some(s) => Ok(Some(s)),
            None => Err(self.error(key, format!("must be a string, not {}", brief(value)))),
        }
    }

    pub(crate) fn str(&self, key: &str) -> Result<&'a str> {
        let value = self.opt_str(key)?;
        self.need(key, value)
    }

    pub(crate) fn opt_strings(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|a| a.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        list.map(Some).ok_or_else(|| self.error(key, format!("must be a list of strings, not {}", brief(value))))
    }

    /// A list of whole numbers; a single number counts as a list of one.
    pub(crate) fn opt_ids(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let one = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let list = match value {
            Value::Array(items) => items.iter().map(one).collect::<Option<Vec<_>>>(),
            other => one(other).map(|n| vec![n]),
        };
        list.map(Some).ok_or_else(|| {
            self.error(key, format!("must be a token or layer number, or a list of them, not {}", brief(value)))
        })
    }

    /// Fails if `key` is present with another value than `wanted`; null and absent are fine.
    pub(crate) fn only(&self, key: &str, wanted: &Value, why: &str) -> Result<()> {
        match self.get(key) {
            Some(v) if v != wanted => {
                Err(self.error(key, format!("is {}, but only {wanted} is supported: {why}", brief(v))))
            }
            _ => Ok(()),
        }
    }

    /// Marks keys that do not change the maths.
    pub(crate) fn ignore(&self, keys: &[&str]) {
        for key in keys {
            self.get(key);
        }
    }

    /// Fails on the first key that was neither read nor ignored. A null says nothing, so it passes.
    pub(crate) fn finish(self) -> Result<()> {
        let seen = self.seen.borrow();
        let unread = self.map.iter().zip(seen.iter()).find(|((_, v), seen)| !**seen && !v.is_null());
        match unread {
            Some(((key, _), _)) => Err(self.error(
                key,
                "not a field that this model family is known to have, and it may change the result: remove it if it does not",
            )),
            None => Ok(()),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as it fits into a message.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        Value::String(s) if s.len() > 60 => "a long string".to_owned(),
        other => other.to_string(),
    }
}
