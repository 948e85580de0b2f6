//! Batching: the priced engine, and the steady-state loop against it.
#![allow(clippy::unwrap_used)]

mod common;
mod neighbours;
mod priced;
mod steady;
mod waiting;
