//! A policy that reads measured time is reproduced from what it saw.

use super::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Round, TreeBuilder, TreePolicy};
use treeline_policies::{BuildError, PolicyConfig};

/// A chain whose length depends on the last round's time in a way that no two clocks share.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Timed {
    #[serde(skip)]
    length: u32,
}

impl PolicyConfig for Timed {
    const KIND: &'static str = "timed";
    const ABOUT: &'static str = "length by time";
    fn example() -> Self {
        Self { length: 0 }
    }
    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        Ok(Box::new(self))
    }
}

impl TreePolicy for Timed {
    fn kind(&self) -> &str {
        Self::KIND
    }
    fn needs(&self, limits: &Limits) -> Needs {
        Needs { depth: limits.depth, width: 1, time: true, ..Needs::default() }
    }
    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        ask.extend(round.caps.iter().map(|c| Ask { depth: c.depth.min(self.length), width: 1, draw: round.draw }));
    }
    fn grow(&mut self, _: &Round<'_>, drafts: &dyn DraftView, forest: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        for seq in 0..forest.len() {
            for depth in 1..=drafts.depth(seq as u32) {
                if let Some([best, rest @ ..]) = drafts.level(seq as u32, depth) {
                    assert!(rest.is_empty(), "the policy sees what it asked for");
                    TreeBuilder::new(forest.tree_mut(seq)).add(depth - 1, 0, *best).unwrap();
                }
            }
        }
        Grow::Done
    }
    fn observe(&mut self, log: &RoundLog) {
        self.length = log.times.map_or(0, |t| (t.round() * 1.7) as u32 % 6);
    }
}

fn timed() -> (Registry, Experiment) {
    let mut registry = Registry::builtin();
    registry.register::<Timed>().unwrap();
    let policies = vec![policy("timed", &[5], json!({}))];
    (registry, Experiment { policies, baseline: false, ..experiment() })
}

#[test]
fn logged_times_reproduce_the_trees() {
    let (registry, e) = timed();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let first = execute(&Mock::block(), &e, &registry, &options(&at("first"))).unwrap();
    // Another machine: everything takes a third of the time.
    let fast = Mock { speed: 3.0, ..Mock::block() };
    let free = execute(&fast, &e, &registry, &options(&at("free"))).unwrap();
    let replay = Options { replay_observations: Some(at("first")), ..options(&at("replay")) };
    let replayed = execute(&fast, &e, &registry, &replay).unwrap();
    let trees = |o: &Outcome| {
        let cell = |d: &crate::results::CellDetail| (d.cell.rows_mean, d.cell.tau, d.emitted_histogram.clone());
        o.details.iter().map(cell).collect::<Vec<_>>()
    };
    assert_eq!(trees(&replayed), trees(&first));
    // Negative control: with its own clock the fast machine draws other trees.
    assert_ne!(trees(&free), trees(&first));
    // The figures stay the machine's own.
    assert!(replayed.details[0].cell.step_ms.unwrap() < first.details[0].cell.step_ms.unwrap() / 2.0);
}

#[test]
fn observations_that_do_not_belong_are_refused() {
    let (registry, e) = timed();
    let dir = tempfile::tempdir().unwrap();
    let missing = Options { replay_observations: Some(dir.path().join("none")), ..options(&dir.path().join("a")) };
    let outcome = execute(&Mock::block(), &e, &registry, &missing).unwrap();
    assert!(outcome.failed.iter().all(|f| f.1.contains("no observations of this cell")), "{:?}", outcome.failed);
    assert!(outcome.details.is_empty());
    let plain = execute(&Mock::block(), &experiment(), &registry, &missing_at(&dir)).unwrap_err();
    assert!(plain.to_string().contains("reads measured time"), "{plain}");
}

fn missing_at(dir: &tempfile::TempDir) -> Options {
    Options { replay_observations: Some(dir.path().join("none")), ..options(&dir.path().join("b")) }
}
