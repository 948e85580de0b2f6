//! Values of an experiment file that check themselves: the bounds that the parser holds are the bounds of the schema.
//!
//! Every check happens while a value is read, so that the caret of an error stands under the value itself.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, de};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The most entries of a list.
const LIST_MAX: usize = 1000;

/// A whole number from `LO` to `HI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Int<const LO: u64, const HI: u64>(pub u64);

impl<const LO: u64, const HI: u64> Int<LO, HI> {
    /// The value; `HI` must fit.
    pub(crate) fn u32(self) -> u32 {
        const { assert!(HI <= u32::MAX as u64) };
        self.0 as u32
    }
}

impl<'de, const LO: u64, const HI: u64> Deserialize<'de> for Int<LO, HI> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_u64(IntVisitor::<LO, HI>).map(Self)
    }
}

struct IntVisitor<const LO: u64, const HI: u64>;

impl<const LO: u64, const HI: u64> Visitor<'_> for IntVisitor<LO, HI> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {LO} to {HI}")
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<u64, E> {
        if (LO..=HI).contains(&v) { Ok(v) } else { Err(E::invalid_value(Unexpected::Unsigned(v), &self)) }
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<u64, E> {
        u64::try_from(v).map_err(|_| E::invalid_value(Unexpected::Signed(v), &self)).and_then(|v| self.visit_u64(v))
    }

    fn visit_i128<E: de::Error>(self, v: i128) -> Result<u64, E> {
        Err(E::invalid_value(Unexpected::Other(&v.to_string()), &self))
    }

    fn visit_u128<E: de::Error>(self, v: u128) -> Result<u64, E> {
        Err(E::invalid_value(Unexpected::Other(&v.to_string()), &self))
    }
}

impl<const LO: u64, const HI: u64> JsonSchema for Int<LO, HI> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Int_{LO}_{HI}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": LO, "maximum": HI })
    }
}

/// Bounds of a [`Real`].
pub(crate) trait Bounds {
    /// Smallest value.
    const LO: f64;
    /// Whether the smallest value itself is left out.
    const OPEN: bool;
    /// Largest value.
    const HI: f64;
    /// What an error says was expected.
    const WHAT: &'static str;
}

/// A finite number within the bounds of `B`; a whole number will do.
pub(crate) struct Real<B>(pub f64, PhantomData<B>);

impl<B> PartialEq for Real<B> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<'de, B: Bounds> Deserialize<'de> for Real<B> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_f64(RealVisitor::<B>(PhantomData)).map(|x| Self(x, PhantomData))
    }
}

struct RealVisitor<B>(PhantomData<B>);

impl<B: Bounds> Visitor<'_> for RealVisitor<B> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(B::WHAT)
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<f64, E> {
        // Written so that NaN fails.
        let inside = v <= B::HI && if B::OPEN { v > B::LO } else { v >= B::LO };
        // A negative zero would name its cells differently from a zero.
        if inside { Ok(v + 0.0) } else { Err(E::invalid_value(Unexpected::Float(v), &self)) }
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<f64, E> {
        self.visit_f64(v as f64)
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<f64, E> {
        self.visit_f64(v as f64)
    }
}

impl<B: Bounds> JsonSchema for Real<B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        B::WHAT.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let low = if B::OPEN { "exclusiveMinimum" } else { "minimum" };
        json_schema!({ "type": "number", low: B::LO, "maximum": B::HI })
    }
}

/// Bounds of a temperature.
pub(crate) struct Heat;

impl Bounds for Heat {
    const LO: f64 = 0.0;
    const OPEN: bool = false;
    const HI: f64 = 10.0;
    const WHAT: &'static str = "a temperature from 0 to 10";
}

/// Bounds of a probability mass to keep.
pub(crate) struct Mass;

impl Bounds for Mass {
    const LO: f64 = 0.0;
    const OPEN: bool = true;
    const HI: f64 = 1.0;
    const WHAT: &'static str = "a probability above 0, at most 1";
}

/// Bounds of a time in ms.
pub(crate) struct Millis;

impl Bounds for Millis {
    const LO: f64 = 0.0;
    const OPEN: bool = true;
    const HI: f64 = 1e9;
    const WHAT: &'static str = "a time in ms above 0";
}

/// A list with at least one entry and no entry twice.
#[derive(Debug)]
pub(crate) struct List<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(ListVisitor(PhantomData)).map(Self)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + PartialEq> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, as in [1, 2]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = seq.next_element_seed(Fresh(&out))? {
            out.push(item);
        }
        if out.is_empty() { Err(A::Error::custom("the list is empty; it needs at least one entry")) } else { Ok(out) }
    }
}

/// Reads one entry and compares it with those before it. The detour over a newtype puts the caret under the entry.
struct Fresh<'a, T>(&'a [T]);

impl<'de, T: Deserialize<'de> + PartialEq> DeserializeSeed<'de> for Fresh<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        d.deserialize_newtype_struct("entry", self)
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Visitor<'de> for Fresh<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        let item = T::deserialize(d)?;
        if self.0.len() == LIST_MAX {
            return Err(D::Error::custom(format!("more than {LIST_MAX} entries")));
        }
        if self.0.contains(&item) { Err(D::Error::custom("this value is listed twice")) } else { Ok(item) }
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let items = g.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": LIST_MAX, "uniqueItems": true })
    }
}

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
    /// Which rounds are kept.
    RecordText,
    "^(summary|all|sample:[1-9][0-9]{0,8})$",
    "`summary`, `all` or `sample:N` (every N-th round, N ≥ 1)",
    |s| record(s).is_some()
);

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
