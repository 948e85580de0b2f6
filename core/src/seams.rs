//! The traits at which drafters, verifiers, engines, policies and costs meet.

mod engine;
mod policy;
mod step;

pub use engine::{Admit, Drafter, Engine, EngineInfo, Verifier};
pub use policy::{Grow, Needs, Program, ProgramBudget, RequestPolicy, Round, StepView, TreePolicy};
pub use step::{StepCost, StepShape, StepTime};
