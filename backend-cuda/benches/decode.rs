//! Whole rounds of the engine on the bundled mini pair: what a round costs on the device, staged with the policy on the host,
//! and without graphs.
//!
//! `cargo bench -p treeline-cuda --bench decode`. Needs a GPU; `-- --emulated` tries the bench itself. A row of the table is the
//! median over the rounds of a run in which every sequence of the batch decodes; phases are means. The two ways give the
//! same trees, so what staged rounds take longer is the price of the host in between.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/pairs/alone.rs"]
mod alone;

use alone::Alone;
use std::path::PathBuf;
use treeline_core::{Engine, Law, Limits, Phase, PhaseTimes, Request, RunSetup, Sampling, TreePolicy, run};
use treeline_cuda::Result;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::engine::{CudaPair, CudaSettings, DrafterSource, PairOptions};
use treeline_policies::Registry;

const CONTEXT: u32 = 512;

fn model(name: &str) -> PathBuf {
    let crate_dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(crate_dir).join("../experiments/models").join(name)
}

fn requests(count: u32, max_new: u32) -> Vec<Request> {
    let prompt = |id: u32| (0..24 + id * 3).map(|i| 5 + (i * 97 + id * 31) % 8000).collect();
    let sampling = Sampling::GREEDY;
    (0..count).map(|id| Request { id: id.into(), prompt: prompt(id), max_new, eos: Vec::new(), sampling }).collect()
}

/// Median ms of the rounds with a full batch, and the mean of each phase.
fn measure(
    engine: &mut impl Engine,
    policy: &mut dyn TreePolicy,
    budget: u32,
    batch: u32,
    new: u32,
) -> (f64, [f64; 7]) {
    let mut times: Vec<PhaseTimes> = Vec::new();
    // The first run captures, the second is measured.
    for measured in [false, true] {
        let setup = RunSetup { budget, concurrency: batch, law: &Law::Greedy, cost: None };
        let outcome = run(engine, policy, &requests(batch, new), &setup, &mut |view| {
            if measured && view.log.entries.len() == batch as usize {
                times.extend(view.log.times);
            }
        });
        if let Err(e) = outcome {
            println!("{e}");
        }
    }
    let mut rounds: Vec<f64> = times.iter().map(PhaseTimes::round).collect();
    rounds.sort_by(f64::total_cmp);
    let mean = |i: usize| times.iter().map(|t| t.ms[i]).sum::<f64>() / times.len().max(1) as f64;
    (rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN), std::array::from_fn(mean))
}

fn main() -> Result<()> {
    let emulated = std::env::args().any(|a| a == "--emulated");
    let gpu = if emulated { Gpu::emulated() } else { Gpu::open(0) };
    let gpu = match gpu {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let drafter = DrafterSource::Dflash { dir: model("mini-dflash") };
    let options = PairOptions { dtype: Dtype::Bf16, context: CONTEXT };
    let pair = CudaPair::load(&gpu, &model("mini-target"), &drafter, &options)?;
    let new = if emulated { 3 } else { 96 };
    let batches: &[u32] = if emulated { &[1] } else { &[1, 8, 64] };
    println!("{}: mini pair, bf16, best-first, greedy, {new} tokens a request; ms a round", gpu.info().name);
    println!(
        "batch nodes  device  staged  eager   staged - device   device round: {}",
        Phase::ALL[1..6].iter().map(|p| format!("{:>8}", format!("{p:?}").to_lowercase())).collect::<String>()
    );
    for &batch in batches {
        for nodes in [7, 16, 64] {
            let mut settings = CudaSettings::new(batch, CONTEXT, nodes);
            let mut engine = pair.engine(settings)?;
            let info = engine.info();
            let limits = Limits { budget: nodes, depth: info.depth, width: info.width, concurrency: batch };
            let policy = || match Registry::builtin().build("best-first", &serde_json::json!({}), &limits) {
                Ok(policy) => policy,
                Err(e) => panic!("{e}"),
            };
            let (device, phases) = measure(&mut engine, &mut *policy(), nodes, batch, new);
            let (staged, _) = measure(&mut engine, &mut Alone(&mut *policy()), nodes, batch, new);
            settings.graphs = false;
            let (eager, _) = measure(&mut pair.engine(settings)?, &mut *policy(), nodes, batch, new);
            let phases: String = phases[1..6].iter().map(|ms| format!("{ms:8.3}")).collect();
            let more = (staged - device) * 1e3;
            println!(
                "{batch:5} {nodes:5} {device:7.3} {staged:7.3} {eager:6.3} {more:14.1} us                  {phases}"
            );
        }
    }
    Ok(())
}
