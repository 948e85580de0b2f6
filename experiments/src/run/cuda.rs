//! Real models on an NVIDIA GPU as a source of rounds.

use super::models::{Backing, Served};
use super::source::{Facts, Source};
use crate::config::{Cuda, Drafter, Experiment, Live, Precision};
use serde_json::json;
use treeline_core::{Engine as _, Law, Request};
use treeline_cuda::CudaError;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::engine::{CudaEngine, CudaPair, CudaSettings, DrafterSource, MOST_NODES, PairOptions};
use treeline_cuda::probe::Meter;

/// A target and a drafter on one GPU, with their prompts. Cells share the weights and run one after another.
pub(super) struct CudaSource {
    pair: CudaPair,
    served: Served,
    cuda: Cuda,
    /// The largest tree that engines have room for.
    nodes: u32,
    meter: Option<Meter>,
    facts: Facts,
}

/// The meter of the GPU; `None` where it cannot be read, which ends no run.
pub(super) fn meter(cuda: &Cuda) -> Option<Meter> {
    (!cuda.emulated).then(|| Meter::open(cuda.gpu as usize).ok()).flatten()
}

impl CudaSource {
    /// Opens the GPU, then loads models and prompts. Engines have room for the experiment's largest budget, and for `nodes`.
    ///
    /// # Errors
    /// No such GPU, a library that is missing, and what checkpoints, tokenizer or prompt files refuse.
    pub fn load(experiment: &Experiment, live: &Live, cuda: &Cuda, nodes: u32) -> anyhow::Result<Self> {
        let gpu = match cuda.emulated {
            true => Gpu::emulated()?,
            false => Gpu::open(cuda.gpu as usize)?,
        };
        let dtype = match cuda.dtype {
            Precision::Bf16 => Dtype::Bf16,
            Precision::F32 => Dtype::F32,
        };
        let options = PairOptions { dtype, context: live.context };
        let pair = CudaPair::load(&gpu, &live.target.path, &drafter(&live.drafter)?, &options)?;
        let served = Served::load(experiment, live, pair.target().config())?;
        let budgets = experiment.policies.iter().flat_map(|p| p.budgets.iter().copied());
        let nodes = budgets.chain([nodes]).max().unwrap_or(0).min(MOST_NODES);
        let info = gpu.info();
        let graphs = if cuda.graphs { "CUDA graphs" } else { "eager" };
        let emulated = "the kernels ran on the host: no time is given".to_owned();
        let facts = served.facts(Backing {
            backend: "cuda",
            hardware: info.name.clone(),
            gpu: (!cuda.emulated).then(|| (info.name.clone(), info.driver.clone())),
            drafter: pair.describe_drafter(),
            manner: format!("{}, {graphs}", cuda.dtype.name()),
            identity: json!({ "dtype": cuda.dtype.name(), "graphs": cuda.graphs, "emulated": cuda.emulated }),
            depth: engine(&pair, live, cuda, 1, 0)?.info().depth,
            clock: !cuda.emulated,
            notes: cuda.emulated.then_some(emulated).into_iter().collect(),
        })?;
        Ok(Self { pair, served, cuda: *cuda, nodes, meter: meter(cuda), facts })
    }
}

/// The drafter in the engine's terms.
fn drafter(drafter: &Drafter) -> anyhow::Result<DrafterSource> {
    Ok(match drafter {
        Drafter::Dflash { checkpoint, .. } => DrafterSource::Dflash { dir: checkpoint.path.clone() },
        Drafter::Autoregressive { checkpoint, depth, .. } => {
            DrafterSource::Autoregressive { dir: checkpoint.path.clone(), depth: *depth }
        }
        Drafter::Ngram { .. } => anyhow::bail!("backend `cuda` has no n-gram drafter"),
    })
}

fn engine(pair: &CudaPair, live: &Live, cuda: &Cuda, slots: u32, nodes: u32) -> anyhow::Result<CudaEngine> {
    let settings = CudaSettings::new(slots, live.context, nodes);
    let settings = CudaSettings {
        chunk: live.prefill_chunk.min(live.context),
        rows: settings.rows.min(u32::from(u16::MAX)),
        width: live.drafter.width(),
        graphs: cuda.graphs,
        ..settings
    };
    pair.engine(settings).map_err(in_our_words)
}

/// Which keys of an experiment to lower when memory is used up: the engine knows them by other names.
pub(super) fn in_our_words(e: CudaError) -> anyhow::Error {
    match e {
        CudaError::Memory { what, bytes, free, .. } => {
            let advice =
                "lower `workload.concurrency`, `backend.context`, `backend.prefill_chunk` or the largest budget";
            CudaError::Memory { what, bytes, free, advice }.into()
        }
        other => other.into(),
    }
}

impl Source for CudaSource {
    type Engine = CudaEngine;

    fn engine(&self, slots: u32, _budget: u32) -> anyhow::Result<CudaEngine> {
        engine(&self.pair, &self.served.live, &self.cuda, slots, self.nodes)
    }

    fn requests(&self, temperature: f64) -> Vec<Request> {
        self.served.requests(temperature)
    }

    fn law(&self, _temperature: f64) -> Law<'_> {
        self.served.law()
    }

    fn domain(&self, index: usize) -> &str {
        self.served.domain(index)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn one_at_a_time(&self) -> bool {
        true
    }

    fn joules(&self) -> Option<f64> {
        self.meter.and_then(|m| m.joules().ok())
    }
}
