//! What only a run of real models reads: models, workload and sampling.

use super::diagnostic::{ConfigError, Doc};
use super::file::{self, ChatMode, DrafterKind, File, LawName};
use super::location::{Location, tidy};
use super::types::{Chat, Drafter, LawKind, Live, PolicySpec, PromptFile, Sampling, Workload};
use std::path::Path;
use treeline_core::{Draw, Needs};

/// Prompt tokens per forward of backend cpu unless the file says otherwise.
pub(crate) const PREFILL_CHUNK: u32 = 64;

/// Refuses a law of drawn candidates beside a policy or drafter that only ranks them.
pub(crate) fn laws_fit(
    doc: &Doc<'_>,
    policies: &[PolicySpec],
    needs: &[Needs],
    live: &Live,
) -> Result<(), ConfigError> {
    let law = live.sampling.law;
    if law.law(0).draw() == Draw::Ranked {
        return Ok(());
    }
    let name = law.name();
    if matches!(live.drafter, Drafter::Ngram { .. }) {
        let message = format!("law `{name}` verifies drawn candidates, and an n-gram drafter has nothing to draw from");
        return Err(doc.error(doc.value("sampling.law"), message, Some("use law `sample-match`".to_owned())));
    }
    if let Some(i) = needs.iter().position(|n| !n.draws) {
        let message = format!(
            "policy `{}` builds trees of ranked candidates; law `{name}` verifies drawn ones",
            policies[i].kind
        );
        let hint = "use law `sample-match`, or only policies that accept draws (`treeline policies` says which)";
        return Err(doc.error(doc.value(&format!("policy.{i}.kind")), message, Some(hint.to_owned())));
    }
    Ok(())
}

/// Joins the sections of a run of real models on `backend`.
pub(crate) fn live(doc: &Doc<'_>, file: &File, folder: &Path, backend: &str, chunk: u32) -> Result<Live, ConfigError> {
    let missing = |section: &str, key: &str| {
        let message = format!("missing key `{key}`, which backend `{backend}` needs");
        let hint = match key {
            "chat" => Some("`off` continues each text as it is; `plain` and `thinking` wrap it in the chat template"),
            "prompts" => Some("[[workload.prompts]] with `file`: JSON lines of id, domain and text"),
            _ => None,
        };
        doc.error(doc.key(section), message, hint.map(str::to_owned))
    };
    let target = file.target.as_ref().ok_or_else(|| missing("backend", "target"))?;
    let drafter = file.drafter.as_ref().ok_or_else(|| missing("backend", "drafter"))?;
    let sampling = file.sampling.as_ref().ok_or_else(|| missing("backend", "sampling"))?;
    let w = &file.workload;
    let max_new = w.max_new.ok_or_else(|| missing("workload", "max_new"))?.u32();
    let ignore_eos = w.ignore_eos.ok_or_else(|| missing("workload", "ignore_eos"))?;
    let chat = w.chat.ok_or_else(|| missing("workload", "chat"))?;
    let prompts = w.prompts.as_ref().ok_or_else(|| missing("workload", "prompts"))?;
    let context = file.backend.context.ok_or_else(|| missing("backend", "context"))?.u32();
    if max_new >= context {
        let message = format!("{max_new} new tokens do not fit {context} positions beside a prompt");
        return Err(doc.error(doc.value("workload.max_new"), message, Some("raise `backend.context`".to_owned())));
    }
    let mut files = Vec::new();
    for (i, p) in prompts.0.iter().enumerate() {
        let file = Location::new(&p.file.0, folder);
        // The same file with another `take` would run its first prompts twice.
        if files.iter().any(|f: &PromptFile| tidy(&f.file.path) == tidy(&file.path)) {
            let at = doc.value(&format!("workload.prompts.{i}.file"));
            return Err(doc.error(at, "this prompt file is listed twice", None));
        }
        files.push(PromptFile { file, take: p.take.map(|t| t.u32()) });
    }
    let file::Checkpoint::Folder(target) = &target.checkpoint else {
        let message = format!("synthetic weights run on backend `cuda`, not `{backend}`");
        return Err(doc.error(doc.value("target.checkpoint"), message, None));
    };
    Ok(Live {
        target: Location::new(&target.0, folder),
        drafter: drafter_of(doc, drafter, folder)?,
        context,
        prefill_chunk: file.backend.prefill_chunk.map_or(chunk, |c| c.u32()),
        workload: Workload {
            max_new,
            ignore_eos,
            chat: match chat {
                ChatMode::Off => Chat::Off,
                ChatMode::Plain => Chat::Plain,
                ChatMode::Thinking => Chat::Thinking,
            },
            prompts: files,
        },
        sampling: sampling_of(doc, sampling)?,
    })
}

fn drafter_of(doc: &Doc<'_>, d: &file::Drafter, folder: &Path) -> Result<Drafter, ConfigError> {
    let name = match d.kind {
        DrafterKind::Dflash => "dflash",
        DrafterKind::Autoregressive => "autoregressive",
        DrafterKind::Ngram => "ngram",
    };
    let missing = |key: &str| {
        let hint = match key {
            "depth" => Some("levels that it drafts, as in depth = 7"),
            "order" => Some("the longest suffix that it looks up, in tokens, as in order = 3"),
            _ => None,
        };
        doc.error(doc.key("drafter"), format!("drafter `{name}` needs `{key}`"), hint.map(str::to_owned))
    };
    let unread = |key: &str| {
        let message = format!("`{key}` is not read by drafter `{name}`");
        Err(doc.error(doc.key(&format!("drafter.{key}")), message, None))
    };
    let ngram = d.kind == DrafterKind::Ngram;
    for (key, present) in [("checkpoint", ngram && d.checkpoint.is_some()), ("order", !ngram && d.order.is_some())] {
        if present {
            return unread(key);
        }
    }
    let width = d.width.u32();
    let depth = d.depth.map(|x| x.u32());
    let checkpoint = || match &d.checkpoint {
        Some(file::Checkpoint::Folder(c)) => Ok(Location::new(&c.0, folder)),
        Some(file::Checkpoint::Synthetic(_)) => {
            let message = "synthetic weights of a drafter need those of a target";
            Err(doc.error(doc.value("drafter.checkpoint"), message, None))
        }
        None => Err(missing("checkpoint")),
    };
    Ok(match d.kind {
        DrafterKind::Dflash => Drafter::Dflash { checkpoint: checkpoint()?, width, depth },
        DrafterKind::Autoregressive => {
            Drafter::Autoregressive { checkpoint: checkpoint()?, width, depth: depth.ok_or_else(|| missing("depth"))? }
        }
        DrafterKind::Ngram => {
            let order = d.order.ok_or_else(|| missing("order"))?.u32();
            Drafter::Ngram { width, depth: depth.ok_or_else(|| missing("depth"))?, order }
        }
    })
}

fn sampling_of(doc: &Doc<'_>, s: &file::Sampling) -> Result<Sampling, ConfigError> {
    let temperature: Vec<f64> = s.temperature.0.iter().map(|t| t.0).collect();
    let law = match s.law {
        LawName::Greedy => LawKind::Greedy,
        LawName::SampleMatch => LawKind::SampleMatch,
        LawName::Traversal => LawKind::Traversal,
        LawName::Residual => {
            let hint = "replace = true draws a node's children independently, false draws distinct ones";
            let needs = || doc.error(doc.key("sampling"), "law `residual` needs `replace`", Some(hint.to_owned()));
            LawKind::Residual { replace: s.replace.ok_or_else(needs)? }
        }
    };
    if s.law != LawName::Residual && s.replace.is_some() {
        let message = format!("`replace` is not read by law `{}`", law.name());
        return Err(doc.error(doc.key("sampling.replace"), message, Some("only law `residual` reads it".to_owned())));
    }
    if law == LawKind::Greedy {
        let hint = "use law `sample-match`, which is argmax at 0";
        if let Some(i) = temperature.iter().position(|t| *t != 0.0) {
            let at = doc.value(&format!("sampling.temperature.{i}"));
            let message = format!("law `greedy` takes the argmax; temperature {} would not be read", temperature[i]);
            return Err(doc.error(at, message, Some(hint.to_owned())));
        }
        for (key, present) in [("top_k", s.top_k.is_some()), ("top_p", s.top_p.is_some())] {
            if present {
                let message = format!("`{key}` is not read by law `greedy`");
                return Err(doc.error(doc.key(&format!("sampling.{key}")), message, Some(hint.to_owned())));
            }
        }
    }
    Ok(Sampling {
        law,
        temperature,
        top_k: s.top_k.map_or(0, |k| k.u32()),
        top_p: s.top_p.as_ref().map_or(1.0, |p| p.0),
    })
}
