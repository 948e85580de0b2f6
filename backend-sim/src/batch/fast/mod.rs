//! The closed loop in its steady state, on nested best-first tables: a budget is a look-up, so a cell takes milliseconds.

mod types;

pub use types::{FastPolicy, FastResult, Load, RequestSums, Scope};
