//! Runs that were killed, and cells that fail.

use super::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use treeline_core::{Ask, DraftView, Forest, Grow, Limits, Needs, NodeRef, Round, TreePolicy};
use treeline_policies::{BuildError, PolicyConfig};

fn resume(dir: &Path, source: &Mock, experiment: &Experiment) -> Outcome {
    let options = Options { resume: true, ..options(dir) };
    execute(source, experiment, &Registry::builtin(), &options).unwrap()
}

fn kept(dir: &Path) -> Vec<bool> {
    let manifest = json_file(&dir.join("manifest.json"));
    manifest["cells"].as_array().unwrap().iter().map(|c| c["kept"].as_bool().unwrap()).collect()
}

/// Killed in the middle: some cells are missing, one is half written, one has lost its rounds.
#[test]
fn a_killed_run_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let first = run_in(dir.path(), &Mock::block(), &experiment());
    let file = |i: usize, ext: &str| dir.path().join("cells").join(format!("{}.{ext}", first.details[i].key));
    std::fs::remove_file(dir.path().join("summary.json")).unwrap();
    std::fs::remove_file(file(2, "json")).unwrap();
    let whole = std::fs::read(file(5, "json")).unwrap();
    std::fs::write(file(5, "json"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(file(7, "parquet"), b"PAR1").unwrap();
    std::fs::remove_file(file(9, "parquet")).unwrap();

    let source = Mock::block();
    let second = resume(dir.path(), &source, &experiment());
    assert_eq!(source.engines.load(Relaxed), 1 + 4, "one to plan with, four cells to repeat");
    let repeated: Vec<usize> = kept(dir.path()).iter().enumerate().filter(|(_, k)| !**k).map(|(i, _)| i).collect();
    assert_eq!(repeated, [2, 5, 7, 9]);
    let figures = |o: &Outcome| {
        let mut details = o.details.clone();
        details.iter_mut().for_each(|d| d.cell.notes.clear());
        details
    };
    assert_eq!(figures(&second), figures(&first));
    assert!(dir.path().join("summary.json").is_file());
}

/// A request that fails beside others that finish is in no figure, and said so.
#[test]
fn a_failed_request_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Mock::block();
    source.script.nan_target = Some((2, 30));
    let outcome = run_in(dir.path(), &source, &experiment());
    assert!(outcome.failed.is_empty() && outcome.details.iter().all(|d| d.cell.requests == 9));
    let said = |lines: &[String]| lines.iter().any(|w| w.starts_with("1 of 10 requests failed and are in no figure"));
    assert!(outcome.details.iter().all(|d| said(&d.warnings)));
    assert!(said(&outcome.summary.warnings), "{:?}", outcome.summary.warnings);
    let sound = run_in(&dir.path().join("sound"), &Mock::block(), &experiment());
    assert!(!sound.details.iter().any(|d| said(&d.warnings)));
}

/// A cell of another seed, prompt or cost is another cell: it is not taken for this one.
#[test]
fn only_the_same_cells_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), &Mock::block(), &experiment());
    resume(dir.path(), &Mock::block(), &experiment());
    assert!(kept(dir.path()).iter().all(|k| *k));
    let mut other = Mock::block();
    other.facts.identity = json!({ "script": "other prompts" });
    resume(dir.path(), &other, &experiment());
    assert!(kept(dir.path()).iter().all(|k| !k));
    resume(dir.path(), &Mock::block(), &Experiment { bootstrap: 201, ..experiment() });
    assert!(kept(dir.path()).iter().all(|k| !k));
}

/// A policy that panics at its third round.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Panics {}

impl PolicyConfig for Panics {
    const KIND: &'static str = "panics";
    const ABOUT: &'static str = "panics";
    fn example() -> Self {
        Self {}
    }
    fn build(self, _limits: &Limits) -> Result<Box<dyn TreePolicy>, BuildError> {
        Ok(Box::new(self))
    }
}

impl TreePolicy for Panics {
    fn kind(&self) -> &str {
        Self::KIND
    }
    fn needs(&self, _limits: &Limits) -> Needs {
        Needs::default()
    }
    fn ask(&mut self, round: &Round<'_>, ask: &mut Vec<Ask>) {
        assert!(round.index < 2, "the third round is too much");
        ask.resize(round.batch.len(), Ask::default());
    }
    fn grow(&mut self, _: &Round<'_>, _: &dyn DraftView, _: &mut Forest, _: &mut Vec<NodeRef>) -> Grow {
        Grow::Done
    }
}

#[test]
fn a_cell_that_panics_is_reported_and_the_others_finish() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry::builtin();
    registry.register::<Panics>().unwrap();
    let mut source = Mock::block();
    // A warm-up of a few steps would panic too; without a clock there is none.
    source.facts.clock = false;
    let mut e = Experiment { concurrency: vec![1], ..experiment() };
    e.policies.insert(0, policy("panics", &[4], json!({})));
    let outcome = execute(&source, &e, &registry, &options(dir.path())).unwrap();
    assert_eq!(outcome.failed.len(), 2, "one per temperature");
    for (label, why) in &outcome.failed {
        assert!(label.contains("panics budget 4"), "{label}");
        assert!(why.contains("panicked: the third round is too much"), "{why}");
    }
    assert_eq!(outcome.details.len(), 10);
    let warning = outcome.summary.warnings.iter().find(|w| w.contains("2 cells failed")).unwrap();
    assert!(warning.contains("--resume"));
    assert_eq!(json_file(&dir.path().join("manifest.json"))["failed"].as_array().unwrap().len(), 2);
    // A failed cell has no file, so a resumed run repeats it and it alone.
    let again = Options { resume: true, ..options(dir.path()) };
    assert_eq!(execute(&source, &e, &registry, &again).unwrap().failed.len(), 2);
    assert_eq!(kept(dir.path()).iter().filter(|k| !**k).count(), 2);
}

/// One request fails, its neighbours go on; where all fail the cell has.
#[test]
fn faults_are_counted_not_averaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Mock::block();
    source.script.nan_target = Some((2, 30));
    let outcome = run_in(dir.path(), &source, &experiment());
    for d in &outcome.details {
        assert_eq!(d.cell.requests, 9);
        assert_eq!(d.faults.len(), 1);
        assert!(d.faults[0].0 == 2 && d.faults[0].1.contains("NaN"), "{:?}", d.faults);
        assert!(d.per_request.iter().all(|r| r.id != 2));
    }
    assert!(outcome.summary.warnings.iter().any(|w| w.contains("1 requests ended with a fault")));
    source.script.nan_target = None;
    source.max_new = 1 << 20;
    source.requests = 1;
    source.script.context = 3;
    source.facts.clock = false;
    let outcome = run_in(&dir.path().join("b"), &source, &experiment());
    assert_eq!(outcome.details.len(), 0);
    assert!(outcome.failed.iter().all(|f| f.1.contains("no request finished")), "{:?}", outcome.failed);
}
