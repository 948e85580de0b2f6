//! Drafts while a batch shrinks and grows: each is the CPU engine's, so no context of a drafter has a hole.

use crate::pairs::alone::Alone;
use crate::pairs::policy;
use crate::subject::subjects;
use serde_json::json;
use std::collections::BTreeMap;
use treeline_core::{Engine, Law, Request, RoundView, RunSetup, Sampling, TreePolicy, run};
use treeline_cuda::device::Dtype;

/// Log-probabilities of the drafter's best candidates, by request, root and level.
type Drafts = BTreeMap<(u64, u32, u32), f32>;

fn drafts<E: Engine>(engine: &mut E, requests: &[Request], staged: bool) -> Drafts {
    let mut own = policy("chain", &json!({}), 4, engine);
    let mut alone = Alone(&mut *own);
    let setup = RunSetup { budget: 4, concurrency: engine.info().slots, law: &Law::Greedy, cost: None };
    let mut found = Drafts::new();
    let mut sink = |view: &RoundView<'_>| {
        let drafts = view.drafts.unwrap();
        for (at, seq) in (0..).zip(view.batch.iter()) {
            for level in 1..=drafts.depth(at) {
                found.insert((seq.request, seq.start, level), drafts.level(at, level).unwrap()[0].logp);
            }
        }
    };
    let policy: &mut dyn TreePolicy = if staged { &mut alone } else { &mut *alone.0 };
    run(engine, policy, requests, &setup, &mut sink).unwrap();
    found
}

/// Sequences end one by one from the front of the batch, so that those of the back change places, past every power of two.
#[test]
fn drafts_of_a_batch_that_shrinks_are_the_cpu_engines() {
    for subject in subjects(Dtype::F32) {
        let mut requests = subject.requests(7, 10, Sampling::GREEDY);
        for (request, max_new) in requests.iter_mut().zip([4, 6, 8, 10, 12, 20, 24]) {
            request.max_new = max_new;
        }
        let cpu = drafts(&mut subject.on_cpu(), &requests, true);
        for staged in [false, true] {
            let cuda = drafts(&mut subject.engine(5, 16), &requests, staged);
            assert!(cuda.len() > 100 && cuda.len() == cpu.len(), "{} and {} drafts", cuda.len(), cpu.len());
            let mut most = 0.0f32;
            for (key, logp) in &cuda {
                let off = (logp - cpu[key]).abs();
                assert!(off <= 2e-3, "{}, staged {staged}: request, root, level {key:?}: {off:e}", subject.name());
                most = most.max(off);
            }
            println!("{}, staged {staged}: {} drafts, at most {most:.1e} apart", subject.name(), cuda.len());
        }
    }
}
