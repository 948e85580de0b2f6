//! The engine: slots, rounds, and graphs by size.
//!
//! One set of buffers, sized for the largest pass, serves every graph; what a graph works on lies in buffers that the host
//! or earlier kernels fill, so topology never is part of a graph. A staged round runs three graphs (draft, verify, commit)
//! with the policy on the host between the first two; a device round adds one for the trees and comes back once, at its
//! end.

mod buckets;
mod clock;
mod commit;
mod draft;
mod features;
mod fused;
mod graphs;
mod judge;
mod pair;
mod pick;
mod prefill;
mod recorded;
mod report;
mod routing;
mod scorer;
mod settings;
mod slots;
mod state;
mod verifier;

pub use draft::{CudaDrafter, CudaDrafts};
pub use features::CudaFeatures;
pub use pair::{CudaPair, DrafterSource, PairOptions, SyntheticPair};
pub use recorded::Recorded;
pub use routing::RoutingModel;
pub use scorer::CudaScorer;
pub use settings::{CudaSettings, MOST_CHUNK, MOST_NODES, MOST_WIDTH};
pub use slots::CudaEngine;
pub use verifier::{CudaVerdict, CudaVerifier};
