//! `[[policy]]` tables: kind and budgets are read here, everything else belongs to the policy's own config.

use super::diagnostic::{ConfigError, Doc, humanise, list};
use super::file::Budget;
use super::suggest::nearest;
use super::types::PolicySpec;
use super::value::List;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use treeline_core::{Limits, Needs};
use treeline_policies::{BuildError, Registry};

/// Reads all `[[policy]]` tables.
pub(crate) fn read(
    doc: &Doc<'_>,
    policies: Option<Spanned<DeValue<'_>>>,
    registry: &Registry,
) -> Result<Vec<PolicySpec>, ConfigError> {
    let Some(policies) = policies else {
        let hint = "name at least one policy: [[policy]] with kind and budget".to_owned();
        return Err(doc.error(0..0, "missing `[[policy]]`", Some(hint)));
    };
    let span = policies.span();
    let DeValue::Array(tables) = policies.into_inner() else {
        return Err(doc.error(span, "`policy` is a list of tables", Some("write [[policy]]".to_owned())));
    };
    if tables.is_empty() {
        return Err(doc.error(span, "the list is empty; it needs at least one policy", None));
    }
    let mut out: Vec<PolicySpec> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let span = table.span();
        let DeValue::Table(table) = table.into_inner() else {
            return Err(doc.error(span, "a policy is a table", Some("write [[policy]]".to_owned())));
        };
        let spec = one(doc, index, table, span, registry)?;
        let twin = |p: &&PolicySpec| p.kind == spec.kind && p.params == spec.params;
        if let Some(twin) = out.iter().find(twin)
            && let Some(at) = spec.budgets.iter().position(|b| twin.budgets.contains(b))
        {
            let message = format!("policy `{}` with budget {} is listed twice", spec.kind, spec.budgets[at]);
            return Err(doc.error(doc.value(&format!("policy.{index}.budget.{at}")), message, None));
        }
        out.push(spec);
    }
    Ok(out)
}

fn one(
    doc: &Doc<'_>,
    index: usize,
    mut table: DeTable<'_>,
    span: std::ops::Range<usize>,
    registry: &Registry,
) -> Result<PolicySpec, ConfigError> {
    let missing = |key: &str| doc.error(span.clone(), format!("missing key `{key}` of this policy"), None);
    let kind = table.remove("kind").ok_or_else(|| missing("kind"))?;
    let Some(name) = kind.get_ref().as_str().map(str::to_owned) else {
        return Err(doc.error(kind.span(), format!("expected a string, found {}", kind.get_ref().type_str()), None));
    };
    let kinds: Vec<&str> = registry.kinds().collect();
    if !kinds.contains(&name.as_str()) {
        let hint = match nearest(&name, kinds.iter().copied()) {
            _ if name == "plain" => {
                "plain decoding is the baseline of every experiment; `baseline = false` turns it off".to_owned()
            }
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let known = list(&kinds);
                format!("registered policies: {known}; one of your own is known to its crate's program only")
            }
        };
        let shown: String = name.chars().take(80).collect();
        return Err(doc.error(kind.span(), format!("unknown policy `{shown}`"), Some(hint)));
    }
    let budget = table.remove("budget").ok_or_else(|| missing("budget"))?;
    let budgets = List::<Budget>::deserialize(ValueDeserializer::from(budget)).map_err(|e| doc.explain(&e, &[]))?;

    let mut params = Map::new();
    for (key, value) in table {
        params.insert(key.get_ref().to_string(), json(doc, &value)?);
    }
    let params = registry.resolve(&name, &Value::Object(params)).map_err(|e| refused(doc, index, &e))?;
    Ok(PolicySpec { kind: name, budgets: budgets.0.iter().map(|b| b.u32()).collect(), params })
}

/// A policy's own complaint, with the caret under the key or value that it is about.
fn refused(doc: &Doc<'_>, index: usize, e: &BuildError) -> ConfigError {
    let (key, message, hint) = match e {
        BuildError::Params { path, message, .. } => {
            let (text, hint) = humanise(message, &["kind", "budget"]);
            match message.split('`').nth(1) {
                Some(key) if text.starts_with("unknown key") => (key.to_owned(), text, hint),
                _ => (path.replace('[', ".").replace(']', ""), text, hint),
            }
        }
        BuildError::Value { key, why, .. } => (key.clone(), format!("`{key}`: {why}"), None),
        other => (String::new(), other.to_string(), None),
    };
    // A default that does not fit the rest of the table has no place in the file: the policy's kind stands for it.
    let path = format!("policy.{index}.{key}");
    let at = match () {
        () if key.is_empty() || !doc.has(&path) => doc.value(&format!("policy.{index}.kind")),
        () if message.starts_with("unknown key") => doc.key(&path),
        () => doc.value(&path),
    };
    doc.error(at, format!("policy {}: {message}", index + 1), hint)
}

/// Builds every policy once, at its smallest budget, so that a value that cannot work is refused before anything runs.
/// Returns what each needs.
pub(crate) fn trial(
    doc: &Doc<'_>,
    policies: &[PolicySpec],
    registry: &Registry,
    limits: &Limits,
) -> Result<Vec<Needs>, ConfigError> {
    let one = |(index, p): (usize, &PolicySpec)| {
        let budget = p.budgets.iter().copied().min().unwrap_or(1);
        let limits = Limits { budget, ..*limits };
        registry.build(&p.kind, &p.params, &limits).map(|p| p.needs(&limits)).map_err(|e| refused(doc, index, &e))
    };
    policies.iter().enumerate().map(one).collect()
}

/// A TOML value as JSON. What JSON cannot say is refused.
fn json(doc: &Doc<'_>, value: &Spanned<DeValue<'_>>) -> Result<Value, ConfigError> {
    let refuse = |why: &str| doc.error(value.span(), why, None);
    Ok(match value.get_ref() {
        DeValue::String(s) => Value::String(s.to_string()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Integer(i) => {
            let (digits, radix) = (i.as_str(), i.radix());
            match (i64::from_str_radix(digits, radix), u64::from_str_radix(digits, radix)) {
                (Ok(i), _) => i.into(),
                (_, Ok(u)) => u.into(),
                _ => return Err(refuse("this number is too large")),
            }
        }
        DeValue::Float(x) => match x.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            Some(x) => Value::Number(x),
            None => return Err(refuse("expected a finite number")),
        },
        DeValue::Datetime(_) => return Err(refuse("a date is no parameter of a policy")),
        DeValue::Array(items) => Value::Array(items.iter().map(|v| json(doc, v)).collect::<Result<_, _>>()?),
        DeValue::Table(table) => {
            let mut out = Map::new();
            for (key, value) in table {
                out.insert(key.get_ref().to_string(), json(doc, value)?);
            }
            Value::Object(out)
        }
    })
}
