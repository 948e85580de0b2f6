//! Strings of an experiment file that check themselves.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A string that a pattern admits.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $what:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name(pub String);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct TextVisitor;
                impl Visitor<'_> for TextVisitor {
                    type Value = String;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: de::Error>(self, v: &str) -> Result<String, E> {
                        let ok: fn(&str) -> bool = $ok;
                        if ok(v) { Ok(v.to_owned()) } else { Err(E::invalid_value(Unexpected::Str(v), &self)) }
                    }
                }
                d.deserialize_str(TextVisitor).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

text!(
    /// A name that can name a folder.
    Name,
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "a name of 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit",
    |s| s.len() <= 64
        && s.starts_with(|c: char| c.is_ascii_alphanumeric())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
);

text!(
    /// A path; relative ones start from the experiment file's folder.
    PathText,
    "^[^\\u0000-\\u001f]{1,4096}$",
    "a path",
    |s| !s.is_empty() && s.len() <= 4096 && !s.chars().any(|c| c < ' ')
);

text!(
    /// Free text on one line.
    Line,
    "^[^\\u0000-\\u001f]{1,1000}$",
    "one line of text",
    |s| !s.is_empty() && s.len() <= 1000 && !s.chars().any(|c| c < ' ')
);

text!(
    /// What results call a thing, short enough for a table and no path.
    Label,
    "^[^ .\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029/\\\\][^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029/\\\\]{0,99}$",
    "a name of 1 to 100 characters on one line, without `/` and `\\`, the first neither `.` nor a space",
    |s| label(s)
);

text!(
    /// Which rounds are kept.
    RecordText,
    "^(summary|all|sample:[1-9][0-9]{0,8})$",
    "`summary`, `all` or `sample:N` (every N-th round, N ≥ 1)",
    |s| record(s).is_some()
);

/// Whether results may call something so.
fn label(s: &str) -> bool {
    let plain = |c: char| !c.is_control() && !['/', '\\', '\u{2028}', '\u{2029}'].contains(&c);
    (1..=100).contains(&s.chars().count()) && !s.starts_with(['.', ' ']) && s.chars().all(plain)
}

/// Parses the value of `record`.
pub(crate) fn record(s: &str) -> Option<super::Record> {
    match s {
        "summary" => Some(super::Record::Summary),
        "all" => Some(super::Record::All),
        _ => {
            let digits = s.strip_prefix("sample:")?;
            let plain = digits.len() <= 9 && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok())?.map(super::Record::Sample)
        }
    }
}
