//! Measured times that a policy saw: logged, and played back to reproduce its decisions.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use treeline_core::{PhaseTimes, RoundLog};

/// The times of a cell's rounds, in order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Observations {
    /// Per round; `None` where the engine had no clock.
    pub times: Vec<Option<PhaseTimes>>,
    /// Round that is played back next; `None` = the engine's own times are logged.
    #[serde(skip)]
    next: Option<usize>,
    /// Whether more rounds came than were logged.
    #[serde(skip)]
    pub exhausted: bool,
}

impl Observations {
    /// File of a cell's observations in a run folder.
    pub fn path(dir: &Path, key: &str) -> PathBuf {
        dir.join("cells").join(format!("{key}.observations.json"))
    }

    /// Reads what a run logged for the cell `key`, to be played back.
    pub fn load(dir: &Path, key: &str) -> anyhow::Result<Self> {
        let path = Self::path(dir, key);
        let text = std::fs::read(&path).with_context(|| {
            format!("{}: no observations of this cell: replay a run of the same experiment", path.display())
        })?;
        let read: Self = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        Ok(Self { next: Some(0), ..read })
    }

    /// Logs the round's times, or puts the logged ones in their place.
    pub fn pass(&mut self, log: &mut RoundLog) {
        match &mut self.next {
            None => self.times.push(log.times),
            Some(next) => {
                self.exhausted |= *next >= self.times.len();
                log.times = self.times.get(*next).copied().flatten();
                *next += 1;
            }
        }
    }
}
