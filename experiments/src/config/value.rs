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
    /// Above 0, nothing smaller than this; 0 where there is no such gap.
    const GAP: f64 = 0.0;
    /// What an error says was expected.
    const WHAT: &'static str;
}

/// A finite number within the bounds of `B`; a whole number will do.
pub(crate) struct Real<B>(pub f64, PhantomData<B>);

/// Numbers that engines, which compute in f32, cannot tell apart are the same.
impl<B> PartialEq for Real<B> {
    fn eq(&self, other: &Self) -> bool {
        self.0 as f32 == other.0 as f32
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
        let inside = v <= B::HI && if B::OPEN { v > B::LO } else { v >= B::LO } && !(v > 0.0 && v < B::GAP);
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
        if B::GAP > 0.0 {
            let parts = [json_schema!({ "const": B::LO }), json_schema!({ "minimum": B::GAP, "maximum": B::HI })];
            return json_schema!({ "type": "number", "anyOf": parts });
        }
        json_schema!({ "type": "number", low: B::LO, "maximum": B::HI })
    }
}

/// Bounds of a temperature.
pub(crate) struct Heat;

impl Bounds for Heat {
    const LO: f64 = 0.0;
    const OPEN: bool = false;
    const HI: f64 = 10.0;
    // What is colder is argmax to every digit that a report shows: it would stand there as 0.
    const GAP: f64 = 0.01;
    const WHAT: &'static str = "a temperature of 0, or from 0.01 to 10";
}

/// Bounds of a probability mass to keep.
pub(crate) struct Mass;

impl Bounds for Mass {
    const LO: f64 = 0.0;
    const OPEN: bool = true;
    const HI: f64 = 1.0;
    const WHAT: &'static str = "a probability above 0, at most 1";
}

/// Bounds of a share of something.
pub(crate) struct Share;

impl Bounds for Share {
    const LO: f64 = 0.0;
    const OPEN: bool = false;
    const HI: f64 = 0.99;
    const WHAT: &'static str = "a share from 0 to 0.99";
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
