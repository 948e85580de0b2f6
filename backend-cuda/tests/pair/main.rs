//! The engine on real text: the mini pair on a GPU, tiny fixtures on the emulator, each against the CPU engine.
//!
//! Figures are printed: `cargo test -p treeline-cuda --test pair -- --nocapture`.
#![allow(clippy::print_stdout, reason = "the figures go to docs/numbers/validation.md")]

#[path = "../pairs/mod.rs"]
mod pairs;

mod acceptance;
mod forced;
mod ranks;
mod routes;
mod rows;
mod shrink;
mod steady;
mod subject;
mod tap;
mod text;
mod watch;
