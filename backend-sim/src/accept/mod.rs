//! Acceptance sources: a synthetic drafter–target process with named, fitted parameters, for pairs that no trace has.
//!
//! [`Process::generate`] gives a rank trace of a block drafter, so that replay, [`nested`](crate::nested) tables and every
//! policy work on it as on a recorded one. What the parameters mean, where their values come from, and what the process
//! cannot show, stands in `docs/acceptance.md`.

mod generate;
mod parameter;
mod process;
mod ranks;
mod shape;

pub use parameter::{Parameter, Rates};
pub use process::{End, MAX_DEPTH, Process, ProcessError};
