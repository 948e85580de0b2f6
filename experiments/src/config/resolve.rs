//! `experiment.resolved.toml`: an experiment written back with every value in force.

use super::location::relative;
use super::priced;
use super::types::{Backend, Cuda, Drafter, Experiment, Live, Record, Synthetic};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// The experiment as a file that lies in folder `at` (absolute): it parses back to the same experiment. Relative paths
/// stay relative: `folder` says where they start.
#[must_use]
pub fn resolved_toml(e: &Experiment, at: &Path) -> String {
    let mut out = String::from("# Every value in force. `treeline run` on this file repeats the run.\n");
    let record = match e.record {
        Record::Summary => "summary".to_owned(),
        Record::Sample(n) => format!("sample:{n}"),
        Record::All => "all".to_owned(),
    };
    pair(&mut out, "name", &quote(&e.name));
    pair(&mut out, "seed", &e.seed.to_string());
    pair(&mut out, "record", &quote(&record));
    pair(&mut out, "bootstrap", &e.bootstrap.to_string());
    pair(&mut out, "baseline", &e.baseline.to_string());
    pair(&mut out, "folder", &quote(&relative(at, &e.folder).to_string_lossy()));
    if let Backend::Priced(run) = &e.backend {
        priced::top(&mut out, run);
    }
    match &e.backend {
        Backend::Priced(run) => priced::write(&mut out, e, run),
        Backend::Cpu(live) => models(&mut out, e, live),
        Backend::Cuda(live, cuda) => {
            models(&mut out, e, live);
            gpu(&mut out, cuda);
        }
        Backend::Synthetic(s) => {
            synthetic(&mut out, e, s);
            gpu(&mut out, &s.cuda);
            pair(&mut out, "expert_overlap", &float(s.expert_overlap));
            if let Some(prompt) = s.prompt {
                pair(&mut out, "prompt", &prompt.to_string());
            }
        }
        Backend::Sim(replay) => {
            section(&mut out, "[backend]");
            pair(&mut out, "kind", &quote("sim"));
            pair(&mut out, "trace", &quote(&replay.trace.written));
            section(&mut out, "[workload]");
            pair(&mut out, "concurrency", &list(&e.concurrency));
        }
    }
    if let Some(cost) = &e.cost {
        section(&mut out, "[cost.curve]");
        pair(&mut out, "rows", &list(cost.curve.rows()));
        pair(&mut out, "ms", &floats(cost.curve.ms()));
        pair(&mut out, "source", &quote(&cost.source));
    }
    for policy in &e.policies {
        section(&mut out, "[[policy]]");
        pair(&mut out, "kind", &quote(&policy.kind));
        pair(&mut out, "budget", &list(&policy.budgets));
        for (key, value) in policy.params.as_object().into_iter().flatten() {
            // TOML has no null: a parameter without a value is one that is not written.
            if let Some(value) = inline(value) {
                pair(&mut out, &bare(key), &value);
            }
        }
    }
    out
}

fn models(out: &mut String, e: &Experiment, live: &Live) {
    section(out, "[target]");
    pair(out, "checkpoint", &quote(&live.target.written));
    section(out, "[drafter]");
    pair(out, "kind", &quote(live.drafter.kind()));
    if let Some(checkpoint) = live.drafter.checkpoint() {
        pair(out, "checkpoint", &quote(&checkpoint.written));
    }
    pair(out, "width", &live.drafter.width().to_string());
    if let Some(depth) = live.drafter.depth() {
        pair(out, "depth", &depth.to_string());
    }
    if let Drafter::Ngram { order, .. } = live.drafter {
        pair(out, "order", &order.to_string());
    }
    section(out, "[backend]");
    pair(out, "kind", &quote(e.backend.kind()));
    pair(out, "context", &live.context.to_string());
    pair(out, "prefill_chunk", &live.prefill_chunk.to_string());
    section(out, "[workload]");
    pair(out, "max_new", &live.workload.max_new.to_string());
    pair(out, "ignore_eos", &live.workload.ignore_eos.to_string());
    pair(out, "chat", &quote(live.workload.chat.name()));
    pair(out, "concurrency", &list(&e.concurrency));
    for p in &live.workload.prompts {
        section(out, "[[workload.prompts]]");
        pair(out, "file", &quote(&p.file.written));
        if let Some(take) = p.take {
            pair(out, "take", &take.to_string());
        }
    }
    section(out, "[sampling]");
    pair(out, "law", &quote(live.sampling.law.name()));
    pair(out, "temperature", &floats(&live.sampling.temperature));
    if live.sampling.law != super::LawKind::Greedy {
        pair(out, "top_k", &live.sampling.top_k.to_string());
        pair(out, "top_p", &float(live.sampling.top_p));
    }
    if let super::LawKind::Residual { replace } = live.sampling.law {
        pair(out, "replace", &replace.to_string());
    }
}

fn gpu(out: &mut String, cuda: &Cuda) {
    section(out, "[cuda]");
    // The emulator has no number.
    if !cuda.emulated {
        pair(out, "gpu", &cuda.gpu.to_string());
    }
    pair(out, "dtype", &quote(cuda.dtype.name()));
    pair(out, "graphs", &cuda.graphs.to_string());
    pair(out, "emulated", &cuda.emulated.to_string());
}

fn synthetic(out: &mut String, e: &Experiment, s: &Synthetic) {
    section(out, "[target]");
    let layers = s.layers.map_or_else(String::new, |n| format!("layers = {n}, "));
    let name = quote(&s.target.written);
    let table = format!("{{ synthetic = {name}, {layers}ranks = {}, rank = {} }}", s.ranks, s.rank);
    pair(out, "checkpoint", &table);
    section(out, "[drafter]");
    pair(out, "kind", &quote("dflash"));
    pair(out, "checkpoint", &format!("{{ synthetic = {} }}", quote(&s.drafter.written)));
    pair(out, "width", &s.width.to_string());
    section(out, "[backend]");
    pair(out, "kind", &quote("cuda"));
    pair(out, "context", &s.context.to_string());
    if s.prompt.is_none() {
        pair(out, "prefill_chunk", &s.prefill_chunk.to_string());
    }
    pair(out, "trace", &quote(&s.trace.written));
    section(out, "[workload]");
    pair(out, "concurrency", &list(&e.concurrency));
}

pub(super) fn section(out: &mut String, header: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\n{header}\n");
}

pub(super) fn pair(out: &mut String, key: &str, value: &str) {
    let _ = writeln!(out, "{key} = {value}");
}

pub(super) fn quote(s: &str) -> String {
    toml::Value::from(s).to_string()
}

pub(super) fn list(values: &[u32]) -> String {
    format!("{values:?}")
}

fn floats(values: &[f64]) -> String {
    format!("[{}]", values.iter().map(|x| float(*x)).collect::<Vec<_>>().join(", "))
}

/// The shortest form that reads back as the same number.
pub(super) fn float(x: f64) -> String {
    format!("{x:?}")
}

fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if plain { key.to_owned() } else { quote(key) }
}

fn inline(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => float(x),
            _ => n.to_string(),
        },
        Value::String(s) => quote(s),
        Value::Array(items) => format!("[{}]", items.iter().filter_map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs = map.iter().filter_map(|(k, v)| inline(v).map(|v| format!("{} = {v}", bare(k))));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    })
}
