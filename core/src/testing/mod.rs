//! For tests of engines and policies: a scripted engine over a tiny model ([`MockEngine`]), a policy of one fixed shape
//! ([`Shape`]), and the proof that a law with a policy's trees gives exactly the target's distribution ([`Proof`]).
//!
//! Behind the feature `test-support`.

mod branches;
mod mock;
mod parts;
mod proof;
mod shape;
mod tiny;

pub use mock::MockEngine;
pub use parts::{MockDrafter, MockVerifier, Script};
pub use proof::{Proof, Rule};
pub use shape::Shape;
pub use tiny::Tiny;
