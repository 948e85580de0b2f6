//! For tests of engines and policies: a scripted engine over a tiny model ([`MockEngine`]), a policy of one fixed shape
//! ([`Shape`]), and the proof that a law with a policy's trees gives exactly the target's distribution ([`Proof`]).
//!
//! Behind the feature `test-support`.

mod branches;
mod drafter;
mod enumerated;
mod mock;
mod proof;
mod script;
mod shape;
mod tiny;
mod verifier;

pub use drafter::{MockDrafter, MockDrafts};
pub use mock::MockEngine;
pub use proof::{Proof, Rule};
pub use script::{Script, Seeded};
pub use shape::Shape;
pub use tiny::Tiny;
pub use verifier::MockVerifier;
