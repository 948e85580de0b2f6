//! The sections of a priced run as they are written.

use super::super::text::{Label, Line, PathText};
use super::super::value::{Bounds, Int, Real};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use std::fmt;

/// Bounds of a share of the overheads.
pub(crate) struct Scale;

impl Bounds for Scale {
    const LO: f64 = 0.0;
    const OPEN: bool = false;
    const HI: f64 = 1.0;
    const WHAT: &'static str = "a number from 0 (bound) to 1 (table)";
}

/// Bounds of an arrival rate.
pub(crate) struct Rate;

impl Bounds for Rate {
    // Rarer requests never meet: there is nothing to simulate.
    const LO: f64 = 0.001;
    const OPEN: bool = false;
    const HI: f64 = 1e6;
    const WHAT: &'static str = "requests per second from 0.001 to 1000000";
}

/// Bounds of a τ.
pub(crate) struct Tau;

impl Bounds for Tau {
    const LO: f64 = 1.0;
    const OPEN: bool = true;
    const HI: f64 = 65.0;
    const WHAT: &'static str = "tokens per verify step above 1 and at most 32, bonus included";
}

/// Kinds of cost tiers.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Tier {
    Bound,
    Table,
    Calibrated,
}

/// What becomes of prompts.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Prefill {
    Charged,
    Excluded,
}

/// The deployment whose steps are priced; backend sim.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Deployment {
    /// Deployment profile: engine and version, ranks, graphs, all-reduce. `treeline profiles` lists them; or a TOML file.
    pub engine: PathText,
    /// Hardware profile, or a TOML file; the deployment's own unless given.
    pub hardware: Option<PathText>,
    /// Model profile, a TOML file, or a `config.json`.
    pub model: PathText,
    /// Drafter profile, or a TOML file.
    pub drafter: PathText,
    /// Which figures price a step: bound (a lower limit), table (measured op tables) or calibrated (this project's engine).
    pub tier: Tier,
    /// What `treeline calibrate` measured; tier calibrated.
    pub calibration: Option<PathText>,
    /// From bound (0) to table (1); 1 unless given. Tier table.
    pub overhead_scale: Option<Real<Scale>>,
    /// Whether queries outside a table's domain are answered, and flagged; false unless given.
    pub allow_extrapolation: Option<bool>,
    /// How distinct experts are counted: a shipped model of them, or a TOML file. Mixtures of experts need it.
    pub experts: Option<PathText>,
    /// Whether prompts of joining requests take time.
    pub prefill: Prefill,
}

/// One source of acceptance; backend sim with a deployment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Acceptance {
    /// Names it in results.
    pub name: Label,
    /// A recorded trace, replayed exactly.
    pub trace: Option<PathText>,
    /// Whether the trace is of other models than those that are priced, and stands in for theirs; false unless given.
    pub stand_in: Option<bool>,
    /// A shipped drafter–target process, or a TOML file.
    pub process: Option<PathText>,
    /// The τ that the process is scaled to: that of the drafter's whole chain, or of the policy and budget that are named.
    pub tau: Option<AnchorText>,
    /// Whether the process's uncertain parameters are moved to their low and high values too; true unless given.
    pub variants: Option<bool>,
}

/// A published τ.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum AnchorText {
    /// Of the drafter's whole chain.
    Chain(Real<Tau>),
    /// Of a policy and budget.
    At(AnchorTable),
}

/// How the steps of an anchor were drafted.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum AnchorPolicy {
    Chain,
    BestFirst,
}

/// A published τ of a policy and budget.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct AnchorTable {
    /// Tokens per verify step, bonus included.
    pub value: Real<Tau>,
    /// How the steps were drafted.
    pub policy: AnchorPolicy,
    /// Nodes without the root.
    pub budget: Int<1, 4096>,
}

impl<'de> Deserialize<'de> for AnchorText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = AnchorText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a table as in { value = 6.4, policy = \"best-first\", budget = 16 }")
            }

            fn visit_f64<E: de::Error>(self, v: f64) -> Result<AnchorText, E> {
                Real::deserialize(v.into_deserializer()).map(AnchorText::Chain)
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<AnchorText, E> {
                self.visit_f64(v as f64)
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<AnchorText, E> {
                self.visit_f64(v as f64)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnchorText, A::Error> {
                AnchorTable::deserialize(MapAccessDeserializer::new(map)).map(AnchorText::At)
            }
        }
        d.deserialize_any(Either)
    }
}

/// How requests arrive.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Arrivals {
    /// `closed`: a new one as soon as one ends.
    Closed(ClosedText),
    /// By a Poisson process.
    Poisson(Poisson),
}

/// The word `closed`.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum ClosedText {
    Closed,
}

/// Arrivals at a rate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Poisson {
    /// Requests per second.
    pub rate: Real<Rate>,
}

impl<'de> Deserialize<'de> for Arrivals {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Arrivals;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"closed\", or a table as in { rate = 4.5 }")
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Arrivals, E> {
                ClosedText::deserialize(v.into_deserializer()).map(Arrivals::Closed)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Arrivals, A::Error> {
                Poisson::deserialize(MapAccessDeserializer::new(map)).map(Arrivals::Poisson)
            }
        }
        d.deserialize_any(Either)
    }
}

/// Today's practice, which a run's answers are compared with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Reference {
    /// One of the file's policies.
    pub policy: Line,
    /// One of its budgets.
    pub budget: Int<1, 4096>,
}

/// How requests are split.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Split {
    Halves,
}
