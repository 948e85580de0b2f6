//! The pure heart of Treeline: draft trees, verification laws, the decode round, metrics and records.
//!
//! Nothing here reads a file, a clock, a global or a thread. A backend implements [`Drafter`], [`Verifier`] and
//! [`Engine`]; a policy implements [`TreePolicy`] (or [`RequestPolicy`]); [`run`] drives them.
//!
//! Words follow one table: a *budget* counts nodes without the root, a verify pass has `1 + budget` *rows*, and τ counts
//! the tokens committed per verify step with the bonus.
#![forbid(unsafe_code)]

pub mod batch;
pub mod cost;
pub mod draft;
pub mod error;
pub mod forest;
pub mod law;
pub mod log;
pub mod mask;
pub mod metrics;
pub mod round;
pub mod sampling;
pub mod schedule;
pub mod seams;
pub mod stream;
#[cfg(feature = "test-support")]
pub mod testing;
pub mod trace;
pub mod tree;

pub use batch::{Batch, Caps, Limits, Request, Sampling, Seq};
pub use cost::CostCurve;
pub use draft::{Ask, Candidate, Conditional, DraftView, Draw, Lattice, NodeRef};
pub use error::{Error, Fault};
pub use forest::Forest;
pub use law::{End, Law, Rows, Step, Truth};
pub use log::{Entry, Phase, PhaseTimes, RoundLog};
pub use mask::AncestorMask;
pub use round::{RoundView, check_fit};
pub use schedule::{Response, RunSetup, run};
pub use seams::{
    Admit, Drafter, Engine, EngineInfo, Grow, Needs, Program, ProgramBudget, RequestPolicy, Round, StepCost, StepShape,
    StepTime, StepView, TreePolicy, Verifier,
};
pub use tree::{NodeId, ROOT, Tree, TreeBuilder, TreeError};
