//! Trace replay: an [`Engine`](treeline_core::Engine) that answers from a recorded trajectory instead of running models.
//!
//! A trace says, for every position of a plainly decoded response, what the drafter proposed behind it and where the token
//! that really came ranked. That is all a tree policy sees of the world, so replay gives every policy the accepted lengths
//! it would have had live: exactly on block drafters (the trajectory does not depend on the policy), and on conditional
//! drafters wherever the policy stays within the recorded expansions. It has no clock: step times are not part of it.
//! [`record`](record::record) makes such traces on any engine.
//!
//! ```
//! use std::sync::Arc;
//! use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};
//! use treeline_core::{End, EngineInfo, Engine};
//! use treeline_sim::ReplayEngine;
//!
//! // One request: token 0 is the first root; behind it the drafter's best candidate was right, then the response ended.
//! let position = Position { ends: vec![2], logp: vec![-0.1, -2.4], truth: vec![Some(0)], ..Position::default() };
//! let request = TraceRequest {
//!     id: 0, domain: "code".into(), prompt_tokens: 5, max_new: 2, tokens: vec![], emitted: 2,
//!     positions: vec![position], end: End::Length,
//! };
//! let meta = TraceMeta {
//!     depth: 1, width: 2, conditional: false, ids: false, vocab: 100, context: 64, temperature: 0.0, seed: 0,
//!     source: "by hand".into(),
//! };
//! let engine = ReplayEngine::new(Arc::new(Trace { meta, requests: vec![request] }), 1)?;
//! assert_eq!(engine.info().depth, 1);
//! # Ok::<(), treeline_sim::TraceFault>(())
//! ```
#![forbid(unsafe_code)]

pub mod accept;
pub mod batch;
pub mod cost;
pub mod experts;
pub mod memory;
pub mod nested;
pub mod optable;
pub mod power;
pub mod profile;
pub mod record;
pub mod replay;
pub mod text;
pub mod validate;

pub use record::{Frontier, RecordSetup, Recorded, record};
pub use replay::{ReplayEngine, check_policy, law, requests};
pub use validate::{TraceFault, validate};
