//! Batching: requests that join and leave by a clock, and rounds that have a price.
//!
//! * [`PricedEngine`] is the general way: a replay behind the engine seam whose rounds are priced by a cost model. Any
//!   policy runs on it, in a closed or an open loop, with prefill charged or excluded and a limit of KV memory.
//! * [`fast`] is the quick way for policies whose trees are prefixes of the best-first order: a closed loop in its steady
//!   state on nested tables.

mod arrivals;
mod check;
mod clock;
mod engine;
mod error;
pub mod fast;
mod kv;
mod latency;
mod pricing;
mod setup;
mod step;
mod worth;

pub use arrivals::Arrivals;
pub use check::{check_stand_in, check_trace};
pub use engine::PricedEngine;
pub use error::BatchError;
pub use latency::{Latency, Spread, Visit};
pub use pricing::Pricing;
pub use setup::{BatchSetup, Prefill};
pub use step::{PricedDrafter, PricedVerifier};
