//! Mixtures of experts: routing, and the routed experts themselves.
//!
//! [`Router`] chooses the experts of each row and sorts the picks by expert; [`Experts`] reads each distinct expert once and
//! gives every row Σ weight · down(silu(gate h) · up h), its experts in ascending order of their ids. Nothing that a row gets
//! depends on the other rows of the pass, and nothing that is launched depends on the choice.

mod experts;
mod int4;
mod router;
mod weights;

pub use experts::{ExpertKind, ExpertShape, Experts, ExpertsArgs};
pub use int4::Tuning;
pub use router::{Dispatch, Router, RouterArgs};
pub use weights::{ExpertTensor, ExpertWeights};
