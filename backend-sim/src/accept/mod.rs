//! Acceptance sources: a synthetic drafter–target process with named, fitted parameters, for pairs that no trace has.
//!
//! [`Process::generate`] gives a rank trace of a block drafter, so that replay, [`nested`](crate::nested) tables and every
//! policy work on it as on a recorded one. What the parameters mean, where their values come from, and what the process
//! cannot show, stands in `docs/acceptance.md`.

mod anchors;
mod chain;
mod check;
pub mod fit;
mod generate;
mod parameter;
mod process;
mod ranks;
pub mod remark;
mod sample;
mod shape;
mod suits;
mod variants;

pub use anchors::{Anchor, AnchorTree, anchors, process, shipped};
pub use fit::Estimate;
pub use parameter::{Drafts, Parameter, Rates};
pub use process::{MAX_DEPTH, Process, ProcessError};
pub use sample::Sample;
pub use variants::Variant;
