//! A run of synthetic weights: shapes from a config, acceptance from a trace, routing from a number.

use super::cuda;
use super::diagnostic::{ConfigError, Doc};
use super::file::{Checkpoint, DrafterKind, File};
use super::location::Location;
use super::types::{PolicySpec, Precision, Synthetic};
use std::path::Path;

/// What the trace gives instead.
const FROM_TRACE: [&str; 5] =
    ["sampling", "workload.max_new", "workload.ignore_eos", "workload.chat", "workload.prompts"];

/// Whether the target of `file` has synthetic weights.
pub(crate) fn named(file: &File) -> bool {
    matches!(file.target.as_ref().map(|t| &t.checkpoint), Some(Checkpoint::Synthetic(_)))
}

/// Joins the sections of such a run.
pub(crate) fn synthetic(
    doc: &Doc<'_>,
    file: &File,
    folder: &Path,
    policies: &[PolicySpec],
) -> Result<Synthetic, ConfigError> {
    let unread = |path: &str, why: &str| {
        let name = path.rsplit('.').next().unwrap_or(path);
        Err(doc.error(doc.key(path), format!("`{name}` is not read here"), Some(why.to_owned())))
    };
    let missing = |at: &str, what: &str, hint: &str| {
        doc.error(doc.key(at), format!("synthetic weights need {what}"), Some(hint.to_owned()))
    };
    let Some(Checkpoint::Synthetic(t)) = file.target.as_ref().map(|t| &t.checkpoint) else {
        return Err(missing("target", "`target.checkpoint`", "{ synthetic = \"kimi-k2.6\", ranks = 8 }"));
    };
    if let Some(path) = FROM_TRACE.iter().find(|path| doc.has(path)) {
        return unread(path, "with synthetic weights it comes from the trace");
    }
    let hint = "kind = \"dflash\" with checkpoint = { synthetic = \"kimi-k2.6\" }";
    let Some(drafter) = &file.drafter else { return Err(missing("backend", "a section `drafter`", hint)) };
    let (DrafterKind::Dflash, Some(Checkpoint::Synthetic(d))) = (drafter.kind, &drafter.checkpoint) else {
        return Err(missing("drafter", "a synthetic DFlash drafter", hint));
    };
    for (key, present) in [("layers", d.layers.is_some()), ("ranks", d.ranks.is_some()), ("rank", d.rank.is_some())] {
        if present {
            return unread(&format!("drafter.checkpoint.{key}"), "the target's holds for both");
        }
    }
    if drafter.depth.is_some() {
        return unread("drafter.depth", "the trace says how deep its drafts are");
    }
    let trace = file.backend.trace.as_ref().ok_or_else(|| {
        missing(
            "backend",
            "a trace",
            "`treeline trace record FILE -o OUT` makes one; then trace = \"OUT\" in [backend]",
        )
    })?;
    let context = file.backend.context.ok_or_else(|| missing("backend", "`context`", "as in context = 8192"))?;
    let how = cuda::cuda(doc, file)?;
    if how.dtype != Precision::Bf16 {
        let message = "synthetic weights are bf16 and INT4";
        return Err(doc.error(doc.value("cuda.dtype"), message, Some("dtype = \"bf16\"".to_owned())));
    }
    let overlap = file.cuda.as_ref().and_then(|c| c.expert_overlap.as_ref()).map(|x| x.0);
    let hint = "expert_overlap = 0 routes every row on its own, uniformly";
    let (ranks, rank) = (t.ranks.map_or(1, |r| r.u32()), t.rank.map_or(0, |r| r.u32()));
    if rank >= ranks {
        let message = format!("there is no rank {rank} of {ranks}");
        return Err(doc.error(doc.value("target.checkpoint.rank"), message, None));
    }
    let prompt = file.cuda.as_ref().and_then(|c| c.prompt.as_ref()).map(|p| p.u32());
    if prompt.is_some_and(|p| p >= context.u32()) {
        let message = format!("a context of {} has no room behind this", context.u32());
        return Err(doc.error(doc.value("cuda.prompt"), message, None));
    }
    if prompt.is_some() && file.backend.prefill_chunk.is_some() {
        return unread("backend.prefill_chunk", "with `prompt` in [cuda] no prompt is computed");
    }
    cuda::budgets_fit(doc, file, policies)?;
    Ok(Synthetic {
        target: Location::new(&t.synthetic.0, folder),
        layers: t.layers.map(|l| l.u32()),
        ranks,
        rank,
        drafter: Location::new(&d.synthetic.0, folder),
        width: drafter.width.u32(),
        context: context.u32(),
        prefill_chunk: file.backend.prefill_chunk.map_or(cuda::PREFILL_CHUNK, |c| c.u32().min(cuda::PREFILL_CHUNK)),
        trace: Location::new(&trace.0, folder),
        prompt,
        expert_overlap: overlap.ok_or_else(|| missing("cuda", "`expert_overlap`", hint))?,
        cuda: how,
    })
}
