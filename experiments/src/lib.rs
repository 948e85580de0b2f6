//! Experiments: the TOML file, the runner, traces, the run folder and its report.
#![forbid(unsafe_code)]

pub mod advise;
pub mod cli;
pub mod config;
pub mod decide;
pub mod import;
pub mod optables;
pub mod priced;
pub mod report;
pub mod results;
pub mod run;
pub mod split;
pub mod trace;
