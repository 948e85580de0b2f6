//! Admission by an engine whose requests arrive over time: it is asked in list order, idles only when nothing runs, and a
//! request that never arrives ends the run with an error.

use crate::common::{VOCAB, plain, requests};
use treeline_core::testing::{MockDrafter, MockEngine, MockVerifier, Script, Shape};
use treeline_core::{Admit, Engine, EngineInfo, Error, Fault, Law, Phase, Request, RunSetup, Sampling, run};

/// Request `id` arrives at time `at[id]`; a round takes one unit of time. `None` never comes.
struct Arriving {
    inner: MockEngine,
    at: Vec<Option<u32>>,
    now: u32,
    idles: Vec<u32>,
    asked: Vec<u64>,
    admitted: Vec<(u64, u32)>,
}

impl Engine for Arriving {
    type V = MockVerifier;
    type D = MockDrafter;

    fn info(&self) -> EngineInfo {
        self.inner.info()
    }

    fn ready(&mut self, request: &Request) -> bool {
        self.asked.push(request.id);
        self.at[request.id as usize].is_some_and(|at| at <= self.now)
    }

    fn idle(&mut self) {
        self.idles.push(self.now);
        let next = self.asked.last().and_then(|&id| self.at[id as usize]);
        self.now = next.unwrap_or(self.now).max(self.now);
    }

    fn admit(&mut self, slot: u32, request: &Request, law: &Law<'_>) -> Result<Admit, Fault> {
        let admit = self.inner.admit(slot, request, law)?;
        if matches!(admit, Admit::Done { .. }) {
            self.admitted.push((request.id, self.now));
        }
        Ok(admit)
    }

    fn release(&mut self, slot: u32) {
        self.inner.release(slot);
    }

    fn parts(&mut self) -> (&mut MockDrafter, &mut MockVerifier, &mut Vec<Vec<u32>>) {
        self.inner.parts()
    }

    fn mark(&mut self, phase: Phase) {
        self.now += u32::from(phase == Phase::Verify);
    }
}

fn arriving(at: &[Option<u32>]) -> (Arriving, Result<Vec<treeline_core::Response>, Error>) {
    let (inner, at) = (MockEngine::new(Script::new(VOCAB)), at.to_vec());
    let mut engine = Arriving { inner, at, now: 0, idles: vec![], asked: vec![], admitted: vec![] };
    let list = requests(engine.at.len() as u64, 12, Sampling::GREEDY);
    let setup = RunSetup { budget: 0, concurrency: 2, law: &Law::Greedy, cost: None };
    let responses = run(&mut engine, &mut Shape::chain(0), &list, &setup, &mut |_| {});
    (engine, responses)
}

#[test]
fn requests_join_when_they_arrive_and_the_gap_between_them_is_idled_over() {
    // 11 verify steps a request of 12 tokens. Number 2 waits for a slot, number 3 comes when all is quiet.
    let (engine, responses) = arriving(&[Some(0), Some(4), Some(5), Some(100)]);
    let list = requests(4, 12, Sampling::GREEDY);
    for (response, request) in responses.unwrap().iter().zip(&list) {
        assert_eq!(response.tokens, plain(&Script::new(VOCAB), request, 0));
    }
    assert_eq!(engine.admitted, [(0, 0), (1, 4), (2, 11), (3, 100)]);
    assert_eq!(engine.idles, [22], "it idles only when nothing runs");
    assert!(engine.asked.is_sorted(), "asked in list order");
}

#[test]
fn a_request_that_waits_holds_up_those_behind_it() {
    let (engine, responses) = arriving(&[Some(0), Some(30), Some(0)]);
    assert!(responses.is_ok());
    assert_eq!(engine.admitted, [(0, 0), (1, 30), (2, 30)]);
}

#[test]
fn a_request_that_never_comes_ends_the_run_with_an_error() {
    let (engine, responses) = arriving(&[Some(0), None, Some(0)]);
    assert_eq!(responses, Err(Error::Stalled { request: 1 }));
    assert_eq!(engine.idles.len(), 1, "idled once, not for ever");
}
