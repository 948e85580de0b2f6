//! Tier `calibrated`: ops fitted on an engine at hand, as a file (`docs/calibration-file.md`).
//!
//! A file holds the fitted ops, the measured steps that they were fitted to and held out from, the domain they cover, and
//! where they were measured. Reading checks all of it: a stated error that the file's own points contradict is refused.

mod check;
mod file;
mod law;

pub use file::{Calibration, Domain, FittedOp, HeldOut, Manifest, StepPoint};
pub(super) use law::{HostLaw, HostOp, passes};
