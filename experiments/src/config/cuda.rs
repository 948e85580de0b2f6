//! What only backend cuda reads, and what it cannot do.

use super::diagnostic::{ConfigError, Doc};
use super::file::{self, File};
use super::types::{Cuda, Drafter, Live, PolicySpec, Precision};
use treeline_cuda::engine::{MOST_CHUNK, MOST_NODES, MOST_WIDTH};

/// The section `[cuda]`.
pub(crate) fn cuda(doc: &Doc<'_>, file: &File) -> Result<Cuda, ConfigError> {
    let Some(c) = &file.cuda else {
        let hint = "[cuda] with dtype = \"bf16\" (as checkpoints store weights) or \"f32\" (as backend `cpu` computes)";
        let message = "missing section `cuda`, which backend `cuda` needs";
        return Err(doc.error(doc.value("backend.kind"), message, Some(hint.to_owned())));
    };
    let emulated = c.emulated.unwrap_or(false);
    if emulated && c.gpu.is_some() {
        let hint =
            "`emulated = true` runs the kernels on the processor: leave `gpu` out, or drop `emulated`".to_owned();
        return Err(doc.error(doc.key("cuda.gpu"), "`gpu` is not read here", Some(hint)));
    }
    Ok(Cuda {
        gpu: c.gpu.as_ref().map_or(0, |g| g.u32()),
        dtype: match c.dtype {
            file::Dtype::Bf16 => Precision::Bf16,
            file::Dtype::F32 => Precision::F32,
        },
        graphs: c.graphs.unwrap_or(true),
        emulated,
    })
}

/// Prompt tokens per forward unless the file says otherwise.
pub(crate) const PREFILL_CHUNK: u32 = MOST_CHUNK;

/// Most rows of one pass of the engine.
const MOST_ROWS: u64 = u16::MAX as u64;

/// Refuses what the engine has no form of.
pub(crate) fn fits(doc: &Doc<'_>, file: &File, live: &Live, policies: &[PolicySpec]) -> Result<(), ConfigError> {
    if matches!(live.drafter, Drafter::Ngram { .. }) {
        let hint = "use `dflash` or `autoregressive`, or backend `cpu`".to_owned();
        return Err(doc.error(doc.value("drafter.kind"), "backend `cuda` has no n-gram drafter", Some(hint)));
    }
    if live.prefill_chunk > MOST_CHUNK {
        let message = format!("backend `cuda` takes at most {MOST_CHUNK} prompt tokens per forward");
        return Err(doc.error(doc.value("backend.prefill_chunk"), message, None));
    }
    if matches!(live.drafter, Drafter::Dflash { width, .. } if width > MOST_WIDTH) {
        let message = format!("backend `cuda` keeps at most {MOST_WIDTH} ranks per row");
        return Err(doc.error(doc.value("drafter.width"), message, None));
    }
    let of_synthetic = [
        ("cuda.expert_overlap", "only synthetic weights route by it: these models have routers"),
        ("cuda.prompt", "only synthetic weights have prompts of a chosen length"),
    ];
    if let Some((path, why)) = of_synthetic.into_iter().find(|(path, _)| doc.has(path)) {
        let name = path.rsplit('.').next().unwrap_or(path);
        return Err(doc.error(doc.key(path), format!("`{name}` is not read here"), Some(why.to_owned())));
    }
    budgets_fit(doc, file, policies)
}

/// Refuses trees that are too large.
pub(crate) fn budgets_fit(doc: &Doc<'_>, file: &File, policies: &[PolicySpec]) -> Result<(), ConfigError> {
    let concurrency = file.workload.concurrency.0.iter().map(|c| c.u32()).max().unwrap_or(1);
    for (i, policy) in policies.iter().enumerate() {
        if let Some(j) = policy.budgets.iter().position(|b| *b > MOST_NODES) {
            let message = format!("backend `cuda` verifies at most {MOST_NODES} nodes per request");
            return Err(doc.error(doc.value(&format!("policy.{i}.budget.{j}")), message, None));
        }
        if let Some(j) = policy.budgets.iter().position(|b| u64::from(b + 1) * u64::from(concurrency) > MOST_ROWS) {
            let message = format!("{concurrency} such trees have more rows than one pass of backend `cuda`");
            let hint = format!("concurrency times (budget + 1) may be {MOST_ROWS}");
            return Err(doc.error(doc.value(&format!("policy.{i}.budget.{j}")), message, Some(hint)));
        }
    }
    Ok(())
}
