//! `treeline profiles`: what ships, and where every figure of it comes from.

use super::Usage;
use super::out::Out;
use crate::config::suggest::nearest;
use serde_json::{Value, json};
use std::path::Path;
use treeline_sim::profile::{Kind, Sources};
use treeline_sim::{accept, experts, profile};

/// Names of one kind.
struct Names {
    /// The key that names one in an experiment.
    key: &'static str,
    /// For people.
    title: &'static str,
    names: Vec<String>,
}

fn kinds() -> Vec<Names> {
    let s = profile::shipped();
    let kind = |key, title, names: Vec<&'static str>| Names {
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
        Names { key: "acceptance.process", title: "acceptance processes", names: accept::shipped() },
    ]
}

/// Lists what ships, or shows one, or a file of the user's, with a source per field.
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
    /// Fields with their sources, and what else is to be said: (key, lines).
    Fields(Sources, Vec<(&'static str, Vec<String>)>),
    /// A file, which has the sources in it.
    Text(String),
}

/// A kind by the key that names it in an experiment.
fn read(key: &str, name: &str) -> anyhow::Result<Shown> {
    let here = Path::new("");
    Ok(match key {
        "deployment.engine" => {
            let d = profile::deployment(name, here)?;
            let said = vec![("not_modelled", d.not_modelled.clone()), ("other_tables", d.borrowed())];
            Shown::Fields(d.sources, said)
        }
        "deployment.hardware" => Shown::Fields(profile::hardware(name, here)?.sources, Vec::new()),
        "deployment.model" => Shown::Fields(profile::model(name, here)?.sources, Vec::new()),
        "deployment.drafter" => Shown::Fields(profile::drafter(name, here)?.sources, Vec::new()),
        "deployment.experts" => Shown::Fields(experts::experts(name, here)?.1, Vec::new()),
        _ => Shown::Text(accept::process(name, here)?.to_toml()?),
    })
}

/// The key that a user's file would stand under.
fn key_of(file: &Path) -> anyhow::Result<&'static str> {
    Ok(match Kind::of(file)? {
        Kind::Deployment => "deployment.engine",
        Kind::Hardware => "deployment.hardware",
        Kind::Model => "deployment.model",
        Kind::Drafter => "deployment.drafter",
        Kind::Experts => "deployment.experts",
        Kind::Process => "acceptance.process",
    })
}

/// Looks a name up among all kinds; a path is read and checked.
fn find(name: &str) -> anyhow::Result<Option<(&'static str, Shown)>> {
    let kinds = kinds();
    let own = profile::is_path(name);
    let kind = match own {
        true => key_of(Path::new(name)).map(|key| kinds.iter().find(|k| k.key == key))?,
        false => kinds.iter().find(|k| k.names.iter().any(|n| n == name)),
    };
    Ok(match kind {
        Some(kind) => Some((kind.title, read(kind.key, name)?)),
        None => None,
    })
}

fn show(name: &str, json: bool, out: &Out) -> anyhow::Result<()> {
    let Some((title, shown)) = find(name)? else {
        let all: Vec<String> = kinds().into_iter().flat_map(|k| k.names).collect();
        let hint = match nearest(name, all.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if Path::new(name).exists() => format!("for the file write its path, `./{name}`"),
            None => "`treeline profiles` lists what ships".to_owned(),
        };
        return Err(Usage(format!("nothing called `{name}` ships: {hint}")).into());
    };
    match (shown, json) {
        (Shown::Text(text), false) => out.data(&text),
        (Shown::Text(text), true) => out.json(&json!({ "name": name, "kind": title, "toml": text })),
        (Shown::Fields(sources, said), true) => {
            let fields: Vec<Value> =
                sources.iter().map(|o| json!({ "key": o.key, "value": o.value, "source": o.source })).collect();
            let mut shown = json!({ "name": name, "kind": title, "fields": fields });
            for (key, lines) in said {
                shown[key] = json!(lines);
            }
            out.json(&shown)
        }
        (Shown::Fields(sources, said), false) => {
            let mut text = format!("{}  {}\n", out.bold(name), out.dim(title));
            for o in sources.iter() {
                text.push_str(&format!("    {} = {}\n        {}\n", out.green(&o.key), o.value, out.dim(&o.source)));
            }
            for (key, line) in said.iter().flat_map(|(key, lines)| lines.iter().map(move |l| (key, l))) {
                text.push_str(&format!("    {}: {line}\n", key.replace('_', " ")));
            }
            out.data(&text)
        }
    }
}
