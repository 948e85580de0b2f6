//! Prometheus text: vLLM's counters of speculative decoding, SGLang's gauge.

use super::{Counters, Wrong};

const DRAFTS: &str = "vllm:spec_decode_num_drafts";
const DRAFTED: &str = "vllm:spec_decode_num_draft_tokens";
const ACCEPTED: &str = "vllm:spec_decode_num_accepted_tokens";
const BY_POSITION: &str = "vllm:spec_decode_num_accepted_tokens_per_pos";
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

/// vLLM's counters, summed over engines and models.
pub(super) fn counters(text: &str) -> Result<Counters, Wrong> {
    let mut out = Counters::default();
    let (mut drafted, mut accepted, mut seen) = (0, 0, false);
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let Some((name, labels, value)) = sample(line, number)? else { continue };
        match name {
            DRAFTS => {
                seen = true;
                out.drafts += count(value, number)?;
            }
            DRAFTED => drafted += count(value, number)?,
            ACCEPTED => accepted += count(value, number)?,
            BY_POSITION => {
                let position = labels.split(',').find_map(|l| l.trim().strip_prefix("position=\""));
                let position = position.and_then(|p| p.trim_end_matches('"').parse::<usize>().ok());
                let position = position
                    .filter(|p| *p < 256)
                    .ok_or_else(|| Wrong::at(number, "has no label `position` with a number below 256"))?;
                if out.accepted.len() <= position {
                    out.accepted.resize(position + 1, 0);
                }
                out.accepted[position] += count(value, number)?;
            }
            _ => {}
        }
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
        notes: vec!["difference of two scrapes".into()],
        ..Counters::default()
    })
}

/// SGLang's gauge: the acceptance length of the server, several engines averaged.
pub(super) fn accept_length(text: &str) -> Result<Counters, Wrong> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if let Some((LENGTH, _, value)) = sample(line, i + 1)? {
            if !(1.0..1e4).contains(&value) {
                return Err(Wrong::at(i + 1, format!("an acceptance length of {value} is below 1 or no number")));
            }
            all.push(value);
        }
    }
    if all.is_empty() {
        return Err(Wrong::whole(format!("holds neither JSON, nor `accept len:` log lines, nor `{LENGTH}`")));
    }
    let tau = all.iter().sum::<f64>() / all.len() as f64;
    Ok(Counters {
        tau: Some(tau),
        notes: vec![format!("gauge {LENGTH}, its state at one moment")],
        ..Counters::default()
    })
}
