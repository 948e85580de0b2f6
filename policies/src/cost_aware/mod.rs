//! Sizes of trees by what a step costs.
//!
//! The choosers here are pure: the simulator's fast path uses the same ones as the policies. Φ(n) = Σ of the n best
//! (calibrated) path probabilities; an *end* is a total of nodes at which the cost of a step jumps.
//!
//! * [`choose`]: all ends are compared, by ratio (1 + Φ)/C or by renewal reward Σ(1 + Φ) − g·C, under an optional limit on
//!   the step time.
//! * [`Pool`]: the nodes of a whole batch in one order.
//! * [`Reliability`]: what claims are worth, fitted on one half of the requests and used on the other.
//! * [`totals`], [`per_request`]: which ends there are.
//! * [`Switch`]: whether to draft at all.
//!
//! Two policies use them, with the same parameters: `cost-aware` sizes every request by itself, as if all others took as
//! many nodes ((1 + Φ_r(n)) against C(requests · (1 + n))); `batch-wide` takes the best nodes over all requests
//! ((requests + ΣΦ) against C(requests + n)).

mod choose;
mod config;
mod ends;
mod policy;
mod pool;
mod reliability;
mod switch;

pub use choose::{Chosen, Goal, Objective, Throughput, choose};
pub use config::{BatchWideConfig, CalibrationKind, CostAwareConfig};
pub use ends::{per_request, totals};
pub use pool::Pool;
pub use reliability::{Reliability, ReliabilityFit};
pub use switch::Switch;
