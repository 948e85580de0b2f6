//! Tree policies: one file each, behind one registry.
//!
//! A policy turns drafts into trees ([`treeline_core::TreePolicy`]). Its configuration is a [`PolicyConfig`]: a documented
//! serde struct that refuses unknown keys. [`Registry::builtin`] knows the policies of this crate; a plug-in adds its own
//! with [`Registry::register`]. The *budget* (nodes without the root) is the run's, never part of a policy's
//! configuration.
//!
//! | kind | tree |
//! | --- | --- |
//! | `chain` | the drafter's rank-0 path |
//! | `best-first` | the most probable prefixes (DDTree), per request or over the whole batch |
//! | `spine-first` | the whole rank-0 path, then best-first |
//! | `top-k` | the best `width` per level, then the best of all levels (EAGLE-2); or fixed widths per level |
//! | `adaptive` | best-first by calibrated probabilities, its budget chosen by measured acceptance and step cost |
//! | `cost-aware` | best-first, each request's size chosen by the cost of its step |
//! | `batch-wide` | the best nodes over all requests, as many as the cost of the shared step makes worth while |
//! | `sequoia` | the optimal fixed shape for given acceptance by rank |
//! | `opt-tree` | the best per level until a level adds too little |
//! | `spec-exec` | the best frontier nodes in beams, discounted by depth |
//! | `talon` | per level every child close enough to the level's best |
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod best_first;
pub mod chain;
pub mod conformance;
pub mod cost_aware;
mod heap;
mod knobs;
mod lattice;
mod layers;
pub mod opt_tree;
mod order;
pub mod per_request;
pub mod pop_order;
mod queue;
pub mod registry;
mod search;
pub mod sequoia;
pub mod shape;
pub mod spec_exec;
pub mod spine_first;
pub mod talon;
pub mod template;
pub mod top_k;

pub use per_request::PerRequest;
pub use registry::{BuildError, Listing, Parameter, PolicyConfig, Registry};
