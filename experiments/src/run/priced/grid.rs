//! The grid: every candidate of every group on nested tables, which are built once per source.

use super::cells::Frame;
use super::plan::Group;
use super::store::{GroupFile, load, store};
use crate::decide::answer;
use crate::priced::{PLAIN, Prepared, Ready, Simulated};
use crate::results::FailedCell;
use crate::run::execute::message;
use crate::run::progress::Progress;
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

/// What became of a group.
pub(super) struct Done {
    /// Its file; `None` when its source or the group itself failed.
    pub file: Option<GroupFile>,
    /// Cells that failed, each with its label.
    pub failed: Vec<(String, FailedCell)>,
    /// Whether an earlier run had finished it.
    pub kept: bool,
    /// Seconds that it took.
    pub wall_s: Option<f64>,
}

/// Runs the groups that `dir` does not hold yet; source by source, each group's file written as it finishes.
pub(super) fn run(prepared: &Prepared<'_>, groups: &[Group], dir: &Path, resume: bool, quiet: bool) -> Vec<Done> {
    let kept: Vec<Option<GroupFile>> = groups.iter().map(|g| resume.then(|| load(dir, g)).flatten()).collect();
    let cells = |wanted: bool| -> usize {
        groups.iter().zip(&kept).filter(|(_, k)| k.is_some() == wanted).map(|(g, _)| g.runs.len()).sum()
    };
    let (left, finished) = (cells(false), cells(true));
    // In request-rounds: a cell of hours must be seen to move.
    let progress = Progress::new(left + finished, finished, left as u64 * u64::from(prepared.run.rounds), quiet);
    let bench = Bench { prepared, dir, progress: &progress };
    let sources: Vec<usize> = (0..prepared.sources.len()).collect();
    let mut done: Vec<(usize, Done)> = sources
        .into_par_iter()
        .with_max_len(1)
        .flat_map_iter(|source| {
            let of = |i: &usize| groups[*i].acceptance == source;
            let wanted: Vec<usize> = (0..groups.len()).filter(of).filter(|&i| kept[i].is_none()).collect();
            bench.source(source, groups, &wanted)
        })
        .collect();
    progress.finish();
    for (i, file) in kept.into_iter().enumerate() {
        if file.is_some() {
            done.push((i, Done { file, failed: Vec::new(), kept: true, wall_s: None }));
        }
    }
    done.sort_by_key(|d| d.0);
    done.into_iter().map(|d| d.1).collect()
}

struct Bench<'b> {
    prepared: &'b Prepared<'b>,
    dir: &'b Path,
    progress: &'b Progress,
}

impl Bench<'_> {
    /// All wanted groups of one source.
    fn source(&self, source: usize, groups: &[Group], wanted: &[usize]) -> Vec<(usize, Done)> {
        if wanted.is_empty() {
            return Vec::new();
        }
        // What a source panics with ends its own cells.
        let work = AssertUnwindSafe(|| {
            self.prepared.with_source(source, |ready| {
                let one = |&i: &usize| (i, self.group(ready, &groups[i]));
                wanted.par_iter().with_max_len(1).map(one).collect::<Vec<_>>()
            })
        });
        let why = match catch_unwind(work) {
            Ok(Ok(done)) => return done,
            Ok(Err(e)) => format!("{e:#}"),
            Err(panic) => format!("panicked: {}", message(&*panic)),
        };
        let lost = |i: usize| {
            let group = &groups[i];
            self.progress.cell(self.work(group)).group(group.runs.len(), &group.label, Some(&why));
            let failed = vec![(group.label.clone(), group.failed(self.prepared, None, why.clone()))];
            Done { file: None, failed, kept: false, wall_s: None }
        };
        wanted.iter().map(|&i| (i, lost(i))).collect()
    }

    /// Request-rounds of a group.
    fn work(&self, group: &Group) -> u64 {
        group.runs.len() as u64 * u64::from(self.prepared.run.rounds)
    }

    fn group(&self, ready: &Ready<'_>, group: &Group) -> Done {
        let begun = Instant::now();
        let cell = self.progress.cell(self.work(group));
        let (mut runs, mut failed): (Vec<Simulated>, Vec<(String, FailedCell)>) = (Vec::new(), Vec::new());
        for &i in &group.runs {
            let seen = |rounds| cell.work(rounds);
            let simulated = || ready.simulate_watched(i, group.context, group.concurrency, &seen);
            let why = match catch_unwind(AssertUnwindSafe(simulated)) {
                Ok(Ok(run)) => {
                    runs.push(run);
                    continue;
                }
                Ok(Err(e)) => format!("{e:#}"),
                Err(panic) => format!("panicked: {}", message(&*panic)),
            };
            let c = &self.prepared.candidates[i];
            let label = format!("{} budget {}, {}", c.kind, c.budget, group.label);
            failed.push((label, group.failed(self.prepared, Some(c.choice()), why)));
        }
        let frame = Frame { group, ready };
        let plain = runs.iter().find(|r| self.prepared.candidates[r.candidate].kind == PLAIN);
        let file = GroupFile {
            group: group.key.clone(),
            acceptance: ready.acceptance.words(),
            answer: answer(&ready.setting(group.context, group.concurrency, &runs), &ready.resamples),
            cells: runs.iter().map(|run| frame.detail(run, plain)).collect(),
        };
        // A group that lacks a cell is repeated whole by `--resume`; until then the report needs the others.
        if let Err(e) = store(self.dir, &file) {
            failed.push((group.label.clone(), group.failed(self.prepared, None, format!("{e:#}"))));
        }
        let why = failed.first().map(|(label, f)| format!("{label}: {}", f.reason));
        cell.group(group.runs.len(), &group.label, why.as_deref());
        Done { file: Some(file), failed, kept: false, wall_s: Some(begun.elapsed().as_secs_f64()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Backend, Overrides, load_text};
    use crate::run::priced::plan::Plan;
    use std::path::Path;
    use treeline_policies::Registry;
    use treeline_sim::batch::fast::FastPolicy;

    const TEXT: &str = r#"name = "g"
seed = 1
record = "summary"
bootstrap = 100
[backend]
kind = "sim"
[deployment]
engine = "sglang-0.5.14-b300-tp8"
model = "kimi-k2.6"
drafter = "kimi-k2.6-dflash"
experts = "uniform"
tier = "table"
allow_extrapolation = true
prefill = "excluded"
[workload]
concurrency = [1, 4]
context = [1024]
response = 48
requests = 20
rounds = 256
[[acceptance]]
name = "a"
process = "kimi-k2.5-dflash-mtbench"
variants = false
[[acceptance]]
name = "b"
process = "kimi-k2.6-dspark"
variants = false
[[policy]]
kind = "best-first"
budget = [4, 8]
"#;

    /// A cell that cannot be simulated is named, its neighbours have figures and an answer, their file is there for the
    /// report, and `--resume` tries them again.
    #[test]
    fn one_failing_cell_does_not_lose_its_neighbours() {
        let experiment =
            load_text(TEXT, "g.toml", Path::new("."), &Registry::builtin(), &Overrides::default()).unwrap();
        let Backend::Priced(run) = &experiment.backend else { panic!("not priced") };
        let mut prepared = Prepared::new(&experiment, run).unwrap();
        // Beyond the tables that are built for its budget.
        prepared.candidates[2].fast = Some(FastPolicy::BestFirst { budget: 999, spine: 0 });
        let (groups, _) = Plan(&prepared).groups().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let done = super::run(&prepared, &groups, dir.path(), false, true);
        assert_eq!(done.len(), 4);
        for (d, group) in done.iter().zip(&groups) {
            let file = d.file.as_ref().unwrap();
            assert_eq!((file.cells.len(), d.failed.len()), (2, 1));
            let (label, lost) = &d.failed[0];
            assert!(label.starts_with("best-first budget 8, ") && label.ends_with(&group.label), "{label}");
            assert_eq!((lost.context, lost.concurrency), (1024, group.concurrency));
            assert_eq!(lost.choice.as_ref().map(|c| c.budget), Some(8));
            assert!(lost.reason.contains("exceeds the nodes"), "{}", lost.reason);
            assert_eq!(file.answer.as_ref().unwrap().candidates.len(), 2);
            assert!(dir.path().join("cells").join(format!("{}.json", group.key)).is_file());
            assert!(load(dir.path(), group).is_none(), "it is not finished");
        }
    }
}
