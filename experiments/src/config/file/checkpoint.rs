//! Where a model comes from, as it is written.

use crate::config::text::PathText;
use crate::config::value::Int;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use std::fmt;

/// Where a model comes from.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Checkpoint {
    /// Folder of the checkpoint.
    Folder(PathText),
    /// Weights that mean nothing, at real shapes.
    Synthetic(Synthetic),
}

/// Weights that mean nothing, at real shapes: one rank's work on one GPU.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Synthetic {
    /// `kimi-k2.6` (as a drafter: its DFlash drafter), or a folder with a `config.json`.
    pub synthetic: PathText,
    /// The first so many layers; all of them unless given. Target only.
    pub layers: Option<Int<1, 1000>>,
    /// GPUs that would hold the model together; 1 unless given. Target only.
    pub ranks: Option<Int<1, 64>>,
    /// Whose work is run; 0 unless given. Target only.
    pub rank: Option<Int<0, 63>>,
}

impl<'de> Deserialize<'de> for Checkpoint {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Checkpoint;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or a table as in { synthetic = \"kimi-k2.6\" }")
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Checkpoint, E> {
                PathText::deserialize(v.into_deserializer()).map(Checkpoint::Folder)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Checkpoint, A::Error> {
                Synthetic::deserialize(MapAccessDeserializer::new(map)).map(Checkpoint::Synthetic)
            }
        }
        d.deserialize_any(Either)
    }
}
