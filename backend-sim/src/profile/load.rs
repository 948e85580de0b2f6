//! Reads a profile's TOML key by key: every field with its source, every unknown key an error at its line.
//!
//! A field is written `key = { value = 4.8e12, source = "…" }`. Names and texts stand plainly.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ProfileError, Sources};

/// A parsed file.
pub(crate) struct Doc<'t> {
    text: &'t str,
    file: String,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Doc<'t> {
    /// Parses the syntax; `file` is for messages.
    pub(crate) fn parse(text: &'t str, file: &str) -> Result<Self, ProfileError> {
        match DeTable::parse(text) {
            Ok(root) => Ok(Self { text, file: file.to_owned(), root }),
            Err(e) => {
                let line = line(text, e.span().unwrap_or(0..0).start);
                let problem = format!("not valid TOML: {}", e.message().lines().next().unwrap_or_default());
                Err(ProfileError::At { file: file.to_owned(), line, key: String::new(), problem })
            }
        }
    }

    /// The top level.
    pub(crate) fn root(&self) -> Fields<'_, 't> {
        Fields::new(self, "", self.root.get_ref(), 0..0)
    }
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
}

/// One table, and which of its keys were asked for.
pub(crate) struct Fields<'d, 't> {
    doc: &'d Doc<'t>,
    prefix: String,
    table: &'d DeTable<'t>,
    span: Range<usize>,
    seen: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Fields<'d, 't> {
    fn new(doc: &'d Doc<'t>, prefix: &str, table: &'d DeTable<'t>, span: Range<usize>) -> Self {
        Self { doc, prefix: prefix.to_owned(), table, span, seen: RefCell::default() }
    }

    fn name(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }

    fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.seen.borrow_mut().insert(key.to_owned());
        self.table.get(key)
    }

    /// Whether the key is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// An error about `key`, at its line if it is there, else at the table's.
    pub(crate) fn error(&self, key: &str, problem: impl Into<String>) -> ProfileError {
        let at = self.table.get_key_value(key).map_or(self.span.start, |(k, _)| k.span().start);
        let (file, line) = (self.doc.file.clone(), line(self.doc.text, at));
        ProfileError::At { file, line, key: self.name(key), problem: problem.into() }
    }

    /// A plain text that must be there and not be empty.
    pub(crate) fn text(&self, key: &str) -> Result<String, ProfileError> {
        let Some(v) = self.get(key) else { return Err(self.error(key, "missing: write a text")) };
        match v.get_ref().as_str() {
            Some(s) if !s.trim().is_empty() => Ok(s.to_owned()),
            _ => Err(self.error(key, "must be a text that is not empty")),
        }
    }

    /// A plain list of texts; empty where the key is missing.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, ProfileError> {
        let Some(v) = self.get(key) else { return Ok(Vec::new()) };
        let list = v.get_ref().as_array().map(|a| a.iter().map(|s| s.get_ref().as_str().map(str::to_owned)).collect());
        match list {
            Some(Some(list)) => Ok(list),
            _ => Err(self.error(key, "must be a list of texts")),
        }
    }

    /// A table that may be missing.
    pub(crate) fn table(&self, key: &str) -> Result<Option<Fields<'d, 't>>, ProfileError> {
        let Some(v) = self.get(key) else { return Ok(None) };
        match v.get_ref() {
            DeValue::Table(t) => {
                let at = self.table.get_key_value(key).map_or(v.span(), |(k, _)| k.span());
                Ok(Some(Fields::new(self.doc, &self.name(key), t, at)))
            }
            _ => Err(self.error(key, "must be a table")),
        }
    }

    /// A table that must be there.
    pub(crate) fn need(&self, key: &str) -> Result<Fields<'d, 't>, ProfileError> {
        self.table(key)?.ok_or_else(|| self.error(key, format!("missing: write a table `[{}]`", self.name(key))))
    }

    /// A sourced field that may be missing.
    pub(crate) fn opt<T: Value>(&self, key: &str, sources: &mut Sources) -> Result<Option<T>, ProfileError> {
        let Some(field) = self.get(key) else { return Ok(None) };
        let shape = format!("must be written `{key} = {{ value = …, source = \"…\" }}`");
        let DeValue::Table(t) = field.get_ref() else { return Err(self.error(key, shape)) };
        let (Some(value), Some(source)) = (t.get("value"), t.get("source")) else {
            return Err(self.error(key, shape));
        };
        let inner: Vec<_> = t.iter().map(|(k, _)| k.get_ref().as_ref()).collect();
        if let Some(other) = inner.iter().find(|k| **k != "value" && **k != "source") {
            return Err(self.error(key, format!("has a key `{other}` beside value and source; remove it")));
        }
        let source = match source.get_ref().as_str() {
            Some(s) if !s.trim().is_empty() => s.to_owned(),
            _ => return Err(self.error(key, "its source must be a text: a publication, a measurement or an argument")),
        };
        let Some(v) = T::read(value.get_ref()) else {
            return Err(self.error(key, format!("its value must be {}", T::WHAT)));
        };
        sources.note(self.name(key), v.show(), source);
        Ok(Some(v))
    }

    /// A sourced field that must be there.
    pub(crate) fn field<T: Value>(&self, key: &str, sources: &mut Sources) -> Result<T, ProfileError> {
        let shape = format!("missing: write `{key} = {{ value = …, source = \"…\" }}`, the value being {}", T::WHAT);
        self.opt(key, sources)?.ok_or_else(|| self.error(key, shape))
    }

    /// A sourced number above zero.
    pub(crate) fn positive(&self, key: &str, sources: &mut Sources) -> Result<f64, ProfileError> {
        let v: f64 = self.field(key, sources)?;
        if v > 0.0 { Ok(v) } else { Err(self.error(key, format!("is {v}; it must be above zero"))) }
    }

    /// A sourced number above zero that may be missing.
    pub(crate) fn opt_positive(&self, key: &str, sources: &mut Sources) -> Result<Option<f64>, ProfileError> {
        match self.opt::<f64>(key, sources)? {
            Some(v) if v <= 0.0 => Err(self.error(key, format!("is {v}; it must be above zero"))),
            v => Ok(v),
        }
    }

    /// A sourced number of zero or more.
    pub(crate) fn amount(&self, key: &str, sources: &mut Sources) -> Result<f64, ProfileError> {
        let v: f64 = self.field(key, sources)?;
        if v >= 0.0 { Ok(v) } else { Err(self.error(key, format!("is {v}; it must not be negative"))) }
    }

    /// A sourced count from 1 to `max`.
    pub(crate) fn size(&self, key: &str, max: u32, sources: &mut Sources) -> Result<u32, ProfileError> {
        let v: u32 = self.field(key, sources)?;
        let range = format!("is {v}; it must be from 1 to {max}");
        if (1..=max).contains(&v) { Ok(v) } else { Err(self.error(key, range)) }
    }

    /// Every key must have been asked for.
    pub(crate) fn finish(self) -> Result<(), ProfileError> {
        let seen = self.seen.borrow();
        let unknown = self.table.iter().map(|(k, _)| k).find(|k| !seen.contains(k.get_ref().as_ref()));
        let Some(key) = unknown else { return Ok(()) };
        let known: Vec<&str> = seen.iter().map(String::as_str).collect();
        Err(self.error(key.get_ref(), format!("unknown key; this table has {}", known.join(", "))))
    }
}

/// What a sourced field can hold.
pub(crate) trait Value: Sized {
    /// For messages: "a whole number".
    const WHAT: &'static str;
    /// The value, if it is one.
    fn read(value: &DeValue<'_>) -> Option<Self>;
    /// As text, for listings.
    fn show(&self) -> String;
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    let n = match value {
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok()? as f64,
        DeValue::Float(x) => x.as_str().parse::<f64>().ok()?,
        _ => return None,
    };
    n.is_finite().then_some(n)
}

impl Value for f64 {
    const WHAT: &'static str = "a finite number";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        number(value)
    }
    fn show(&self) -> String {
        if self.abs() >= 1e6 || (*self != 0.0 && self.abs() < 1e-3) { format!("{self:e}") } else { self.to_string() }
    }
}

impl Value for u64 {
    const WHAT: &'static str = "a whole number, not negative";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        // 288.4e9 is a natural way to write bytes.
        let n = number(value)?;
        (n >= 0.0 && n.fract() == 0.0 && n <= 9e15).then_some(n as u64)
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    const WHAT: &'static str = "a whole number below 2^32, not negative";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        u64::read(value).and_then(|n| n.try_into().ok())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const WHAT: &'static str = "true or false";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const WHAT: &'static str = "a text that is not empty";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().filter(|s| !s.trim().is_empty()).map(str::to_owned)
    }
    fn show(&self) -> String {
        self.clone()
    }
}

impl<T: Value> Value for Vec<T> {
    const WHAT: &'static str = "a list";
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_array()?.iter().map(|v| T::read(v.get_ref())).collect()
    }
    fn show(&self) -> String {
        let all: Vec<String> = self.iter().map(T::show).collect();
        if all.len() > 6 {
            format!("[{}, … {}] ({})", all[..3].join(", "), all[all.len() - 1], all.len())
        } else {
            format!("[{}]", all.join(", "))
        }
    }
}
