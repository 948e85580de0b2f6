//! The CUDA engine among the others: a trace that the CPU engine recorded, replayed by the simulator and forced on a GPU.
#![allow(clippy::print_stdout, reason = "the figures go to docs/numbers/validation.md")]

use crate::mini::{Case, Drafter, cases, engine, models, requests, run_case};
use std::sync::Arc;
use treeline_core::{Law, RoundView};
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::{CudaPair, CudaSettings, DrafterSource, PairOptions};
use treeline_cuda::testing::real;
use treeline_sim::{Frontier, RecordSetup, ReplayEngine, record};

/// Requests at once.
const SLOTS: u32 = 4;

/// (request, step, rows, accepted), in that order.
type Steps = Vec<(u64, u32, u32, u32)>;

fn steps(view: &RoundView<'_>, out: &mut Steps) {
    for e in &view.log.entries {
        out.push((e.request, e.step, e.rows, e.result.as_ref().unwrap().accepted()));
    }
}

/// Emitted tokens are the trace's, and steps are the simulator's but where rounding moved a node of a tree: in fewer than
/// one of a hundred.
#[test]
fn a_cpu_trace_forced_on_a_gpu_gives_the_simulators_steps() {
    let Some(gpu) = real() else { return };
    let law = Law::SampleMatch { seed: 5 };
    let live = requests(10, 48, 0.7);
    let domains = vec!["any".to_owned(); live.len()];
    let frontier = Frontier::default();
    let setup = RecordSetup { width: 64, frontier, law: &law, concurrency: SLOTS, domains: &domains, source: "test" };
    let recorded = record(&mut engine(Drafter::Dflash, SLOTS), &live, &setup, &mut |_| {}).unwrap();
    assert!(recorded.faults.is_empty(), "{:?}", recorded.faults);
    let trace = Arc::new(recorded.trace);

    let dir = models().join("mini-dflash");
    let options = PairOptions { dtype: Dtype::F32, context: crate::mini::CONTEXT };
    let pair = CudaPair::load(&gpu, &models().join("mini-target"), &DrafterSource::Dflash { dir }, &options).unwrap();
    let mut on_gpu = pair.engine(CudaSettings::new(SLOTS, crate::mini::CONTEXT, 32)).unwrap();
    for case in cases().into_iter().filter(|c| c.drafter == Drafter::Dflash) {
        let case = Case { drafter: Drafter::Dflash, ..case };
        let (mut replayed, mut forced) = (Steps::new(), Steps::new());
        let mut replay = ReplayEngine::new(trace.clone(), SLOTS).unwrap();
        let asked = treeline_sim::requests(&trace);
        run_case(&mut replay, &case, &asked, &Law::SampleMatch { seed: 0 }, SLOTS, &mut |v| steps(v, &mut replayed));
        let responses =
            run_case(&mut on_gpu, &case, &live, &Law::Forced(&*trace), SLOTS, &mut |v| steps(v, &mut forced));
        for response in &responses {
            assert!(response.end.is_ok(), "{}: {:?}", case.kind, response.end);
            assert_eq!(response.tokens, trace.request(response.request).unwrap().tokens, "{}", case.kind);
        }
        replayed.sort_unstable();
        forced.sort_unstable();
        let same = replayed.iter().filter(|step| forced.binary_search(step).is_ok()).count();
        let total = |s: &Steps| s.iter().map(|x| u64::from(x.3) + 1).sum::<u64>() as f64 / s.len() as f64;
        let (sim, cuda) = (total(&replayed), total(&forced));
        println!(
            "{} {}: tau {sim:.4} replayed, {cuda:.4} forced on the GPU, {same} of {} steps equal",
            case.kind,
            case.budget,
            replayed.len()
        );
        assert!(same * 100 >= replayed.len() * 99, "{}: {same} of {}", case.kind, replayed.len());
        assert!((cuda / sim - 1.0).abs() <= 0.005, "{}: {cuda} against {sim}", case.kind);
    }
    assert!(on_gpu.device_rounds() > 0);
}
