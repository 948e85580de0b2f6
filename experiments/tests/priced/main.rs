//! Priced runs from their files, as a user runs them.
#![allow(clippy::unwrap_used)]

mod grid;
mod interrupt;
mod policies;
mod replay;
mod site;
mod sources;
