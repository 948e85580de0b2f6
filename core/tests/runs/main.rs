//! Whole runs over the scripted engine: end conditions, public faults, and where tokens were lost.
#![allow(clippy::unwrap_used)]

mod arrivals;
mod common;
mod ends;
mod faults;
mod losses;
