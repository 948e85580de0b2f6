//! The grid: every candidate of every group on nested tables, which are built once per source.

use super::cells::Frame;
use super::plan::Group;
use super::store::{GroupFile, load, store};
use crate::decide::answer;
use crate::priced::{PLAIN, Prepared, Ready, Simulated};
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
    /// Cells that failed: label and why.
    pub failed: Vec<(String, String)>,
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
    let progress = Progress::new(left + finished, finished, left as u64, quiet);
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
            self.progress.cell(group.runs.len() as u64).group(group.runs.len(), &group.label, Some(&why));
            Done { file: None, failed: vec![(group.label.clone(), why.clone())], kept: false, wall_s: None }
        };
        wanted.iter().map(|&i| (i, lost(i))).collect()
    }

    fn group(&self, ready: &Ready<'_>, group: &Group) -> Done {
        let begun = Instant::now();
        let cell = self.progress.cell(group.runs.len() as u64);
        let (mut runs, mut failed): (Vec<Simulated>, Vec<(String, String)>) = (Vec::new(), Vec::new());
        for &i in &group.runs {
            let simulated = || ready.simulate(i, group.context, group.concurrency);
            let why = match catch_unwind(AssertUnwindSafe(simulated)) {
                Ok(Ok(run)) => {
                    runs.push(run);
                    continue;
                }
                Ok(Err(e)) => format!("{e:#}"),
                Err(panic) => format!("panicked: {}", message(&*panic)),
            };
            let c = &self.prepared.candidates[i];
            failed.push((format!("{} budget {}, {}", c.kind, c.budget, group.label), why));
        }
        let frame = Frame { group, ready };
        let plain = runs.iter().find(|r| self.prepared.candidates[r.candidate].kind == PLAIN);
        let file = GroupFile {
            group: group.key.clone(),
            acceptance: ready.acceptance.words(),
            answer: answer(&ready.setting(group.context, group.concurrency, &runs), &ready.resamples),
            cells: runs.iter().map(|run| frame.detail(run, plain)).collect(),
        };
        // A group with a failed cell is repeated whole by `--resume`.
        if failed.is_empty()
            && let Err(e) = store(self.dir, &file)
        {
            failed.push((group.label.clone(), format!("{e:#}")));
        }
        cell.group(group.runs.len(), &group.label, failed.first().map(|f| f.1.as_str()));
        Done { file: Some(file), failed, kept: false, wall_s: Some(begun.elapsed().as_secs_f64()) }
    }
}
