//! Commit, rollback, slots and faults of single requests over many rounds.

use super::{Noise, admit, bits, dflash_pair, engine, equal, forest, holds, model};
use crate::seeded::Seeded;
use crate::{CpuEngine, CpuPair, EngineSettings, Model, Scorer};
use std::sync::Arc;
use treeline_core::testing::Shape;
use treeline_core::{
    Admit, Ask, Batch, DraftView, Drafter, Draw, End, Engine, Fault, Law, Request, RoundLog, RunSetup, Sampling,
    Verifier,
};

/// Runs rounds of random trees, some of which are accepted in part, and returns the engine with its sequence.
fn some_rounds(pair: &CpuPair) -> (CpuEngine, Batch, Vec<u32>) {
    let mut noise = Noise(25);
    let mut engine = engine(pair, 3);
    let mut history = noise.tokens(21);
    let mut batch = Batch { seqs: vec![admit(&mut engine, 1, &history, None, Sampling::GREEDY)] };
    for round in 0..9 {
        // Along the target's own choice for the first levels, so that paths of several lengths are accepted.
        let root = batch.seqs[0].root;
        let mut scorer = Scorer::new(pair.target().clone());
        scorer.extend(&history);
        let (mut tokens, mut parents) = (vec![root, noise.below(60)], vec![0, 0]);
        let mut at = 0;
        for _ in 0..round % 4 {
            let row = scorer.extend(&[tokens[at as usize]]);
            let best = treeline_core::sampling::argmax(row.row(0).as_slice().unwrap(), 0).unwrap();
            tokens.extend([noise.below(60), best]);
            parents.extend([at, at]);
            at = tokens.len() as u32 - 1;
        }
        let forest = forest(&batch, &[(tokens, parents)]);
        let ask = [Ask { depth: 3, width: 4, draw: Draw::Ranked }];
        let (drafter, verifier, features) = engine.parts();
        let drafts = drafter.draft(&batch, features, &ask).unwrap();
        let verdict = verifier.verify(&batch, &forest, &drafts, &Law::Greedy).unwrap();
        let mut log = RoundLog::default();
        verifier.commit(&batch, &forest, verdict, features, &mut log).unwrap();
        let step = log.results.remove(0).unwrap();
        history.push(root);
        history.extend(&step.emitted[..step.emitted.len() - 1]);
        let seq = &mut batch.seqs[0];
        (seq.start, seq.root, seq.round) = (history.len() as u32, step.last().unwrap(), seq.round + 1);
    }
    (engine, batch, history)
}

fn fresh(pair: &CpuPair, history: &[u32], root: u32) -> (CpuEngine, Batch) {
    let mut engine = engine(pair, 3);
    let seq = admit(&mut engine, 1, history, Some(root), Sampling::GREEDY);
    (engine, Batch { seqs: vec![seq] })
}

fn drafted(engine: &mut CpuEngine, batch: &Batch) -> Vec<(u32, u32)> {
    let (drafter, _, features) = engine.parts();
    let drafts = drafter.draft(batch, features, &[Ask { depth: 7, width: 64, draw: Draw::Ranked }]).unwrap();
    let rows = (1..=drafts.depth(0)).flat_map(|d| drafts.level(0, d).unwrap());
    rows.map(|c| (c.token, c.logp.to_bits())).collect()
}

/// After rounds with rejections, the drafter proposes exactly what it would after a fresh prefill of the same text.
#[test]
fn fault_25_a_rejection_leaves_nothing_behind() {
    let pair = dflash_pair();
    holds(Seeded::RejectedFeatures, || {
        let (mut used, batch, history) = some_rounds(&pair);
        let (mut new, same) = fresh(&pair, &history, batch.seqs[0].root);
        equal(drafted(&mut used, &batch), drafted(&mut new, &same), || "the next draft differs".into())
    });
}

/// Accepted rows stand at consecutive slots in depth order; 27: on every layer.
#[test]
fn fault_26_and_27_the_accepted_path_is_gathered_on_every_layer() {
    let pair = dflash_pair();
    for fault in [Seeded::ScatteredPath, Seeded::LayerSkipsGather] {
        holds(fault, || {
            let (mut used, batch, history) = some_rounds(&pair);
            let (mut new, _) = fresh(&pair, &history, batch.seqs[0].root);
            let dump = |engine: &mut CpuEngine| engine.parts().1.kvs[1].dump(history.len());
            let (a, b) = (dump(&mut used), dump(&mut new));
            (0..a.len()).try_for_each(|l| equal(&a[l], &b[l], || format!("cache of layer {l}")))
        });
    }
}

/// Accept [0, 2, 5] of a tree: slots 0, 1, 2 in order.
#[test]
fn fault_26_a_scattered_path() {
    let model = model("qwen3");
    let mut scorer = Scorer::new(model.clone());
    let past = [4, 8, 15, 16];
    scorer.extend(&past);
    scorer.tree(&[23, 1, 42, 7, 8, 9], &[0, 0, 0, 1, 1, 2]);
    scorer.commit(&[0, 2, 5]);
    let got = scorer.extend(&[30]);
    let want = Scorer::new(model).extend(&[4, 8, 15, 16, 23, 42, 9, 30]);
    assert_eq!(bits(got.row(0)), bits(want.row(7)));
}

#[test]
fn fault_28_no_slot_leaks_in_a_thousand_rounds() {
    let pair = dflash_pair();
    holds(Seeded::SlotLeak, || {
        let mut engine = pair.engine(EngineSettings { slots: 3, context: 64, chunk: 16 }).unwrap();
        let request = |id: u64| {
            let max_new = 1 + (id % 9) as u32;
            Request {
                id,
                prompt: vec![(id % 50) as u32; 1 + id as usize % 5],
                max_new,
                eos: vec![],
                sampling: Sampling::GREEDY,
            }
        };
        // 10 and 20 have no prompt, 30 does not fit: refused requests give their slot back too.
        let mut requests: Vec<Request> = (0..600).map(request).collect();
        requests[10].prompt.clear();
        requests[20].prompt = vec![64];
        requests[30].prompt = vec![1; 65];
        let setup = RunSetup { budget: 3, concurrency: 3, law: &Law::Greedy, cost: None };
        let mut rounds = 0;
        let responses = treeline_core::run(&mut engine, &mut Shape::chain(3), &requests, &setup, &mut |_| rounds += 1);
        let responses = responses.map_err(|e| e.to_string())?;
        let refused: Vec<usize> = (0..600).filter(|&i| responses[i].end.is_err()).collect();
        equal(refused, vec![10, 20, 30], || "other requests were refused".into())?;
        equal(rounds >= 500, true, || format!("only {rounds} rounds"))?;
        equal(engine.free(), 3, || format!("{} of 3 slots are free", engine.free()))
    });
}

/// A pair whose target and drafter turn NaN wherever token `nan` is in the context.
fn poisoned(nan: u32) -> CpuPair {
    let mut target = Model::load(&super::fixture("kimi_k2")).unwrap();
    target.poison(nan);
    let source = crate::DrafterSource::Dflash { dir: super::fixture("dflash_kimi") };
    CpuPair::with_target(Arc::new(target), &source).unwrap()
}

/// Public faults 2 and 7: a NaN row fails its own request, by name, and the neighbours' text does not change.
#[test]
fn fault_02_and_07_nan_ends_one_request_alone() {
    let request = |id: u64| Request {
        id,
        prompt: vec![7 + id as u32, 11, 12],
        max_new: 20,
        eos: vec![],
        sampling: Sampling::GREEDY,
    };
    let mut requests: Vec<Request> = (0..4).map(request).collect();
    let run = |pair: &CpuPair, requests: &[Request]| {
        let setup = RunSetup { budget: 5, concurrency: 4, law: &Law::Greedy, cost: None };
        let mut engine = engine(pair, 4);
        treeline_core::run(&mut engine, &mut Shape::chain(5), requests, &setup, &mut |_| {}).unwrap()
    };
    let want = run(&dflash_pair(), &requests);
    // A token that no healthy request meets.
    let nan = (13..60).find(|t| want.iter().all(|r| !r.tokens.contains(t))).unwrap();
    requests[2].prompt[2] = nan;
    let got = run(&poisoned(nan), &requests);
    assert!(matches!(got[2].end, Err(Fault::TargetLogits { .. })), "{:?}", got[2].end);
    for i in [0, 1, 3] {
        assert_eq!((&got[i].tokens, &got[i].end), (&want[i].tokens, &Ok(End::Length)), "request {i}");
    }
}

/// The same, with the NaN first met by the drafter (2) or by the target (7) in the middle of decoding.
#[test]
fn fault_02_and_07_nan_in_the_middle_of_decoding() {
    let sick = poisoned(63);
    for (fault, in_tree) in [(Seeded::NanIsZero, false), (Seeded::NanIsTokenZero, true)] {
        holds(fault, || {
            let mut engine = engine(&sick, 2);
            let a = admit(&mut engine, 0, &[5, 6, 7], Some(if in_tree { 20 } else { 63 }), Sampling::GREEDY);
            let b = admit(&mut engine, 1, &[8, 9], None, Sampling::GREEDY);
            let (a_root, b_root) = (a.root, b.root);
            let batch = Batch { seqs: vec![a, b] };
            let (drafter, verifier, features) = engine.parts();
            let ask = [Ask { depth: 3, width: 2, draw: Draw::Ranked }; 2];
            let drafts = drafter.draft(&batch, features, &ask).map_err(|e| e.to_string())?;
            let bad = |seq| matches!(drafts.fault(seq), Some(Fault::Draft { .. }));
            if !in_tree {
                return equal((bad(0), bad(1)), (true, false), || "the draft's fault is not on request 0".into());
            }
            // The target's row of the root turns NaN when the root's embedding does.
            let mut batch = batch;
            batch.seqs[0].root = 63;
            let forest = forest(&batch, &[(vec![63, a_root], vec![0, 0]), (vec![b_root, 3], vec![0, 0])]);
            let verdict = verifier.verify(&batch, &forest, &drafts, &Law::Greedy).map_err(|e| e.to_string())?;
            let mut log = RoundLog::default();
            verifier.commit(&batch, &forest, verdict, features, &mut log).map_err(|e| e.to_string())?;
            let ends: Vec<bool> = log.results.iter().map(Result::is_ok).collect();
            equal(ends, vec![false, true], || format!("{:?}", log.results))
        });
    }
}

/// A request whose context fills up ends in good order; its neighbour goes on.
#[test]
fn a_full_context_ends_one_request_alone() {
    let pair = dflash_pair();
    let mut engine = pair.engine(EngineSettings { slots: 2, context: 40, chunk: 16 }).unwrap();
    let request =
        |id, len, max_new| Request { id, prompt: vec![9; len], max_new, eos: vec![], sampling: Sampling::GREEDY };
    let requests = [request(0, 30, 100), request(1, 3, 30)];
    let setup = RunSetup { budget: 7, concurrency: 2, law: &Law::Greedy, cost: None };
    let responses =
        treeline_core::run(&mut engine, &mut Shape::widths(&[2, 1, 1]), &requests, &setup, &mut |_| {}).unwrap();
    assert_eq!(responses[0].end, Ok(End::Context));
    assert_eq!(responses[0].tokens.len(), 40 - 30 + 1);
    assert_eq!((&responses[1].end, responses[1].tokens.len()), (&Ok(End::Length), 30));
    assert_eq!(engine.free(), 2);
}

/// A request that comes back with fewer tokens than were taken of its prompt is refused and gives its slot back; what it left
/// there shows in no later request.
#[test]
fn a_prompt_that_changes_on_its_way_is_refused() {
    let pair = dflash_pair();
    let settings = EngineSettings { slots: 1, context: 200, chunk: 3 };
    let request = |id: u64, prompt: &[u32]| Request {
        id,
        prompt: prompt.to_vec(),
        max_new: 9,
        eos: Vec::new(),
        sampling: Sampling::GREEDY,
    };
    let mut engine = pair.engine(settings).unwrap();
    for prompt in [&[5, 6][..], &[5], &[5, 6, 7, 8, 9, 10, 11, 12]] {
        assert_eq!(engine.admit(0, &request(1, &[5, 6, 7, 8, 9]), &Law::Greedy), Ok(Admit::More));
        let neighbour = engine.admit(0, &request(2, &[4]), &Law::Greedy).unwrap_err();
        assert!(neighbour.to_string().contains("taken by request 1"), "{neighbour}");
        let fault = engine.admit(0, &request(1, prompt), &Law::Greedy).unwrap_err().to_string();
        assert!(fault.contains("had 5 when its first chunk"), "{fault}");
        assert_eq!(engine.free(), 1);
    }
    let used = admit(&mut engine, 0, &[8, 9, 10, 11], None, Sampling::GREEDY);
    let fresh = admit(&mut pair.engine(settings).unwrap(), 0, &[8, 9, 10, 11], None, Sampling::GREEDY);
    assert_eq!((used.root, used.start), (fresh.root, fresh.start));
}
