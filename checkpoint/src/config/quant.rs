//! `quantization_config`: compressed-tensors, `pack-quantized`, symmetric INT4 in groups of 32, and which modules it covers.

use std::path::Path;

use regex::Regex;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::json::Fields;

/// Weights of a group that share one scale.
pub const GROUP: usize = 32;

/// Longest list of ignore patterns that is accepted.
const PATTERNS: usize = 4096;

/// Which linear modules are stored as packed INT4.
#[derive(Debug, Clone)]
pub struct Quantization {
    exact: Vec<String>,
    patterns: Vec<Regex>,
    prefix: &'static str,
}

impl Quantization {
    /// Whether the linear module (its tensor name without `.weight`) is stored as packed INT4: everything that the
    /// config's `ignore` list does not name. `re:` patterns match from the start of the name, as Python's `re.match` does.
    pub fn covers(&self, module: &str) -> bool {
        let short = module.strip_prefix(self.prefix).unwrap_or(module);
        let named = self.exact.iter().any(|e| e == module || e == short);
        !named && !self.patterns.iter().any(|p| p.is_match(module))
    }
}

/// Reads `quantization_config` of `fields` if there is one. `prefix` is what the family puts before every tensor name.
pub(crate) fn read(fields: &Fields<'_>, prefix: &'static str) -> Result<Option<Quantization>> {
    let Some(q) = fields.object("quantization_config")? else { return Ok(None) };
    let why = "convert the checkpoint to compressed-tensors pack-quantized INT4 in groups of 32, or to bf16";
    let method = q.str("quant_method")?;
    if method != "compressed-tensors" {
        return Err(q.error("quant_method", format!("\"{method}\" is not supported: {why}")));
    }
    let format = q.str("format")?;
    if format != "pack-quantized" {
        return Err(q.error("format", format!("\"{format}\" is not supported: {why}")));
    }
    q.only("quantization_status", &json!("compressed"), why)?;
    q.only("kv_cache_scheme", &Value::Null, "the KV cache is not quantised here")?;
    // Empty objects are what some exporters write for "none".
    for key in ["sparsity_config", "transform_config"] {
        if q.get(key).is_some_and(|v| v.as_object().is_none_or(|m| !m.is_empty())) {
            return Err(q.error(key, format!("is not supported: {why}")));
        }
    }
    q.ignore(&["global_compression_ratio", "version"]);
    read_groups(&q, why)?;
    let (mut exact, mut patterns) = (Vec::new(), Vec::new());
    let ignore = q.opt_strings("ignore")?.unwrap_or_default();
    if ignore.len() > PATTERNS {
        return Err(q.error("ignore", format!("has {} entries, more than {PATTERNS}", ignore.len())));
    }
    for entry in ignore {
        match entry.strip_prefix("re:") {
            None => exact.push(entry.to_owned()),
            Some(pattern) => patterns.push(compile(q.path(), &q.name("ignore"), pattern)?),
        }
    }
    q.finish()?;
    Ok(Some(Quantization { exact, patterns, prefix }))
}

fn compile(path: &Path, field: &str, pattern: &str) -> Result<Regex> {
    regex::RegexBuilder::new(&format!("^(?:{pattern})"))
        .size_limit(1 << 18)
        .build()
        .map_err(|e| Error::field(path, field, format!("`re:{pattern}`: {e}")))
}

fn read_groups(q: &Fields<'_>, why: &str) -> Result<()> {
    let Some(groups) = q.get("config_groups").and_then(Value::as_object) else {
        return Err(q.error("config_groups", "missing: it says how the weights are packed"));
    };
    if groups.len() != 1 {
        return Err(q.error("config_groups", format!("has {} groups, but exactly one is supported", groups.len())));
    }
    for (name, group) in groups {
        let g = Fields::new(q.path(), &format!("{}.{name}", q.name("config_groups")), group)?;
        let targets = g.opt_strings("targets")?.unwrap_or_default();
        if targets != ["Linear"] {
            return Err(g.error("targets", format!("is {targets:?}, but only [\"Linear\"] is supported")));
        }
        g.only("input_activations", &Value::Null, "activations are not quantised here")?;
        g.only("output_activations", &Value::Null, "activations are not quantised here")?;
        g.only("format", &json!("pack-quantized"), why)?;
        let Some(w) = g.object("weights")? else {
            return Err(g.error("weights", "missing: it says how the weights are packed"));
        };
        for (key, wanted) in [
            ("num_bits", json!(4)),
            ("type", json!("int")),
            ("symmetric", json!(true)),
            ("strategy", json!("group")),
            ("group_size", json!(GROUP)),
        ] {
            w.only(key, &wanted, why)?;
            if w.get(key).is_none() {
                return Err(w.error(key, format!("missing: {wanted} is supported and must be said")));
            }
        }
        w.only("dynamic", &json!(false), "weights are quantised ahead of time")?;
        w.only("actorder", &Value::Null, "weights reordered by activation need an index that is not read here")?;
        w.only("block_structure", &Value::Null, "groups run along a row")?;
        // How the scales were found, and how the exporter names their type, changes nothing once they are stored.
        w.ignore(&["observer", "observer_kwargs", "scale_dtype", "zp_dtype"]);
        w.finish()?;
        g.finish()?;
    }
    Ok(())
}
