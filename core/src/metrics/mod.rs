//! Acceptance figures with their intervals, where tokens were lost, and what to be warned of.
//!
//! * [`Tally`] adds up rounds: τ both ways, acceptance by depth and rank, rows, experts, times.
//! * [`Bootstrap`] gives intervals over requests, and over paired requests of two cells.
//! * [`Waterfall`] splits the tokens that a perfect tree would have had into reasons for their loss; [`TruthTracker`]
//!   finds the truth that it (and a recorded trace) needs.
//! * [`looped`] finds responses that repeat themselves; [`Warning`] says what a reader must know first.

mod bootstrap;
mod compare;
mod figures;
mod loops;
mod tally;
mod truth;
mod warning;
mod waterfall;

pub use bootstrap::{Bootstrap, Interval};
pub use compare::{Incomparable, Tpot, speedup};
pub use loops::{LOOP_MIN, LOOP_PERIOD, LOOP_WINDOW, loop_share, looped};
pub use tally::{DepthCount, Phi, Point, PricedSum, RequestTally, Tally};
pub use truth::{Rooted, TruthTracker};
pub use warning::{Warning, warnings};
pub use waterfall::{Loss, Waterfall, oracle, reachable};
