//! Progress on stderr: a bar with the time left on a terminal, a line per cell elsewhere.

use crate::results::CellDetail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A line on stderr. A closed stderr is no reason to fail.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Seconds without a word where there is no bar.
const SILENT_S: u64 = 10;

/// How far a run is: in tokens, the only measure that a cell knows of its own end, or in request-rounds where those are given.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    begun: Instant,
    total: u64,
    done: AtomicU64,
    /// Seconds since the begin at which a line was written last.
    said: AtomicU64,
    cells: usize,
    finished: Mutex<usize>,
}

/// One cell's part.
pub(super) struct CellProgress<'p> {
    run: &'p Progress,
    work: u64,
    seen: AtomicU64,
}

impl Progress {
    /// `finished` of `cells` are there already; `total` tokens or request-rounds, at the most, are to come.
    pub fn new(cells: usize, finished: usize, total: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
            // The template is fixed, so it cannot be refused; the default bar is no loss.
            let style = ProgressStyle::with_template("{msg} {bar:30} {percent:>3} %  {elapsed} gone, {eta} left");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_message(format!("{finished}/{cells}"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self {
            bar,
            lines: !terminal && !quiet,
            begun: Instant::now(),
            total,
            done: AtomicU64::new(0),
            said: AtomicU64::new(0),
            cells,
            finished: Mutex::new(finished),
        }
    }

    /// A cell of at most `work` tokens begins.
    pub fn cell(&self, work: u64) -> CellProgress<'_> {
        CellProgress { run: self, work, seen: AtomicU64::new(0) }
    }

    fn add(&self, work: u64) {
        self.done.fetch_add(work, Relaxed);
        if let Some(bar) = &self.bar {
            bar.inc(work);
        } else if self.lines {
            let (now, said) = (self.begun.elapsed().as_secs(), self.said.load(Relaxed));
            // Between two cells that take long; whoever writes first writes for all.
            if now >= said + SILENT_S && self.said.compare_exchange(said, now, Relaxed, Relaxed).is_ok() {
                let share = 100.0 * self.done.load(Relaxed) as f64 / self.total.max(1) as f64;
                note(&format!("{share:.1} % after {now} s{}", self.rest()));
            }
        }
    }

    /// " (about 12 s left)".
    fn rest(&self) -> String {
        self.left().map_or_else(String::new, |t| format!(" (about {} s left)", t.as_secs().max(1)))
    }

    /// Nothing more comes.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Time left if the rest goes as what is done went.
    fn left(&self) -> Option<Duration> {
        let done = self.done.load(Relaxed);
        let rest = self.total.saturating_sub(done);
        (done > 0 && rest > 0).then(|| self.begun.elapsed().mul_f64(rest as f64 / done as f64))
    }
}

impl CellProgress<'_> {
    /// A round gave so many tokens.
    pub fn tokens(&self, tokens: u32) {
        self.work(u64::from(tokens));
    }

    /// So much of the cell's work is done, in the unit that the run counts in; what goes beyond the cell's own is not told.
    pub fn work(&self, done: u64) {
        let before = self.seen.fetch_add(done, Relaxed);
        self.run.add(done.min(self.work.saturating_sub(before)));
    }

    /// The cell ended, maybe short of the most that it could give.
    pub fn done(&self, label: &str, result: Result<&CellDetail, &String>) {
        let outcome = match result {
            Ok(d) => d.cell.tau.map_or_else(|| "done".to_owned(), |tau| format!("τ {tau:.2}")),
            Err(why) => format!("failed: {why}"),
        };
        self.close(label, &outcome, result.is_err());
    }

    /// A group of `cells` cells ended at once; `failed` is why one of them did not finish.
    pub fn group(&self, cells: usize, label: &str, failed: Option<&str>) {
        let outcome = failed.map_or_else(|| "done".to_owned(), |why| format!("failed: {why}"));
        self.close_all(cells, label, &outcome, failed.is_some());
    }

    /// The same for a part that has no figures.
    pub fn ended(&self, label: &str) {
        self.close(label, "done", false);
    }

    fn close(&self, label: &str, outcome: &str, failed: bool) {
        self.close_all(1, label, outcome, failed);
    }

    fn close_all(&self, cells: usize, label: &str, outcome: &str, failed: bool) {
        self.run.add(self.work.saturating_sub(self.seen.load(Relaxed)));
        // A panic between lock and unlock is impossible: nothing in between panics.
        let mut finished = self.run.finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *finished += cells;
        let count = format!("{}/{}", *finished, self.run.cells);
        if let Some(bar) = &self.run.bar {
            bar.set_message(count);
            if failed {
                bar.println(format!("{label}: {outcome}"));
            }
        } else if self.run.lines {
            self.run.said.store(self.run.begun.elapsed().as_secs(), Relaxed);
            note(&format!("{count}: {label}: {outcome}{}", self.run.rest()));
        }
    }
}
