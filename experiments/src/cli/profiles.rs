//! `treeline profiles`: what ships, and where every figure of it comes from.

use super::Usage;
use super::out::Out;
use crate::config::suggest::nearest;
use serde_json::{Value, json};
use std::path::Path;
use treeline_sim::profile::Sources;
use treeline_sim::{accept, experts, profile};

/// Names of one kind.
struct Kind {
    /// The key that names one in an experiment.
    key: &'static str,
    /// For people.
    title: &'static str,
    names: Vec<String>,
}

fn kinds() -> Vec<Kind> {
    let s = profile::shipped();
    let kind = |key, title, names: Vec<&'static str>| Kind {
        key,
        title,
        names: names.into_iter().map(str::to_owned).collect(),
    };
    vec![
        kind("deployment.engine", "deployments", s.deployments),
        kind("deployment.hardware", "hardware", s.hardware),
        kind("deployment.model", "models", s.models),
        kind("deployment.drafter", "drafters", s.drafters),
        kind("deployment.experts", "distinct experts", experts::shipped()),
        Kind { key: "acceptance.process", title: "acceptance processes", names: accept::shipped() },
    ]
}

/// Lists what ships, or shows one with a source per field.
pub(super) fn run(name: Option<&str>, json: bool, out: &Out) -> anyhow::Result<()> {
    match name {
        None => list(json, out),
        Some(name) => show(name, json, out),
    }
}

fn list(json: bool, out: &Out) -> anyhow::Result<()> {
    let kinds = kinds();
    if json {
        let all: serde_json::Map<String, Value> = kinds.iter().map(|k| (k.key.to_owned(), json!(k.names))).collect();
        return out.json(&all);
    }
    let mut text = String::new();
    for k in &kinds {
        text.push_str(&format!("{}  {}\n", out.bold(k.title), out.dim(&format!("`{}` of an experiment", k.key))));
        for name in &k.names {
            text.push_str(&format!("    {name}\n"));
        }
        text.push('\n');
    }
    text.push_str(&out.dim(
        "`treeline profiles NAME` shows one with a source per field; a path in place of a name is a file of yours.",
    ));
    out.data(&text)
}

/// A profile, field by field.
enum Shown {
    /// Fields with their sources.
    Fields(Sources),
    /// A file, which has the sources in it.
    Text(String),
}

/// Looks a name up among all kinds.
fn find(name: &str) -> anyhow::Result<Option<(&'static str, Shown)>> {
    let here = Path::new(".");
    let Some(kind) = kinds().into_iter().find(|k| k.names.iter().any(|n| n == name)) else { return Ok(None) };
    let shown = match kind.key {
        "deployment.engine" => Shown::Fields(profile::deployment(name, here)?.sources),
        "deployment.hardware" => Shown::Fields(profile::hardware(name, here)?.sources),
        "deployment.model" => Shown::Fields(profile::model(name, here)?.sources),
        "deployment.drafter" => Shown::Fields(profile::drafter(name, here)?.sources),
        "deployment.experts" => Shown::Fields(experts::experts(name, here)?.1),
        _ => Shown::Text(accept::process(name, here)?.to_toml()?),
    };
    Ok(Some((kind.title, shown)))
}

fn show(name: &str, json: bool, out: &Out) -> anyhow::Result<()> {
    let Some((title, shown)) = find(name)? else {
        let all: Vec<String> = kinds().into_iter().flat_map(|k| k.names).collect();
        let hint = match nearest(name, all.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`treeline profiles` lists what ships".to_owned(),
        };
        return Err(Usage(format!("nothing called `{name}` ships: {hint}")).into());
    };
    match (shown, json) {
        (Shown::Text(text), false) => out.data(&text),
        (Shown::Text(text), true) => out.json(&json!({ "name": name, "kind": title, "toml": text })),
        (Shown::Fields(sources), true) => {
            let fields: Vec<Value> =
                sources.iter().map(|o| json!({ "key": o.key, "value": o.value, "source": o.source })).collect();
            out.json(&json!({ "name": name, "kind": title, "fields": fields }))
        }
        (Shown::Fields(sources), false) => {
            let mut text = format!("{}  {}\n", out.bold(name), out.dim(title));
            for o in sources.iter() {
                text.push_str(&format!("    {} = {}\n        {}\n", out.green(&o.key), o.value, out.dim(&o.source)));
            }
            out.data(&text)
        }
    }
}
