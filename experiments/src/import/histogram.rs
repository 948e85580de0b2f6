//! JSON of responses and servers: histograms of accepted drafts per step, or an acceptance length alone.

use super::model::Choice;
use super::{Counters, Wrong};
use serde_json::{Map, Value};

/// Names under which engines report how many steps accepted n drafted tokens.
const HISTOGRAMS: [&str; 3] = ["spec_correct_drafts_histogram", "spec_accept_histogram", "acceptance_histogram"];

/// Keys under which a response or a server names its model.
const MODELS: [&str; 4] = ["model", "model_name", "served_model_name", "model_path"];

/// All that one file holds of one model: a JSON document, or one per line.
pub(super) fn counters(text: &str, model: Option<&str>) -> Result<Counters, Wrong> {
    let mut read = Read { out: Counters::default(), lengths: Lengths::default(), choice: Choice::new(model) };
    match serde_json::from_str::<Value>(text) {
        Ok(value) => read.visit(&value, "", 1)?,
        Err(_) => {
            for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
                let value = serde_json::from_str(line).map_err(|e| Wrong::at(i + 1, format!("is no JSON: {e}")))?;
                read.visit(&value, "", i + 1)?;
            }
        }
    }
    let Read { mut out, lengths, choice } = read;
    if !choice.nothing() {
        choice.check()?;
        out.notes.extend(choice.note());
    }
    if out.drafts > 0 {
        return Ok(out);
    }
    let (tau, note) = if lengths.steps > 0 {
        (lengths.tokens as f64 / lengths.steps as f64, "completion tokens / verify steps of its responses")
    } else if let Some(tau) = lengths.average {
        (tau, "average since the server started")
    } else {
        let why = "holds no acceptance histogram, no `spec_verify_ct` with `completion_tokens`, and no `avg_spec_accept_length`";
        return Err(Wrong::whole(why));
    };
    out.notes.insert(0, note.into());
    Ok(Counters { tau: Some(tau), ..out })
}

#[derive(Default)]
struct Lengths {
    tokens: u64,
    steps: u64,
    average: Option<f64>,
}

/// What was read so far.
struct Read<'m> {
    out: Counters,
    lengths: Lengths,
    choice: Choice<'m>,
}

impl Read<'_> {
    /// Takes what `value` counts; `model` is whom the values around it name.
    fn visit(&mut self, value: &Value, model: &str, line: usize) -> Result<(), Wrong> {
        match value {
            Value::Array(all) => all.iter().try_for_each(|v| self.visit(v, model, line)),
            Value::Object(map) => {
                let model = MODELS.iter().find_map(|k| map.get(*k).and_then(Value::as_str)).unwrap_or(model);
                self.take(map, model, line)?;
                map.values().try_for_each(|v| self.visit(v, model, line))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, map: &Map<String, Value>, model: &str, line: usize) -> Result<(), Wrong> {
        let histogram = HISTOGRAMS.iter().find_map(|k| map.get(*k).filter(|v| !v.is_null()).map(|v| (k, v)));
        let steps = count(map, "spec_verify_ct").zip(count(map, "completion_tokens"));
        let average = map.get("avg_spec_accept_length").and_then(Value::as_f64);
        let counts_something = histogram.is_some() || steps.is_some() || average.is_some();
        if counts_something && !self.choice.admits(model) {
            return Ok(());
        }
        if let Some((key, histogram)) = histogram {
            let counts =
                counts(histogram).ok_or_else(|| Wrong::at(line, format!("`{key}` is no list or map of counts")))?;
            add(&counts, &mut self.out);
        }
        if let Some((steps, tokens)) = steps {
            self.lengths.steps += steps;
            self.lengths.tokens += tokens;
        }
        self.lengths.average = average.or(self.lengths.average);
        if let Some(rows) = count(map, "speculative_num_draft_tokens").and_then(|r| u32::try_from(r).ok()) {
            self.out.rows = Some(rows);
        }
        if let Some(width) = count(map, "speculative_eagle_topk").filter(|w| *w > 1) {
            let why =
                format!("`speculative_eagle_topk` is {width}: its acceptance is a tree's, a process needs the chain's");
            return Err(Wrong::at(line, why));
        }
        Ok(())
    }
}

fn count(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key).and_then(Value::as_u64)
}

/// Steps by accepted tokens: a list by index, or a map with the numbers as keys.
fn counts(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        Value::Object(map) => {
            let mut all = Vec::new();
            for (key, value) in map {
                let at = key.parse::<usize>().ok().filter(|k| *k < 256)?;
                if all.len() <= at {
                    all.resize(at + 1, 0);
                }
                all[at] = value.as_u64()?;
            }
            Some(all)
        }
        _ => None,
    }
}

/// A request's histogram: position d was accepted in all steps that accepted d or more.
fn add(histogram: &[u64], out: &mut Counters) {
    let steps: u64 = histogram.iter().sum();
    out.drafts += steps;
    let positions = histogram.len().saturating_sub(1);
    if out.accepted.len() < positions {
        out.accepted.resize(positions, 0);
    }
    for d in 0..positions {
        out.accepted[d] += histogram[d + 1..].iter().sum::<u64>();
    }
    if steps > 0 {
        out.requests.push((histogram.iter().skip(1).sum(), steps));
    }
}
