//! The registry: from a `kind` and its parameters to a policy.

use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;
use treeline_core::{Limits, Needs, TreePolicy};

/// The configuration of a policy: what stands beside `kind` in an experiment file. Deny unknown fields, document every
/// field, and give every default a documented value: the resolved file prints them all.
pub trait PolicyConfig: Serialize + DeserializeOwned + JsonSchema + 'static {
    /// The `kind` used in files and in results.
    const KIND: &'static str;
    /// One line for `treeline policies`.
    const ABOUT: &'static str;

    /// A typical configuration; all defaults where no field is required.
    fn example() -> Self;

    /// The policy for a run with these limits.
    ///
    /// # Errors
    /// [`BuildError::Value`] names the key whose value cannot work.
    fn build(self, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError>;
}

/// The name that plain decoding has in results: no policy may have it.
pub const PLAIN: &str = "plain";

/// Why there is no policy.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BuildError {
    /// Nothing is registered under this name.
    #[error("unknown policy kind `{kind}`; known kinds: {known}")]
    UnknownKind {
        /// What was asked for.
        kind: String,
        /// What there is, comma-separated.
        known: String,
    },
    /// The name cannot be that of a file.
    #[error("`{0}` is no kind of policy: results name files by it, so use 1 to 64 letters, digits, `_` or `-`")]
    Name(String),
    /// The name is in use.
    #[error("a policy of kind `{0}` is registered already")]
    Taken(String),
    /// The parameters do not have the form that the policy documents.
    #[error("policy `{kind}`: {}{message}", at(path))]
    Params {
        /// The policy.
        kind: String,
        /// Path of the key, empty for the table itself.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// A value is out of range or does not fit another one.
    #[error("policy `{kind}`: `{key}`: {why}")]
    Value {
        /// The policy.
        kind: String,
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("`{path}`: ") }
}

impl BuildError {
    /// A value that cannot work.
    #[must_use]
    pub fn value(kind: &str, key: &str, why: impl Into<String>) -> Self {
        Self::Value { kind: kind.into(), key: key.into(), why: why.into() }
    }
}

type Resolve = fn(&Value) -> Result<Value, BuildError>;
type Build = fn(&Value, &Limits) -> Result<Box<dyn TreePolicy>, BuildError>;

#[derive(Clone)]
struct Entry {
    kind: &'static str,
    about: &'static str,
    schema: fn() -> Schema,
    example: fn() -> Result<Value, BuildError>,
    resolve: Resolve,
    build: Build,
}

/// One parameter of a policy, as `treeline policies` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// The key.
    pub name: String,
    /// JSON type(s), the words that may be chosen from, or the name of a nested type.
    pub ty: String,
    /// Whether it must be given.
    pub required: bool,
    /// What holds when it is not given.
    pub default: Option<Value>,
    /// The field's documentation.
    pub about: String,
}

/// One policy, as `treeline policies` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listing {
    /// The `kind`.
    pub kind: &'static str,
    /// One line.
    pub about: &'static str,
    /// What its typical configuration needs under the limits given.
    pub needs: Needs,
    /// Its parameters in declaration order.
    pub parameters: Vec<Parameter>,
}

/// The policies that a program knows: explicit, no global.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Registry {
    /// No policy at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The policies of this crate.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        registry.add::<crate::chain::ChainConfig>();
        registry.add::<crate::best_first::BestFirstConfig>();
        registry.add::<crate::spine_first::SpineFirstConfig>();
        registry.add::<crate::top_k::TopKConfig>();
        registry.add::<crate::adaptive::AdaptiveConfig>();
        registry.add::<crate::cost_aware::CostAwareConfig>();
        registry.add::<crate::cost_aware::BatchWideConfig>();
        registry.add::<crate::sequoia::SequoiaConfig>();
        registry.add::<crate::opt_tree::OptTreeConfig>();
        registry.add::<crate::spec_exec::SpecExecConfig>();
        registry.add::<crate::talon::TalonConfig>();
        registry
    }

    /// Adds a policy.
    ///
    /// # Errors
    /// [`BuildError::Taken`] when its kind is registered already, or is [`PLAIN`]; [`BuildError::Name`] when results could not
    /// name files by it.
    pub fn register<C: PolicyConfig>(&mut self) -> Result<(), BuildError> {
        let plain = |c: char| c.is_ascii_graphic() && !"/\\".contains(c);
        if C::KIND.is_empty() || C::KIND.len() > 64 || C::KIND.starts_with('.') || !C::KIND.chars().all(plain) {
            return Err(BuildError::Name(C::KIND.into()));
        }
        if C::KIND == PLAIN || self.entries.iter().any(|e| e.kind == C::KIND) {
            return Err(BuildError::Taken(C::KIND.into()));
        }
        self.add::<C>();
        Ok(())
    }

    fn add<C: PolicyConfig>(&mut self) {
        self.entries.push(Entry {
            kind: C::KIND,
            about: C::ABOUT,
            schema: || schema_for!(C),
            example: || to_value(&C::example()),
            resolve: |params| to_value(&parse::<C>(params)?),
            build: |params, limits| parse::<C>(params)?.build(limits),
        });
    }

    fn entry(&self, kind: &str) -> Result<&Entry, BuildError> {
        self.entries.iter().find(|e| e.kind == kind).ok_or_else(|| BuildError::UnknownKind {
            kind: kind.into(),
            known: self.kinds().collect::<Vec<_>>().join(", "),
        })
    }

    /// The kinds in order of registration.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.entries.iter().map(|e| e.kind)
    }

    /// Checks `params` (a table; a key `kind` in it is passed over) and returns them with every default filled in.
    ///
    /// # Errors
    /// An unknown kind or key, a wrong type, a missing key.
    pub fn resolve(&self, kind: &str, params: &Value) -> Result<Value, BuildError> {
        (self.entry(kind)?.resolve)(params)
    }

    /// The policy `kind` with `params` (as for [`Registry::resolve`]) for a run with these limits.
    ///
    /// # Errors
    /// As [`Registry::resolve`], and a value that cannot work.
    pub fn build(&self, kind: &str, params: &Value, limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        (self.entry(kind)?.build)(params, limits)
    }

    /// A typical configuration of `kind`, every value spelled out.
    ///
    /// # Errors
    /// An unknown kind.
    pub fn example(&self, kind: &str) -> Result<Value, BuildError> {
        (self.entry(kind)?.example)()
    }

    /// The JSON schema of a policy's parameters.
    ///
    /// # Errors
    /// An unknown kind.
    pub fn schema(&self, kind: &str) -> Result<Schema, BuildError> {
        Ok((self.entry(kind)?.schema)())
    }

    /// Every policy with its needs under `limits` and its parameters.
    ///
    /// # Errors
    /// What building a policy's own example gives: a fault of that policy.
    pub fn list(&self, limits: &Limits) -> Result<Vec<Listing>, BuildError> {
        let list = |e: &Entry| {
            let needs = (e.build)(&(e.example)()?, limits)?.needs(limits);
            Ok(Listing { kind: e.kind, about: e.about, needs, parameters: parameters((e.schema)().as_value()) })
        };
        self.entries.iter().map(list).collect()
    }
}

fn to_value<C: PolicyConfig>(config: &C) -> Result<Value, BuildError> {
    serde_json::to_value(config).map_err(|e| BuildError::Params {
        kind: C::KIND.into(),
        path: String::new(),
        message: e.to_string(),
    })
}

fn parse<C: PolicyConfig>(params: &Value) -> Result<C, BuildError> {
    let mut params = params.clone();
    if let Value::Object(table) = &mut params {
        table.shift_remove("kind");
    }
    serde_path_to_error::deserialize(params).map_err(|e| {
        let path = e.path().to_string();
        BuildError::Params {
            kind: C::KIND.into(),
            path: if path == "." { String::new() } else { path },
            message: e.into_inner().to_string(),
        }
    })
}

fn parameters(schema: &Value) -> Vec<Parameter> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
    properties
        .iter()
        .map(|(name, property)| Parameter {
            name: name.clone(),
            ty: type_name(property, schema),
            required: required.iter().any(|r| r.as_str() == Some(name)),
            default: property.get("default").cloned(),
            about: text(property.get("description")),
        })
        .collect()
}

/// `integer`, `list of integer`, `"request" or "batch"`, or the name of a nested type. `null` is left out: a TOML file has
/// none, and a parameter that may be null is one that need not be given.
fn type_name(property: &Value, schema: &Value) -> String {
    let join = |any: &Vec<Value>| {
        let names = any.iter().map(|p| type_name(p, schema)).filter(|n| n != "null");
        names.collect::<Vec<_>>().join(" or ")
    };
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let words = schema.pointer(reference.trim_start_matches('#')).and_then(|d| d.get("oneOf")?.as_array());
        return words.map_or_else(|| reference.rsplit('/').next().unwrap_or(reference).to_owned(), join);
    }
    if let Some(any) = property.get("anyOf").and_then(Value::as_array) {
        return join(any);
    }
    if let Some(word) = property.get("const") {
        return word.to_string();
    }
    let name = |t: &str| match (t, property.get("items")) {
        ("array", Some(items)) => format!("list of {}", type_name(items, schema)),
        _ => t.to_owned(),
    };
    match property.get("type") {
        Some(Value::String(t)) => name(t),
        Some(Value::Array(types)) => {
            let names = types.iter().filter_map(Value::as_str).filter(|t| *t != "null").map(name);
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}
