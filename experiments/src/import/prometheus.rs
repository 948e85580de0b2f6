//! Prometheus text: vLLM's counters of speculative decoding, SGLang's gauge.

use super::model::Choice;
use super::{Counters, Wrong};

const DRAFTS: &str = "vllm:spec_decode_num_drafts";
const DRAFTED: &str = "vllm:spec_decode_num_draft_tokens";
const ACCEPTED: &str = "vllm:spec_decode_num_accepted_tokens";
const BY_POSITION: &str = "vllm:spec_decode_num_accepted_tokens_per_pos";
/// The label that tells models apart.
const MODEL: &str = "model_name";
const LENGTH: &str = "sglang:spec_accept_length";

/// A sample: its name without `_total`, its label text, its value.
fn sample(line: &str, number: usize) -> Result<Option<(&str, &str, f64)>, Wrong> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let wrong =
        || Wrong::at(number, format!("`{}` is no Prometheus sample: name, labels in braces, value", excerpt(line)));
    let (name, rest) = match line.find('{') {
        Some(open) => {
            let close = line.rfind('}').filter(|c| *c > open).ok_or_else(wrong)?;
            (&line[..open], (&line[open + 1..close], &line[close + 1..]))
        }
        None => {
            let space = line.find(char::is_whitespace).ok_or_else(wrong)?;
            (&line[..space], ("", &line[space..]))
        }
    };
    let value = rest.1.split_whitespace().next().and_then(|v| v.parse().ok()).ok_or_else(wrong)?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    if !plain {
        return Err(wrong());
    }
    Ok(Some((name.strip_suffix("_total").unwrap_or(name), rest.0, value)))
}

pub(super) fn excerpt(line: &str) -> String {
    line.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A counter's value: whole and not negative.
fn count(value: f64, number: usize) -> Result<u64, Wrong> {
    match (0.0..9e15).contains(&value) && value.fract() == 0.0 {
        true => Ok(value as u64),
        false => Err(Wrong::at(number, format!("counter value {value} is no count"))),
    }
}

/// The value of a label; its escapes stay, which no name or number has.
fn label<'l>(labels: &'l str, key: &str) -> Option<&'l str> {
    let mut rest = labels;
    loop {
        let (name, tail) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = tail.find(|c: char| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        if name.trim_start_matches(',').trim() == key {
            return Some(&tail[..end]);
        }
        rest = &tail[end + 1..];
    }
}

/// vLLM's counters of one model, summed over its engines.
pub(super) fn counters(text: &str, model: Option<&str>) -> Result<Counters, Wrong> {
    let (mut out, mut choice) = (Counters::default(), Choice::new(model));
    let (mut drafted, mut accepted, mut seen) = (0, 0, false);
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let Some((name, labels, value)) = sample(line, number)? else { continue };
        if ![DRAFTS, DRAFTED, ACCEPTED, BY_POSITION].contains(&name) {
            continue;
        }
        seen |= name == DRAFTS;
        if !choice.admits(label(labels, MODEL).unwrap_or_default()) {
            continue;
        }
        match name {
            DRAFTS => out.drafts += count(value, number)?,
            DRAFTED => drafted += count(value, number)?,
            ACCEPTED => accepted += count(value, number)?,
            _ => {
                let position = label(labels, "position").and_then(|p| p.parse::<usize>().ok());
                let position = position
                    .filter(|p| *p < 256)
                    .ok_or_else(|| Wrong::at(number, "has no label `position` with a number below 256"))?;
                if out.accepted.len() <= position {
                    out.accepted.resize(position + 1, 0);
                }
                out.accepted[position] += count(value, number)?;
            }
        }
    }
    if seen {
        choice.check()?;
        out.notes.extend(choice.note());
    }
    if !seen || out.accepted.is_empty() {
        let why =
            format!("has no `{DRAFTS}_total` and `{BY_POSITION}_total`: scrape /metrics of a vLLM server that drafts");
        return Err(Wrong::whole(why));
    }
    let sum: u64 = out.accepted.iter().sum();
    if accepted > 0 && accepted != sum {
        let why = format!("`{ACCEPTED}_total` is {accepted}, its positions sum up to {sum}: parts of two scrapes?");
        return Err(Wrong::whole(why));
    }
    let full = out.drafts.saturating_mul(out.accepted.len() as u64);
    if drafted > 0 && drafted < full {
        out.notes.push(format!(
            "{drafted} tokens drafted where {full} would be full drafts: shorter drafts make the deeper rates lower bounds"
        ));
    }
    Ok(out)
}

/// What was counted between two scrapes.
pub(super) fn difference(now: &Counters, before: &Counters) -> Result<Counters, Wrong> {
    let less = |a: u64, b: u64| {
        a.checked_sub(b)
            .ok_or_else(|| Wrong::whole("its counters are below those of --before: swapped, or the server restarted"))
    };
    let accepted = now.accepted.iter().enumerate().map(|(i, a)| less(*a, before.accepted.get(i).copied().unwrap_or(0)));
    Ok(Counters {
        drafts: less(now.drafts, before.drafts)?,
        accepted: accepted.collect::<Result<_, _>>()?,
        notes: std::iter::once("difference of two scrapes".into())
            .chain(now.notes.iter().filter(|n| n.starts_with("model ")).cloned())
            .collect(),
        ..Counters::default()
    })
}

/// SGLang's gauge: the acceptance length of one model, several engines averaged.
pub(super) fn accept_length(text: &str, model: Option<&str>) -> Result<Counters, Wrong> {
    let (mut all, mut choice) = (Vec::new(), Choice::new(model));
    for (i, line) in text.lines().enumerate() {
        if let Some((LENGTH, labels, value)) = sample(line, i + 1)? {
            if !choice.admits(label(labels, MODEL).unwrap_or_default()) {
                continue;
            }
            if !(1.0..1e4).contains(&value) {
                return Err(Wrong::at(i + 1, format!("an acceptance length of {value} is below 1 or no number")));
            }
            all.push(value);
        }
    }
    if choice.nothing() {
        return Err(Wrong::whole(format!("holds neither JSON, nor `accept len:` log lines, nor `{LENGTH}`")));
    }
    choice.check()?;
    let tau = all.iter().sum::<f64>() / all.len() as f64;
    let gauge = format!("gauge {LENGTH}, its state at one moment");
    Ok(Counters { tau: Some(tau), notes: std::iter::once(gauge).chain(choice.note()).collect(), ..Counters::default() })
}
