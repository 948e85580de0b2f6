//! Whose counts a file holds: servers with several models count each under its name.

use super::Wrong;
use std::collections::BTreeSet;

/// The models that were met, and the one that is wanted.
pub(super) struct Choice<'m> {
    wanted: Option<&'m str>,
    met: BTreeSet<String>,
}

impl<'m> Choice<'m> {
    /// `wanted`: as the command line names it; `None` = the only one.
    pub(super) fn new(wanted: Option<&'m str>) -> Self {
        Self { wanted, met: BTreeSet::new() }
    }

    /// Notes that something was counted for `name` (empty: it names none), and says whether it is to be read.
    pub(super) fn admits(&mut self, name: &str) -> bool {
        if !self.met.contains(name) {
            self.met.insert(name.to_owned());
        }
        self.wanted.is_none_or(|w| w == name)
    }

    /// Whether nothing was met.
    pub(super) fn nothing(&self) -> bool {
        self.met.is_empty()
    }

    /// Whether what was read is one model's.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let all: Vec<&str> = self.met.iter().map(|m| if m.is_empty() { "(no name)" } else { m }).collect();
        let all = all.join(", ");
        match self.wanted {
            None if self.met.len() > 1 => {
                Err(Wrong::whole(format!("counts {} models: {all}; choose one with --model NAME", self.met.len())))
            }
            Some(_) if self.met.iter().all(String::is_empty) => Err(Wrong::whole("names no model: leave --model out")),
            Some(wanted) if !self.met.contains(wanted) => {
                Err(Wrong::whole(format!("counts nothing of model `{wanted}`: it has {all}")))
            }
            _ => Ok(()),
        }
    }

    /// The remark that belongs into a result's source.
    pub(super) fn note(&self) -> Option<String> {
        self.wanted.map(|w| format!("model {w} of {}", self.met.len()))
    }
}
