//! The closed loop in its steady state, on nested best-first tables: a budget is a look-up, so a cell takes milliseconds.
//!
//! A fixed policy leads through a response in the same rounds whatever its company, so its rounds are laid out once per
//! trace (a *tape*); a step of B requests is B places on it. Policies that choose by cost do so in every step anew, over
//! places that a pilot of the same policy laid out.

mod choose;
mod sample;
mod simulate;
mod sums;
mod tables;
mod tape;
mod types;

pub use simulate::{simulate, step};
pub use tables::Tables;
pub use types::{Choice, FastPolicy, FastResult, Load, RequestSums, Scope};
