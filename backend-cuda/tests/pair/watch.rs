//! A policy that looks at every draft and proposes nothing: plain decoding, with the true tokens' ranks noted.

use crate::pairs::Script;
use treeline_core::{
    Ask, DraftView, Engine, Forest, Grow, Law, Limits, Needs, NodeRef, Request, Round, RunSetup, TreePolicy, Truth, run,
};

/// Rank of the true token at one level behind one position; `None` = not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub request: u64,
    pub root: u32,
    pub level: u32,
    pub rank: Option<u32>,
}

struct Watch<'t> {
    truth: &'t Script,
    width: u32,
    places: Vec<Place>,
}

impl TreePolicy for Watch<'_> {
    fn kind(&self) -> &str {
        "watch"
    }

    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth, width: self.width, ..Needs::default() }
    }

    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth, width: self.width, draw: round.draw }));
    }

    fn grow(&mut self, round: &Round<'_>, drafts: &dyn DraftView, _: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        for (at, seq) in (0..).zip(round.batch.iter()) {
            assert_eq!(drafts.fault(at), None);
            for level in 1..=drafts.depth(at) {
                let row = drafts.level(at, level).unwrap();
                let Some(token) = self.truth.token(seq.request, seq.start, level) else { break };
                let rank = row.iter().position(|c| c.token == token).map(|r| r as u32);
                self.places.push(Place { request: seq.request, root: seq.start, level, rank });
            }
        }
        Grow::Done
    }
}

/// Every place where `truth` ranks in the drafts of `engine`, `width` ranks a row, along `truth` itself.
pub fn places<E: Engine>(engine: &mut E, requests: &[Request], truth: &Script, width: u32) -> Vec<Place> {
    let (info, law) = (engine.info(), Law::Forced(truth));
    let setup = RunSetup { budget: info.depth, concurrency: info.slots, law: &law, cost: None };
    let mut watch = Watch { truth, width, places: Vec::new() };
    let responses = run(engine, &mut watch, requests, &setup, &mut |_| {}).unwrap();
    assert!(responses.iter().all(|r| r.end.is_ok()), "{:?}", responses.iter().find(|r| r.end.is_err()));
    watch.places.sort_unstable();
    watch.places
}
