//! What priced runs, advice and their tests share: profiles joined to a cost model, acceptance sources, candidates, and how
//! an answer moves when one of its inputs does.
//!
//! The grid of a run simulates every candidate in full. Variants of an input are priced at *mean shapes*: how many tokens,
//! rows and independent rows a request has per round does not depend on its company, so one pass over the trace gives them
//! for every concurrency and context; a variant's rate is the simulated one times the quotient of two such prices. That
//! leaves out the spread of steps around their mean, in both prices alike.

mod acceptance;
mod anchor;
mod candidates;
mod mean;
mod moves;
mod prepared;
mod profiles;
mod ready;
mod spine;
mod tables;
mod variants;
mod watched;

pub use acceptance::{Acceptance, Outline};
pub use anchor::anchored;
pub(crate) use candidates::beyond_tables;
pub use candidates::{Candidate, PLAIN, TABLE_NODES, candidates};
pub use mean::{Shape, rate, shapes};
pub use prepared::Prepared;
pub use profiles::{Problem, Profiles};
pub use ready::{Ready, Simulated};
pub(crate) use variants::{At, moved_input};
pub use variants::{CostVariant, ShapeVariant, ShapeVariants, cost_variants, replayed_variants, shape_variants};
use watched::Watched;
