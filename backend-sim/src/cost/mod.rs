//! What a step costs: the op list of a target step and of a draft pass, priced by one of three tiers.

mod error;
mod line;
mod query;

pub use error::CostError;
pub use line::{Limit, OpLine, Origin, Tier};
pub use query::{StepPrice, StepQuery};
