//! What a step costs on this machine: the points of a cost curve, measured on real trees.

use super::cpu::CpuSource;
use super::cuda::CudaSource;
use super::source::{Capped, Source};
use crate::config::{Backend, Experiment};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::io::Write as _;
use treeline_core::{CostCurve, Engine as _, Limits, Request, RunSetup, run};
use treeline_policies::Registry;

/// Row counts that are measured: 1 is plain decoding, the others a tree of one node less with its draft.
pub const ROWS: [u32; 8] = [1, 2, 5, 9, 17, 33, 65, 129];

/// Rounds per request: enough that most are warm, few enough that contexts differ.
const ROUNDS: u32 = 10;
/// The first rounds of each request are not counted.
const COLD: u32 = 2;
/// Requests per row count.
const REQUESTS: usize = 4;

/// Measures the experiment's models: for each of [`ROWS`] the median time of a warm step, one request at a time, alone on
/// the machine as far as this process goes. Trees are best-first, so they have the shape of real ones; a row count that no
/// tree reaches is left out.
///
/// # Errors
/// An experiment without models, models or prompts that cannot be read, or times that are no curve.
pub fn calibrate(experiment: &Experiment, quiet: bool) -> anyhow::Result<CostCurve> {
    let Some(live) = experiment.backend.live() else {
        anyhow::bail!("this experiment replays a trace: a replay has no clock");
    };
    if matches!(&experiment.backend, Backend::Cuda(_, cuda) if cuda.emulated) {
        anyhow::bail!("kernels on the processor say nothing of a GPU's time: drop `emulated`, on a machine with a GPU");
    }
    let temperature = live.sampling.temperature.first().copied().context("the experiment has no temperature")?;
    let points = match &experiment.backend {
        Backend::Cuda(live, cuda) => {
            let most = ROWS[ROWS.len() - 1] - 1;
            let source = CudaSource::load(experiment, live, cuda, most).map_err(super::refused)?;
            measure(&source, temperature, quiet)?
        }
        _ => measure(&CpuSource::load(experiment, live).map_err(super::refused)?, temperature, quiet)?,
    };
    anyhow::ensure!(
        points.len() >= 2,
        "too few steps could be timed: the first {REQUESTS} prompts leave no room for {ROUNDS} rounds in {} positions: raise `context`",
        live.context
    );
    Ok(CostCurve::new(points.iter().map(|p| p.0).collect(), points.iter().map(|p| p.1).collect())?)
}

/// Median ms by rows.
pub(super) fn measure<S: Source>(source: &S, temperature: f64, quiet: bool) -> anyhow::Result<Vec<(u32, f64)>> {
    let facts = source.facts();
    let mut engine = Capped { inner: source.engine(1, 0)?, width: facts.width, depth: facts.depth };
    let mut points = Vec::new();
    for rows in ROWS {
        let requests: Vec<Request> = source
            .requests(temperature)
            .into_iter()
            .take(REQUESTS)
            // A round emits depth + 1 tokens at the most; end tokens would cut the measurement short.
            .map(|r| Request { max_new: ROUNDS * (facts.depth + 1), eos: Vec::new(), ..r })
            .collect();
        let mut times = step_times(source, &mut engine, &requests, rows - 1, temperature)?;
        let Some(times) = times.remove(&rows).filter(|t| t.len() >= REQUESTS) else { continue };
        let ms = median(times);
        points.push((rows, ms));
        if !quiet {
            // A message that cannot be shown is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{rows} rows: {ms:.2} ms");
        }
    }
    Ok(points)
}

/// Times of warm rounds at one budget, by the rows that they really verified.
fn step_times<S: Source>(
    source: &S,
    engine: &mut Capped<S::Engine>,
    requests: &[Request],
    budget: u32,
    temperature: f64,
) -> anyhow::Result<BTreeMap<u32, Vec<f64>>> {
    let info = engine.info();
    let limits = Limits { budget, depth: info.depth, width: info.width, concurrency: 1 };
    let mut policy = Registry::builtin().build("best-first", &serde_json::json!({}), &limits)?;
    let law = source.law(temperature);
    let setup = RunSetup { budget, concurrency: 1, law: &law, cost: None };
    let mut times: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    run(engine, &mut *policy, requests, &setup, &mut |view| {
        let [entry] = view.log.entries.as_slice() else { return };
        if let Some(t) = view.log.times.filter(|_| (COLD..ROUNDS).contains(&entry.step)) {
            times.entry(entry.rows).or_default().push(t.round());
        }
    })?;
    Ok(times)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    let half = times.len() / 2;
    if times.len() % 2 == 1 { times[half] } else { (times[half - 1] + times[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::{calibrate, median};
    use crate::config::{self, Overrides};
    use std::path::Path;
    use treeline_policies::Registry;

    /// At once, before anything is loaded.
    #[test]
    fn the_emulator_is_not_calibrated() {
        let text = r#"
            name = "x"
            seed = 1
            record = "summary"
            target = { checkpoint = "kimi_k2" }
            drafter = { kind = "dflash", checkpoint = "dflash_kimi", width = 4 }
            backend = { kind = "cuda", context = 64 }
            cuda = { dtype = "f32", emulated = true }
            sampling = { law = "greedy", temperature = [0] }
            [workload]
            max_new = 8
            ignore_eos = true
            chat = "off"
            concurrency = [1]
            prompts = [{ file = "kimi_k2/config.json" }]
            [[policy]]
            kind = "chain"
            budget = [4]
        "#;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-cpu/tests/fixtures");
        let registry = Registry::builtin();
        let experiment = config::parse(text, "x.toml", &folder, &registry, &Overrides::default()).unwrap();
        let says = calibrate(&experiment, true).unwrap_err().to_string();
        assert!(says.contains("`emulated`"), "{says}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
